// The costs that make a run fast or slow. tests/figures.json has small runs with their costs.

import { draftLengths, measure, predictedTau } from "specviz/facts/metrics.js";

const HALVINGS = 60;

/** @typedef {NonNullable<ReturnType<typeof explain>>} Explanation */

/**
 * The explanation of the speed-up of the shown rounds; null before both lanes can be compared.
 * @param {Round[]} rounds
 * @param {Header} header
 * @param {number} mostGamma  the longest examined draft, unless the run drafts more
 */
export function explain(rounds, header, mostGamma) {
  if (header.source) return null; // a server does not report the parts of a round's time
  const m = measure(rounds, header);
  const alone = rounds.filter((round) => round.lane === "baseline");
  if (m.speedup === null || m.tau === null) return null;
  const costs = costsOf(alone, m);
  const { step, judging, gamma, price } = costs;
  const maxGamma = Math.max(mostGamma, header.settings.gamma);
  const best = m.alpha === null ? null : bestGamma(m.alpha, step, judging, gamma, maxGamma);
  const lengths = draftLengths(rounds.filter((round) => round.lane === "speculative"));
  return {
    m, costs, speedup: m.tau / price,
    formula: m.speedup_predicted, // by the textbook formula, from alpha and c
    break_even: breakEvenOf(lengths, price), // the alpha at which rounds break even
    best_gamma: best?.gamma ?? null, best_speedup: best?.speedup ?? null,
    speeds: best?.speeds ?? [], // predicted speed-ups of all gammas from 0 on
  };
}

/**
 * The costs of a round: means per round, in seconds, and prices in steps of the target alone.
 * @param {Round[]} alone the baseline's rounds
 * @param {Metrics} m
 */
function costsOf(alone, m) {
  const single = m.seconds.baseline / alone.length; // seconds
  const draft = m.draft_seconds / m.rounds;
  const verify = m.verify_seconds / m.rounds;
  const overhead = m.seconds.speculative / m.rounds - draft - verify;
  const passes = alone.reduce((total, round) => total + round.verify_seconds, 0);
  const gamma = m.drafted / m.rounds;
  return {
    draft, verify, overhead, gamma,
    alone_verify: passes / alone.length,
    alone_overhead: single - passes / alone.length,
    step: gamma ? draft / gamma / single : 0,
    judging: (verify + overhead) / single,
    price: (draft + verify + overhead) / single,
  };
}

/**
 * The alpha at which rounds of this mean price break even; null if even 1 is not enough.
 * @param {Map<number, number>} lengths drafted tokens -> rounds
 * @param {number} price
 */
export function breakEvenOf(lengths, price) {
  const entries = [...lengths].sort(([a], [b]) => a - b);
  const total = (/** @type {(gamma: number) => number} */ of) =>
    entries.reduce((sum, [gamma, count]) => sum + of(gamma) * count, 0);
  const rounds = total(() => 1);
  const drafted = total((gamma) => gamma);
  if (drafted === 0 || price * rounds > drafted + rounds) return null;
  let low = 0;
  let high = 1;
  for (let i = 0; i < HALVINGS; i += 1) {
    const middle = (low + high) / 2;
    if (total((gamma) => predictedTau(middle, gamma)) >= price * rounds) high = middle;
    else low = middle;
  }
  return high;
}

/**
 * The gamma with the highest predicted speed-up, and the speed-ups of all from 0 on.
 * @param {number} alpha
 * @param {number} c
 * @param {number} judging
 * @param {number} judged  the number of guesses that `judging` was measured with
 * @param {number} maxGamma
 */
export function bestGamma(alpha, c, judging, judged, maxGamma) {
  const price = (/** @type {number} */ gamma) => {
    if (gamma === 0 || !judged) return 1;
    return judging < 1 ? judging : 1 + ((judging - 1) * gamma) / judged;
  };
  const speedWith = (/** @type {number} */ gamma) =>
    predictedTau(alpha, gamma) / (gamma * c + price(gamma));
  const speeds = Array.from({ length: maxGamma + 1 }, (_, gamma) => speedWith(gamma));
  const speedup = Math.max(...speeds);
  return { gamma: speeds.indexOf(speedup), speedup, speeds };
}
