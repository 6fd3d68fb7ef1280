// The panel "Why this speed?": what a round costs, what it yields, and what would pay.

import { explain } from "./costs.js";
import { element } from "./lane.js";
import { chance } from "./reasons.js";
import { fixed } from "./words.js";

const NEAR = 0.03; // a speed-up or a share that differs by less is as good as the same
const PARTS = { draft: "draft", verify: "verify", overhead: "overhead" };

/** Fill `body` from the rounds that are shown. */
export function showWhy(body, rounds, trace) {
  const why = explain(rounds, trace.header);
  if (why === null) {
    body.replaceChildren(element("p", "", "Nothing has been measured yet: both lanes must finish a round."));
    return;
  }
  const { gamma } = trace.header.settings;
  body.replaceChildren(
    element("p", "sv-lead", verdictOf(why, gamma)),
    ...(why.m.drafted ? [
      titled("Where a round’s time goes", times(why), element("p", "", spent(why))),
      titled("Predicted against measured", table(why), element("p", "", gap(why))),
      titled("Does it pay?", ...payline(why)),
      titled("The γ that would have been best", ...gammas(why, gamma)),
    ] : [titled("Where a round’s time goes", times(why))]));
}

/** The verdict in words, as plain when the draft loses. */
export function verdictOf({ m, costs, speedup, break_even, ...why }, gamma) {
  if (!m.drafted) return "Without drafts both lanes are the same loop: there is nothing to gain and nothing to lose.";
  const trade = `A round yields ${fixed(m.tau, 2)} tokens for the price of ${fixed(costs.price, 2)} target steps`;
  const advice = adviceOf({ ...why, gamma });
  if (break_even === null) {
    const judging = costs.judging > 1 + NEAR ? `, and judging ${gamma} of its guesses ${fixed(costs.judging, 2)} steps` : "";
    return `The draft costs ${fixed(costs.step, 2)} of a target step${judging}: no acceptance rate can pay for that at γ = ${gamma}.${advice}`;
  }
  if (speedup > 1 + NEAR) {
    return `${trade}: that makes it ${fixed(speedup, 2)} times as fast. It pays while more than ${chance(break_even)} of the judged guesses hold; here ${chance(m.alpha)} do.${advice}`;
  }
  if (speedup > 1 - NEAR) return `${trade}: the draft just pays for itself.${advice}`;
  if (m.alpha < break_even) {
    return `${trade}, so speculation loses. Of the judged guesses ${chance(m.alpha)} hold; at this price ${chance(break_even)} would have to.${advice}`;
  }
  return `${trade}, so speculation loses, although ${chance(m.alpha)} of the judged guesses hold: they come in clusters, and independent ones would yield ${fixed(m.tau_predicted, 2)} a round.${advice}`;
}

function adviceOf({ best_gamma, best_speedup, speeds, gamma }) {
  if (best_gamma === null || best_gamma === gamma) return "";
  if (best_gamma === 0) return " By the formula no γ pays with this draft.";
  const isBetter = best_speedup > (1 + NEAR) * (speeds[gamma] ?? 0);
  return isBetter ? ` By the formula γ = ${best_gamma} would be better.` : "";
}

function titled(title, ...content) {
  const part = element("section");
  part.append(element("h3", "", title), ...content);
  return part;
}

/** Two bars on one scale of milliseconds: a round of each lane. */
function times({ costs }) {
  const lanes = [
    ["draft + target", { draft: costs.draft, verify: costs.verify, overhead: costs.overhead }],
    ["target alone", { draft: 0, verify: costs.alone_verify, overhead: costs.alone_overhead }],
  ];
  const totals = lanes.map(([, parts]) => Object.values(parts).reduce((a, b) => a + b));
  const list = element("dl", "sv-times");
  lanes.forEach(([name, parts], i) => {
    const bar = element("span", "sv-times-bar");
    for (const part of Object.keys(PARTS)) {
      const piece = element("i", part);
      piece.style.width = `${(100 * parts[part]) / Math.max(...totals)}%`;
      bar.append(piece);
    }
    const value = element("dd");
    value.append(bar, element("b", "", ms(totals[i])));
    list.append(element("dt", "", name), value);
  });
  const key = element("p", "sv-times-key");
  for (const [part, label] of Object.entries(PARTS)) {
    const item = element("span");
    item.append(element("i", part), `${label} ${ms(costs[part])}`);
    key.append(item);
  }
  key.append(element("span", "", `one-token pass ${ms(costs.alone_verify)}`));
  const box = element("div");
  box.append(list, key);
  return box;
}

const ms = (seconds) => `${fixed(1000 * seconds, 2)} ms`;

function spent({ m, costs }) {
  const share = (part) => chance(part / (costs.draft + costs.verify + costs.overhead));
  return `Per round ${fixed(costs.gamma, 2)} guesses at c = ${fixed(m.c, 2)} of a target pass each take ${
    share(costs.draft)} of the time, the pass that judges them ${share(costs.verify)}.`;
}

/** Tokens per round, price and speed-up: by the textbook, at the measured price, measured. */
function table({ m, costs, speedup, formula, priced }) {
  const rows = [
    ["textbook", m.tau_predicted, formula ? m.tau_predicted / formula : null, formula],
    ["measured price", m.tau_predicted, costs.price, priced],
    ["measured", m.tau, costs.price, speedup],
  ];
  const node = element("table"), head = element("tr");
  for (const name of ["", "tokens per round", "price, steps", "speed-up"]) head.append(element("th", "", name));
  node.append(head);
  for (const [name, ...values] of rows) {
    const row = element("tr");
    row.dataset.row = name;
    row.append(element("th", "", name));
    for (const value of values) row.append(element("td", "", fixed(value, 2)));
    node.append(row);
  }
  return node;
}

function gap({ m, costs, speedup, formula }) {
  const textbook = "The textbook, τ(α, γ) / (γc + 1), takes judging for one pass and verdicts for independent";
  const reasons = [];
  if (Math.abs(costs.judging - 1) > NEAR) {
    reasons.push(`judging and overhead cost ${fixed(costs.judging, 2)} steps here`);
  }
  if (Math.abs(m.tau / m.tau_predicted - 1) > NEAR) {
    const more = m.tau > m.tau_predicted ? "more" : "fewer";
    reasons.push(`the verdicts, which come in clusters, yield ${more} tokens than that`);
  }
  if (Math.abs(speedup / formula - 1) <= NEAR) return `${textbook}. Here it is right.`;
  return `${textbook}.${reasons.length ? ` But ${reasons.join(", and ")}.` : ""}`;
}

/** Alpha on a line from 0 to 1, and the place on it from which on drafts pay. */
function payline({ m, break_even }) {
  if (break_even === null) return [element("p", "", "Not at this γ: a round costs more steps than the tokens that it can yield at most.")];
  const line = element("div", "sv-payline");
  const pays = element("i");
  pays.style.left = `${100 * break_even}%`;
  line.append(pays, mark("break-even", break_even), mark("α", m.alpha));
  const verdict = m.alpha >= break_even ? "above" : "below";
  return [line, element("p", "", `α = ${fixed(m.alpha, 2)}, ${verdict} the break-even of ${fixed(break_even, 2)} for this γ at the measured prices.`)];
}

function mark(name, value) {
  const node = element("span", "");
  node.dataset.mark = name;
  node.style.left = `${100 * value}%`;
  return node;
}

function gammas({ best_gamma, best_speedup, speeds }, gamma) {
  const list = element("ol", "sv-gammas");
  const highest = Math.max(1, ...speeds);
  speeds.slice(1).forEach((speed, i) => {
    const isBest = i + 1 === best_gamma, isOurs = i + 1 === gamma;
    const item = element("li", `${isBest ? "is-best " : ""}${isOurs ? "is-ours" : ""}`);
    const bar = element("i");
    bar.style.height = `${(100 * speed) / highest}%`;
    item.append(bar, element("small", "", String(i + 1)));
    list.append(item);
  });
  list.style.setProperty("--even", 1 / highest);
  const says = best_gamma === 0
    ? "From this α and these prices no γ is above 1×: the target is faster alone."
    : `From this α and these prices γ = ${best_gamma} would have been best: ${fixed(best_speedup, 2)}×, by the formula`
      + `${best_gamma === gamma ? ", and it is the one in use." : `; γ = ${gamma}, the one in use, gives ${fixed(speeds[gamma] ?? null, 2)}×.`}`;
  return [list, element("p", "", says)];
}
