// Every number shown, from rounds: the same definitions as specviz/report/metrics.py.

/** @typedef {ReturnType<typeof measure>} Metrics */
/** @typedef {{ speculative: number, baseline: number }} PerLane */
/** @typedef {Map<number, number>} Lengths  drafted tokens -> rounds with so many */

/**
 * @template Item
 * @param {Item[]} list
 * @param {(item: Item) => number} of
 */
const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);

/**
 * @param {number} part
 * @param {number} whole
 */
const ratio = (part, whole) => (whole ? part / whole : null);

/**
 * @param {Round[]} rounds
 * @param {LaneName} name
 */
const lane = (rounds, name) => rounds.filter((round) => round.lane === name);

/** @param {Round[]} rounds */
const clock = (rounds) => (rounds.length ? rounds[rounds.length - 1].clock : 0);

/**
 * Seconds on the wall clock of a lane, with prefill, engines and texts; old recordings lack it.
 * @param {Round[]} rounds
 */
const wall = (rounds) => rounds[rounds.length - 1]?.wall ?? null;

const FEWEST = 2; // tokens and rounds of a lane from which its speed is compared

/**
 * The figures of some rounds; null where nothing has been measured yet.
 * @param {Round[]} rounds
 * @param {Header} [header]
 */
export function measure(rounds, header) {
  const ours = lane(rounds, "speculative"), alone = lane(rounds, "baseline");
  const counts = countOutcomes(ours);
  const drafted = sum(ours, (round) => round.drafted.length);
  const emitted = sum(ours, (round) => round.emitted.length);
  const alpha = ratio(counts.accepted, counts.accepted + counts.rejected);
  const c = costRatio(ours, alone);
  const tokens = { speculative: emitted, baseline: sum(alone, (round) => round.emitted.length) };
  const seconds = { speculative: clock(ours), baseline: clock(alone) };
  const onWall = { speculative: wall(ours), baseline: wall(alone) };
  const canCompare = Math.min(ours.length, alone.length, tokens.speculative, tokens.baseline) >= FEWEST;
  return {
    counts, drafted, emitted, rounds: ours.length, alpha,
    efficiency: ratio(counts.accepted, drafted),
    beta: meanBeta(ours),
    tau: ratio(emitted, ours.length),
    tau_predicted: meanPredictedTau(draftLengths(ours), alpha),
    c,
    speedup: canCompare ? speedup(seconds, tokens) : null,
    speedup_end_to_end: canCompare ? speedup(withPrefill(seconds, header), tokens) : null,
    speedup_wall: canCompare ? speedup(onWall, tokens) : null,
    speedup_predicted: meanPredictedSpeedup(ours, alpha, c),
    tokens, seconds, wall_seconds: onWall,
    tokens_per_second: {
      speculative: ratio(tokens.speculative, seconds.speculative),
      baseline: ratio(tokens.baseline, seconds.baseline),
    },
    draft_seconds: sum(ours, (round) => round.draft_seconds),
    verify_seconds: sum(ours, (round) => round.verify_seconds),
    overhead_seconds: sum(ours, (round) => round.overhead_seconds),
    alpha_by_position: alphaByPosition(ours),
  };
}

/** @param {Round[]} rounds */
function countOutcomes(rounds) {
  /** @type {Record<Outcome, number>} */
  const counts = { accepted: 0, rejected: 0, ignored: 0, corrected: 0, bonus: 0 };
  for (const round of rounds) {
    for (const token of round.drafted) counts[token.outcome] += 1;
    for (const token of round.emitted) if (token.outcome !== "accepted") counts[token.outcome] += 1;
  }
  return counts;
}

/** @param {Round[]} rounds */
function meanBeta(rounds) {
  const betas = rounds.flatMap((round) => round.drafted).flatMap(({ chance, beta }) => chance ?? beta ?? []);
  return ratio(sum(betas, (beta) => beta), betas.length);
}

/**
 * @param {Round[]} ours
 * @param {Round[]} alone
 */
function costRatio(ours, alone) {
  const drafting = ours.filter((round) => round.drafted.length);
  const step = ratio(sum(drafting, (r) => r.draft_seconds), sum(drafting, (r) => r.drafted.length));
  const pass = ratio(sum(alone, (round) => round.verify_seconds), alone.length);
  return step && pass ? step / pass : null;
}

/**
 * @param {Record<LaneName, number | null>} seconds
 * @param {PerLane} tokens
 */
function speedup(seconds, tokens) {
  const slow = ratio(seconds.baseline ?? 0, tokens.baseline);
  const fast = ratio(seconds.speculative ?? 0, tokens.speculative);
  return slow && fast ? slow / fast : null;
}

/**
 * @param {PerLane} seconds
 * @param {Header} [header]
 * @returns {PerLane}
 */
function withPrefill({ speculative, baseline }, header) {
  const prefill = (/** @type {LaneName} */ name) =>
    sum(Object.values(header?.prefill_seconds?.[name] ?? {}), (value) => value);
  return {
    speculative: speculative + prefill("speculative"),
    baseline: baseline + prefill("baseline"),
  };
}

/**
 * Expected tokens per round if acceptances were independent (Leviathan et al. 2022, eq. 1).
 * @param {number} alpha
 * @param {number} gamma
 */
export function predictedTau(alpha, gamma) {
  return alpha === 1 ? gamma + 1 : (1 - alpha ** (gamma + 1)) / (1 - alpha);
}

/**
 * The last rounds may draft fewer than the others.
 * @param {Round[]} rounds
 * @returns {Lengths}
 */
export function draftLengths(rounds) {
  const lengths = new Map();
  for (const round of rounds) addLength(lengths, round);
  return lengths;
}

/**
 * @param {Lengths} lengths
 * @param {Round} round
 */
function addLength(lengths, { drafted }) {
  lengths.set(drafted.length, (lengths.get(drafted.length) ?? 0) + 1);
}

/**
 * @param {Lengths} lengths
 * @param {number | null} alpha
 */
function meanPredictedTau(lengths, alpha) {
  if (alpha === null) return null;
  const entries = [...lengths];
  return ratio(sum(entries, ([length, count]) => predictedTau(alpha, length) * count),
    sum(entries, ([, count]) => count));
}

/**
 * @param {Round[]} rounds
 * @param {number | null} alpha
 * @param {number | null} c
 */
function meanPredictedSpeedup(rounds, alpha, c) {
  if (alpha === null || c === null) return null;
  return ratio(sum(rounds, ({ drafted }) => predictedTau(alpha, drafted.length)),
    sum(rounds, ({ drafted }) => drafted.length * c + 1));
}

/**
 * How many drafts were judged and accepted at each place of a round.
 * @param {Round[]} rounds
 */
function positions(rounds) {
  /** @type {number[]} */
  const judged = [];
  /** @type {number[]} */
  const accepted = [];
  for (const { drafted } of rounds) {
    drafted.forEach((token, place) => {
      judged[place] = (judged[place] ?? 0) + Number(token.outcome !== "ignored");
      accepted[place] = (accepted[place] ?? 0) + Number(token.outcome === "accepted");
    });
  }
  return { judged, accepted };
}

/** @param {Round[]} rounds */
function alphaByPosition(rounds) {
  const { judged, accepted } = positions(rounds);
  return judged.map((count, place) => ratio(accepted[place], count));
}

/**
 * The points of every chart, as series() of specviz/report/charts.py gives them.
 * @param {Round[]} rounds
 * @returns {Record<string, Points[]>}
 */
export function series(rounds) {
  const ours = lane(rounds, "speculative"), alone = lane(rounds, "baseline");
  /** @type {("draft_seconds" | "verify_seconds" | "overhead_seconds")[]} */
  const parts = ["draft_seconds", "verify_seconds", "overhead_seconds"];
  return {
    tokens: [progress(ours), progress(alone)],
    ...soFar(ours),
    speed: [pace(ours), pace(alone)],
    parts: parts.map((part) => ({
      x: [alone, ours].map((list) => (list.length ? 1000 * sum(list, (r) => r[part]) / list.length : 0)),
      y: ["target alone", "draft + target"],
    })),
    positions: [byPosition(ours)],
  };
}

/** @param {Round[]} rounds */
function progress(rounds) {
  const x = [0], y = [0];
  for (const round of rounds) {
    x.push(round.clock);
    y.push(y[y.length - 1] + round.emitted.length);
  }
  return { x, y };
}

/** @param {Round[]} rounds */
function pace(rounds) {
  const { x, y } = progress(rounds);
  const timed = x.map((seconds, i) => [seconds, y[i] / seconds]).filter(([seconds]) => seconds > 0);
  return { x: timed.map(([seconds]) => seconds), y: timed.map(([, speed]) => speed) };
}

/**
 * Rates and tau after each round.
 * @param {Round[]} rounds
 */
function soFar(rounds) {
  const lengths = new Map();
  let accepted = 0, judged = 0, drafted = 0, emitted = 0;
  const points = rounds.map((round, i) => {
    addLength(lengths, round);
    for (const token of round.drafted) {
      accepted += Number(token.outcome === "accepted");
      judged += Number(token.outcome !== "ignored");
    }
    drafted += round.drafted.length;
    emitted += round.emitted.length;
    const alpha = ratio(accepted, judged);
    return {
      x: i + 1, alpha,
      efficiency: ratio(accepted, drafted),
      tau: emitted / (i + 1),
      predicted: meanPredictedTau(lengths, alpha),
    };
  });
  const x = points.map((point) => point.x);
  return {
    rates: [{ x, y: points.map((point) => point.alpha) }, { x, y: points.map((point) => point.efficiency) }],
    tau: [{ x, y: points.map((point) => point.tau) }, { x, y: points.map((point) => point.predicted) }],
  };
}

/** @param {Round[]} rounds */
function byPosition(rounds) {
  const { judged, accepted } = positions(rounds);
  const places = judged.map((count, place) => [place, count]).filter(([, count]) => count);
  return {
    x: places.map(([place]) => place + 1),
    y: places.map(([place, count]) => accepted[place] / count),
  };
}
