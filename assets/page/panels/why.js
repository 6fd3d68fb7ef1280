// The panel "Why this speed?": the cost of a round, its yield, and whether that pays.

import { element, table, titled } from "specviz/dom/dom.js";
import { milliseconds, timeBars, timesKey } from "specviz/panels/times.js";
import { chance } from "specviz/words/reasons.js";
import { adapts, MIN_ROUNDS, isFinished, NEAR } from "specviz/words/verdict.js";
import { fixed } from "specviz/words/words.js";

const NOTHING = "Nothing can be compared yet: both lanes must finish two rounds.";
const NO_VERDICT = `A run that is not finished, or has fewer than ${MIN_ROUNDS} rounds with drafts, has `
  + "no verdict: these are its figures so far.";
const NO_DRAFTS = "Without drafts both lanes are the same loop: there is nothing to gain and nothing to "
  + "lose.";
const NEVER_PAYS = "Not at this γ: a round costs more passes than the most tokens that it can yield.";
const TEXTBOOK = "The textbook formula, τ(α, γ) / (γc + 1), assumes that judging costs one pass and that "
  + "verdicts are independent";

/**
 * Fill `body` with the explanation of the shown rounds: a sentence, the figures by their letters, and the
 * reasons.
 * @type {(body: HTMLElement, why: Explanation | null, trace: Trace, greek: HTMLElement) => void}
 */
export function showWhy(body, why, trace, greek) {
  if (why === null) {
    body.replaceChildren(element("p", "", NOTHING), greek);
    return;
  }
  const { settings } = trace.header;
  const isSettled = isFinished(trace) && why.m.rounds >= MIN_ROUNDS;
  const verdict = isSettled ? verdictOf(why, settings) : NO_VERDICT;
  const lead = element("div", "", element("p", "sv-lead", verdict));
  if (!why.m.drafted) {
    body.replaceChildren(lead, greek, titled("Where a round’s time goes", times(why)));
    return;
  }
  body.replaceChildren(lead, greek,
    titled("Where a round’s time goes", times(why), element("p", "", shares(why))),
    titled("Predicted against measured", predicted(why), element("p", "", difference(why)),
      element("p", "", endToEnd(why.m))),
    titled("Does it pay?", ...breakEven(why)),
    titled("Often misunderstood", misreadings(why)));
}

// The ratio of whole runs: the headline's ratio counts neither prefill nor the work for display.
/** @param {Metrics} m */
function endToEnd({ speedup_wall: wall, speedup_end_to_end: prefilled }) {
  const sentence = wall !== null
    ? `End to end, with prefill and text: ${fixed(wall, 2)}×.`
    : `With prefill: ${fixed(prefilled, 2)}×.`;
  return `${sentence} That is one measurement, and its clock also counts work that drafts do not change.`;
}

/**
 * The verdict in words, as plain when the draft loses.
 * @type {(why: Explanation, settings: Pick<Settings, "gamma" | "gamma_policy">) => string}
 */
export function verdictOf(why, settings) {
  const { m, costs, speedup, break_even } = why;
  if (!m.drafted) return NO_DRAFTS;
  const gamma = adapts(settings, costs.gamma) ? fixed(costs.gamma, 2) : String(settings.gamma);
  if (break_even === null) {
    const judging = costs.judging > 1 + NEAR
      ? `, and judging ${gamma} guesses costs ${fixed(costs.judging, 2)} passes`
      : "";
    return `A guess costs ${fixed(costs.step, 2)} of a target pass${judging}: no acceptance rate can pay `
      + `for that at γ = ${gamma}.`;
  }
  const balance = `A round yields ${fixed(m.tau, 2)} tokens ${priceOf(costs.price)}`;
  if (speedup > 1 + NEAR) {
    return `${balance}: that makes it ${fixed(speedup, 2)} times as fast. It pays while more than `
      + `${chance(break_even)} of the judged guesses are accepted; here ${chance(m.alpha)} are.`;
  }
  if (speedup > 1 - NEAR) return `${balance}: that is about even.`;
  if ((m.alpha ?? 0) < break_even) {
    return `${balance}, so speculation loses. ${chance(m.alpha)} of the judged guesses are accepted; at this `
      + `cost it takes ${chance(break_even)} to break even.`;
  }
  return `${balance}, so speculation loses, although ${chance(m.alpha)} of the judged guesses are accepted: `
    + `they come in clusters. Independent verdicts would yield ${fixed(m.tau_predicted, 2)} tokens a round.`;
}

/**
 * The cost of a round in words. A round contains a whole pass, so a lower cost only means that the machine
 * was busy.
 * @param {number} price  in passes of the target alone
 */
export const priceOf = (price) => (price < 1 ? "and costs about one pass of the target"
  : `and costs ${fixed(price, 2)} passes of the target`);

/** Two bars on one scale of milliseconds: a round of each lane. @param {Explanation} why */
function times({ costs }) {
  const drafted = { draft: costs.draft, verify: costs.verify, overhead: costs.overhead };
  const alone = { draft: 0, verify: costs.alone_verify, overhead: costs.alone_overhead };
  const key = timesKey((part) => `${part} ${milliseconds(costs[part])}`);
  key.append(element("span", "", `one-token pass ${milliseconds(costs.alone_verify)}`));
  return element("div", "", timeBars([["with drafts", drafted], ["target alone", alone]]), key);
}

/** @param {Explanation} why */
function shares({ m, costs }) {
  const total = costs.draft + costs.verify + costs.overhead;
  const share = (/** @type {number} */ part) => chance(part / total);
  return `Per round, ${fixed(costs.gamma, 2)} guesses at c = ${fixed(m.c, 2)} of a target pass each take `
    + `${share(costs.draft)} of the time, and the pass that judges them takes ${share(costs.verify)}.`;
}

/** Tokens per round, cost and speed-up: by the textbook, and measured. @param {Explanation} why */
function predicted({ m, costs, speedup, formula }) {
  const price = formula && m.tau_predicted ? m.tau_predicted / formula : null;
  /** @type {[string, ...(number | null)[]][]} */
  const rows = [["textbook", m.tau_predicted, price, formula], ["measured", m.tau, costs.price, speedup]];
  return table("", ["", "tokens per round", "cost, passes", "speed-up"],
    rows.map(([name, ...values]) => [name, ...values.map((value) => fixed(value, 2))]));
}

/** The reasons why the textbook's speed-up differs from the measured one. @param {Explanation} why */
function difference({ m, costs, speedup, formula }) {
  const ratio = (/** @type {number | null} */ a, /** @type {number | null} */ b) => (a ?? 0) / (b ?? 0);
  if (Math.abs(ratio(speedup, formula) - 1) <= NEAR) return `${TEXTBOOK}. Here it is right.`;
  const reasons = [];
  if (Math.abs(costs.judging - 1) > NEAR) {
    reasons.push(`judging and overhead cost ${fixed(costs.judging, 2)} passes here`);
  }
  const surplus = ratio(m.tau, m.tau_predicted) - 1;
  if (Math.abs(surplus) > NEAR) {
    const more = surplus > 0 ? "more" : "fewer";
    reasons.push(`the verdicts, which come in clusters, yield ${more} tokens than that`);
  }
  if (!reasons.length) return `${TEXTBOOK}.`;
  return `${TEXTBOOK}. But ${reasons.join(", and ")}.`;
}

// Alpha on a line from 0 to 1, with the threshold above which drafts pay.
/** @type {(why: Explanation) => HTMLElement[]} */
function breakEven({ m, break_even: threshold }) {
  if (threshold === null) return [element("p", "", NEVER_PAYS)];
  const alpha = m.alpha ?? 0;
  const mark = (/** @type {string} */ name, /** @type {number} */ value) =>
    element("span", "", { dataset: { mark: name }, style: { left: `${100 * value}%` } });
  const pays = element("i", "", { style: { left: `${100 * threshold}%` } });
  const side = alpha >= threshold ? "above" : "below";
  const words = `α = ${fixed(m.alpha, 2)}, ${side} the break-even of ${fixed(threshold, 2)} for this γ at `
    + "the measured costs.";
  return [
    element("div", "sv-payline", pays, mark("break-even", threshold), mark("α", alpha)),
    element("p", "", words),
  ];
}

// Common misunderstandings about speed, answered with the numbers of the shown run.
/** @param {Explanation} why */
function misreadings({ m, costs, speeds }) {
  /** @type {[question: string, answer: string][]} */
  const answers = [
    [
      "Is a larger τ always faster?",
      `No: a round yields τ = ${fixed(m.tau, 2)} tokens, but it took ${fixed(costs.price, 2)} times as long `
        + "as one of the target alone. More guesses raise both, and later guesses are accepted less often.",
    ],
    [
      "Is checking free?",
      `No: the pass over the guesses, with the round’s overhead, costs ${fixed(costs.judging, 2)} passes of `
        + "the target alone here. With a mixture of experts or a long text it can cost much more.",
    ],
    [
      "Is α accepted over drafted?",
      `No: α = ${fixed(m.alpha, 2)} counts only judged guesses. Guesses after a rejected one took time but `
        + `were not judged: accepted over drafted is ${fixed(m.efficiency, 2)}.`,
    ],
  ];
  if (speeds[1] !== undefined) {
    const answer = speeds[1] > 1 ? "Yes" : "Not here";
    answers.push([
      "Can a single guess help?",
      `${answer}: with γ = 1 a round writes up to two tokens for one draft step `
        + `and one pass, by the formula ${fixed(speeds[1], 2)}×.`,
    ]);
  }
  const terms = answers.flatMap(([question, answer]) =>
    [element("dt", "", question), element("dd", "", answer)]);
  const list = element("dl", "sv-misreadings", ...terms);
  if (!document.querySelector(".has-questions")) return element("div", "", list);
  const more = element("button", "sv-link", "Quiz: these and more, each with a recorded run",
    { dataset: { question: "" } });
  return element("div", "", list, more);
}
