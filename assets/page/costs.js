// Why a run is as fast as it is: the same definitions as specviz/costs.py.

import { measure, predictedTau } from "./metrics.js";

export const MOST_GAMMA = 16;
const HALVINGS = 60;

/** What explains the speed-up of the shown rounds; null before both lanes have been measured. */
export function explain(rounds, header) {
  const m = measure(rounds, header);
  const costs = roundCosts(rounds, m);
  if (costs === null || m.tau === null) return null;
  const best = m.alpha === null ? null
    : bestGamma(m.alpha, costs.step, costs.judging, costs.gamma);
  return {
    m, costs,
    speedup: m.tau / costs.price,
    formula: m.speedup_predicted,
    priced: m.tau_predicted === null ? null : m.tau_predicted / costs.price,
    break_even: breakEvenOf(draftLengths(rounds), costs.price),
    best_gamma: best?.gamma ?? null,
    best_speedup: best?.speedup ?? null,
    speeds: best?.speeds ?? [],
  };
}

function roundCosts(rounds, m) {
  const alone = rounds.filter((round) => round.lane === "baseline");
  const single = alone.length ? m.seconds.baseline / alone.length : 0; // seconds
  if (!m.rounds || !single) return null;
  const draft = m.draft_seconds / m.rounds, verify = m.verify_seconds / m.rounds;
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

/** The alpha at which the predicted speed-up is 1, or null if even 1 would not pay. */
export function breakEvenAlpha(gamma, c, judging = 1) {
  return breakEvenOf(new Map([[gamma, 1]]), gamma * c + judging);
}

/** The alpha at which rounds of this mean price would only just pay; `lengths`: drafted -> rounds. */
export function breakEvenOf(lengths, price) {
  const entries = [...lengths].sort(([a], [b]) => a - b);
  const total = (of) => entries.reduce((sum, [gamma, count]) => sum + of(gamma) * count, 0);
  const rounds = total(() => 1), drafted = total((gamma) => gamma);
  if (drafted === 0 || price * rounds > drafted + rounds) return null;
  let low = 0, high = 1;
  for (let i = 0; i < HALVINGS; i += 1) {
    const middle = (low + high) / 2;
    if (total((gamma) => predictedTau(middle, gamma)) >= price * rounds) high = middle;
    else low = middle;
  }
  return high;
}

function draftLengths(rounds) {
  const lengths = new Map();
  for (const { lane, drafted } of rounds) {
    if (lane === "speculative") lengths.set(drafted.length, (lengths.get(drafted.length) ?? 0) + 1);
  }
  return lengths;
}

/** The gamma with the highest predicted speed-up, and the speed-ups of all from 0 on. */
export function bestGamma(alpha, c, judging = 1, judged = 1, most = MOST_GAMMA) {
  const speeds = Array.from({ length: most + 1 }, (_, gamma) =>
    predictedTau(alpha, gamma) / (gamma * c + judgingPrice(gamma, judging, judged)));
  const speedup = Math.max(...speeds);
  return { gamma: speeds.indexOf(speedup), speedup, speeds };
}

function judgingPrice(gamma, judging, judged) {
  if (gamma === 0 || !judged) return 1;
  return judging < 1 ? judging : 1 + ((judging - 1) * gamma) / judged;
}
