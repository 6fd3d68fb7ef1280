// The panel "Why this speed?": what a round costs, what it yields, and what would pay.

import { element } from "specviz/dom/dom.js";
import { misreadings } from "specviz/panels/misreadings.js";
import { chance } from "specviz/words/reasons.js";
import { adapts, adviceOf, NEAR } from "specviz/words/verdict.js";
import { fixed } from "specviz/words/words.js";

/** @import { Explanation } from "specviz/facts/costs.js" */
/** @import { Metrics } from "specviz/facts/metrics.js" */

/** @type {("draft" | "verify" | "overhead")[]} */
const PARTS = ["draft", "verify", "overhead"];
const NOTHING = "Nothing can be compared yet: both lanes must finish two rounds.";
const NO_DRAFTS = "Without drafts both lanes are the same loop: there is nothing to gain and nothing to lose.";
const NEVER_PAYS = "Not at this γ: a round costs more steps than the tokens that it can yield at most.";
const TEXTBOOK = "The textbook, τ(α, γ) / (γc + 1), takes judging for one pass and verdicts for independent";

/**
 * Fill `body` with what explains the rounds that are shown.
 * @param {HTMLElement} body
 * @param {Explanation | null} why
 * @param {Trace} trace
 */
export function showWhy(body, why, trace) {
  if (why === null) {
    body.replaceChildren(element("p", "", NOTHING));
    return;
  }
  const { settings } = trace.header;
  const lead = element("div");
  lead.append(element("p", "sv-lead", verdictOf(why, settings)), element("p", "", endToEnd(why.m)));
  if (!why.m.drafted) {
    body.replaceChildren(lead, titled("Where a round’s time goes", times(why)));
    return;
  }
  body.replaceChildren(lead,
    titled("Where a round’s time goes", times(why), element("p", "", shares(why))),
    titled("Predicted against measured", table(why), element("p", "", difference(why))),
    titled("Does it pay?", ...breakEven(why)),
    titled("The γ that would have been best", ...gammas(why, settings)),
    titled("What is easily misread", misreadings(why)));
}

/**
 * The ratio of whole runs: that of the headline counts neither prefill nor what is for the reader.
 * @param {Metrics} m
 */
function endToEnd({ speedup_wall: wall, speedup_end_to_end: prefilled }) {
  return wall !== null ? `End to end, with prefill and text: ${fixed(wall, 2)}×.`
    : `With prefill: ${fixed(prefilled, 2)}×.`;
}

/**
 * The verdict in words, as plain when the draft loses.
 * @param {Explanation} why
 * @param {Pick<Settings, "gamma" | "gamma_policy">} settings
 */
export function verdictOf(why, settings) {
  const { m, costs, speedup, break_even } = why;
  if (!m.drafted) return NO_DRAFTS;
  const advice = adviceOf(why, settings);
  const gamma = adapts(settings, costs.gamma) ? fixed(costs.gamma, 2) : String(settings.gamma);
  if (break_even === null) {
    const judging = costs.judging > 1 + NEAR
      ? `, and judging ${gamma} of its guesses ${fixed(costs.judging, 2)} steps` : "";
    return `The draft costs ${fixed(costs.step, 2)} of a target step${judging}: no acceptance rate can pay for that `
      + `at γ = ${gamma}.${advice}`;
  }
  const balance = `A round yields ${fixed(m.tau, 2)} tokens for the price of ${fixed(costs.price, 2)} target steps`;
  if (speedup > 1 + NEAR) {
    return `${balance}: that makes it ${fixed(speedup, 2)} times as fast. It pays while more than ${
      chance(break_even)} of the judged guesses hold; here ${chance(m.alpha)} do.${advice}`;
  }
  if (speedup > 1 - NEAR) return `${balance}: that is as good as even.${advice}`;
  if ((m.alpha ?? 0) < break_even) {
    return `${balance}, so speculation loses. Of the judged guesses ${chance(m.alpha)} hold; at this price ${
      chance(break_even)} would have to.${advice}`;
  }
  return `${balance}, so speculation loses, although ${chance(m.alpha)} of the judged guesses hold: they come in `
    + `clusters, and independent ones would yield ${fixed(m.tau_predicted, 2)} a round.${advice}`;
}

/**
 * @param {string} title
 * @param {...HTMLElement} content
 */
function titled(title, ...content) {
  const part = element("section");
  part.append(element("h3", "", title), ...content);
  return part;
}

/**
 * Two bars on one scale of milliseconds: a round of each lane.
 * @param {Explanation} why
 */
function times({ costs }) {
  const ours = { draft: costs.draft, verify: costs.verify, overhead: costs.overhead };
  const theirs = { draft: 0, verify: costs.alone_verify, overhead: costs.alone_overhead };
  const [total, alone] = [ours, theirs].map((parts) => parts.draft + parts.verify + parts.overhead);
  const longest = Math.max(total, alone);
  const list = element("dl", "sv-times");
  list.append(element("dt", "", "draft + target"), timeBar(ours, total, longest),
    element("dt", "", "target alone"), timeBar(theirs, alone, longest));
  const key = timesKey((part) => `${part} ${milliseconds(costs[part])}`);
  key.append(element("span", "", `one-token pass ${milliseconds(costs.alone_verify)}`));
  const box = element("div");
  box.append(list, key);
  return box;
}

/**
 * The colours of the parts of a round's time.
 * @param {(part: "draft" | "verify" | "overhead") => string} [say]
 */
export function timesKey(say = (part) => part) {
  const key = element("p", "sv-times-key");
  for (const part of PARTS) {
    const item = element("span");
    item.append(element("i", part), say(part));
    key.append(item);
  }
  return key;
}

/**
 * @param {Record<"draft" | "verify" | "overhead", number>} parts seconds
 * @param {number} total
 * @param {number} longest the total that fills the width
 */
export function timeBar(parts, total, longest) {
  const bar = element("span", "sv-times-bar");
  for (const part of PARTS) {
    const piece = element("i", part);
    piece.style.width = `${(100 * parts[part]) / longest}%`;
    bar.append(piece);
  }
  const value = element("dd");
  value.append(bar, element("b", "", milliseconds(total)));
  return value;
}

/** @param {number} seconds */
const milliseconds = (seconds) => `${fixed(1000 * seconds, 2)} ms`;

/** @param {Explanation} why */
function shares({ m, costs }) {
  const share = (/** @type {number} */ part) => chance(part / (costs.draft + costs.verify + costs.overhead));
  return `Per round ${fixed(costs.gamma, 2)} guesses at c = ${fixed(m.c, 2)} of a target pass each take ${
    share(costs.draft)} of the time, the pass that judges them ${share(costs.verify)}.`;
}

/**
 * Tokens per round, price and speed-up: by the textbook, at the measured price, measured.
 * @param {Explanation} why
 */
function table({ m, costs, speedup, formula, priced }) {
  const { tau, tau_predicted: predicted } = m;
  /** @type {[string, ...(number | null)[]][]} */
  const rows = [
    ["textbook", predicted, formula && predicted ? predicted / formula : null, formula],
    ["measured price", predicted, costs.price, priced],
    ["measured", tau, costs.price, speedup],
  ];
  const node = element("table"), head = element("tr");
  head.append(element("td"));
  for (const name of ["tokens per round", "price, steps", "speed-up"]) head.append(element("th", "", name));
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

/**
 * Why the textbook's speed-up is not the measured one.
 * @param {Explanation} why
 */
function difference({ m, costs, speedup, formula }) {
  const ratio = (/** @type {number | null} */ a, /** @type {number | null} */ b) => (a ?? 0) / (b ?? 0);
  if (Math.abs(ratio(speedup, formula) - 1) <= NEAR) return `${TEXTBOOK}. Here it is right.`;
  const reasons = [];
  if (Math.abs(costs.judging - 1) > NEAR) {
    reasons.push(`judging and overhead cost ${fixed(costs.judging, 2)} steps here`);
  }
  const surplus = ratio(m.tau, m.tau_predicted) - 1;
  if (Math.abs(surplus) > NEAR) {
    reasons.push(`the verdicts, which come in clusters, yield ${surplus > 0 ? "more" : "fewer"} tokens than that`);
  }
  return `${TEXTBOOK}.${reasons.length ? ` But ${reasons.join(", and ")}.` : ""}`;
}

/**
 * Alpha on a line from 0 to 1, and the place on it from which on drafts pay.
 * @param {Explanation} why
 * @returns {HTMLElement[]}
 */
function breakEven({ m, break_even: least }) {
  if (least === null) return [element("p", "", NEVER_PAYS)];
  const alpha = m.alpha ?? 0;
  const line = element("div", "sv-payline");
  const pays = element("i");
  pays.style.left = `${100 * least}%`;
  line.append(pays, mark("break-even", least), mark("α", alpha));
  const side = alpha >= least ? "above" : "below";
  return [line, element("p", "", `α = ${fixed(m.alpha, 2)}, ${side} the break-even of ${fixed(least, 2)} for this γ at `
    + "the measured prices.")];
}

/**
 * @param {string} name
 * @param {number} value from 0 to 1
 */
function mark(name, value) {
  const node = element("span");
  node.dataset.mark = name;
  node.style.left = `${100 * value}%`;
  return node;
}

/**
 * Over a bar: runs the prompt of the page with this gamma.
 * @param {number} gamma
 */
function runner(gamma) {
  const node = element("button");
  node.type = "button";
  node.dataset.runGamma = String(gamma);
  node.title = `Run with γ = ${gamma}`;
  node.setAttribute("aria-label", node.title);
  return node;
}

/**
 * A bar for each gamma.
 * @param {Explanation} why
 * @param {Pick<Settings, "gamma" | "gamma_policy">} settings
 */
function gammas({ best_gamma, best_speedup, speeds, speedup, costs }, settings) {
  // A policy, or text without a match, drafts another number in each round: then no bar is ours.
  const gamma = adapts(settings, costs.gamma) ? null : settings.gamma;
  const list = element("ol", "sv-gammas");
  const highest = Math.max(1, ...speeds);
  speeds.slice(1).forEach((speed, i) => {
    const isBest = i + 1 === best_gamma, isOurs = i + 1 === gamma;
    const item = element("li", `${isBest ? "is-best " : ""}${isOurs ? "is-ours" : ""}`);
    const bar = element("i");
    bar.style.height = `${(100 * speed) / highest}%`;
    bar.dataset.value = fixed(speed, 2);
    item.append(bar, element("small", "", String(i + 1)));
    if (document.querySelector("#run")) item.append(runner(i + 1));
    list.append(item);
  });
  list.style.setProperty("--even", String(1 / highest));
  const inUse = gamma === null
    ? `. Rounds drafted ${fixed(costs.gamma, 2)} on average here, and made it ${fixed(speedup, 2)}×.`
    : best_gamma === gamma ? ", and it is the one in use."
      : `; γ = ${gamma}, the one in use, gives ${fixed(speeds[gamma] ?? null, 2)}×.`;
  const said = best_gamma === 0
    ? "From this α and these prices no γ is above 1×: the target is faster alone."
    : `From this α and these prices γ = ${best_gamma} would have been best: ${fixed(best_speedup, 2)}×, by the formula`
      + inUse;
  return [list, element("p", "", said)];
}
