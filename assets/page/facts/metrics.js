// Every number shown, from rounds: the same definitions as specviz/runs/metrics.py.

import { ALONE, draftedLanes, labelOf, WITH_DRAFTS } from "specviz/facts/lanes.js";

/** @typedef {ReturnType<typeof measure>} Metrics */
/** @typedef {Record<LaneName, number>} PerLane */
/** @typedef {Map<number, number>} Lengths  drafted tokens -> rounds with so many */

/**
 * @template Item
 * @param {Item[]} list
 * @param {(item: Item) => number} of
 */
const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);

/** @type {(part: number, whole: number) => number | null} */
const ratio = (part, whole) => (whole ? part / whole : null);

/** @type {(rounds: Round[], name: LaneName) => Round[]} */
const lane = (rounds, name) => rounds.filter((round) => round.lane === name);

/** @param {Round[]} rounds */
const clock = (rounds) => (rounds.length ? rounds[rounds.length - 1].clock : 0);

// Seconds on the wall clock of a lane, with prefill, engines and text; old recordings lack it.
/** @param {Round[]} rounds */
const wall = (rounds) => rounds[rounds.length - 1]?.wall ?? null;

/**
 * Whether a round is the first of a watched server, whose token came from the prefill: the clock begins
 * after it, so speeds and tau leave it out.
 * @param {Round} [round]
 */
export const readsPrompt = (round) => round?.index === 0 && round.clock === 0 && !round.drafted.length;

/** @param {Round[]} rounds */
const timed = (rounds) => (readsPrompt(rounds[0]) ? rounds.slice(1) : rounds);

/** Whether a watched server reports how many tokens its steps drafted. @param {Round[]} rounds */
export const reportsDrafts = (rounds) =>
  !rounds.some(({ last }) => last?.outcome === "untold");

const MIN_COMPARED = 2; // tokens and rounds of a lane that a comparison of speed needs

/**
 * The figures of some rounds of a lane with drafts and of the baseline; null for figures without a
 * measurement.
 * @param {Round[]} rounds
 * @param {Header} [header]
 * @param {LaneName} [name]
 */
export function measure(rounds, header, name = draftedLanes(header)[0]) {
  const laneRounds = lane(rounds, name);
  const alone = lane(rounds, ALONE);
  const counts = countOutcomes(laneRounds);
  const drafted = sum(laneRounds, (round) => round.drafted.length);
  const emitted = sum(laneRounds, (round) => round.emitted.length);
  const isReported = reportsDrafts(laneRounds);
  const alpha = isReported ? ratio(counts.accepted, counts.accepted + counts.rejected) : null;
  const c = costRatio(laneRounds, alone);
  const { judged, accepted } = positions(isReported ? laneRounds : []);
  const tokens = { [name]: emitted, [ALONE]: sum(alone, (round) => round.emitted.length) };
  const paced = { [name]: written(timed(laneRounds)), [ALONE]: written(timed(alone)) };
  const seconds = { [name]: clock(laneRounds), [ALONE]: clock(alone) };
  const withPrefill = {
    [name]: clock(laneRounds) + prefillOf(name, laneRounds, header),
    [ALONE]: clock(alone) + prefillOf(ALONE, alone, header),
  };
  const onWall = { [name]: wall(laneRounds), [ALONE]: wall(alone) };
  const canCompare = Math.min(laneRounds.length, alone.length, ...Object.values(tokens)) >= MIN_COMPARED;
  return {
    counts, drafted, emitted, rounds: laneRounds.length, alpha,
    efficiency: isReported ? ratio(counts.accepted, drafted) : null,
    beta: meanBeta(laneRounds),
    tau: ratio(paced[name], timed(laneRounds).length),
    tau_predicted: meanPredictedTau(draftLengths(timed(laneRounds)), alpha),
    c,
    speedup: canCompare ? speedup(seconds, paced, name) : null,
    speedup_end_to_end: canCompare ? speedup(withPrefill, tokens, name) : null,
    speedup_wall: canCompare ? speedup(onWall, tokens, name) : null,
    speedup_predicted: meanPredictedSpeedup(laneRounds, alpha, c),
    tokens, seconds, wall_seconds: onWall,
    tokens_per_second: {
      [name]: ratio(paced[name], seconds[name]),
      [ALONE]: ratio(paced[ALONE], seconds[ALONE]),
    },
    draft_seconds: sum(laneRounds, (round) => round.draft_seconds),
    verify_seconds: sum(laneRounds, (round) => round.verify_seconds),
    overhead_seconds: sum(laneRounds, (round) => round.overhead_seconds),
    alpha_by_position: judged.map((count, position) => ratio(accepted[position], count)),
  };
}

/**
 * The lane with drafts that has the highest speed-up so far; the first if none has one.
 * @type {(rounds: Round[], header: Header) => string}
 */
export function fastestLane(rounds, header) {
  const names = draftedLanes(header);
  const speeds = names.map((name) => (names.length > 1 && measure(rounds, header, name).speedup) || 0);
  return names[speeds.indexOf(Math.max(...speeds))];
}

/** @param {Round[]} rounds */
function countOutcomes(rounds) {
  /** @type {Record<Exclude<Outcome, "untold">, number> & { untold?: number }} */
  const counts = { accepted: 0, rejected: 0, ignored: 0, corrected: 0, bonus: 0 };
  const add = (/** @type {Outcome} */ outcome) => { counts[outcome] = (counts[outcome] ?? 0) + 1; };
  for (const round of rounds) {
    for (const token of round.drafted) add(token.outcome);
    if (round.last) add(round.last.outcome);
  }
  return counts;
}

/**
 * Count the tokens of rounds without a guess. Their outcome is "bonus", but they are not free.
 * @type {(rounds: Round[], name: LaneName) => number}
 */
export function unguessed(rounds, name) {
  const plain = lane(rounds, name).filter(({ drafted }) => !drafted.length);
  return plain.filter(({ last }) => last?.outcome === "bonus").length;
}

/** @param {Round[]} rounds */
function meanBeta(rounds) {
  const betas = rounds.flatMap((round) => round.drafted).flatMap(({ chance, beta }) => chance ?? beta ?? []);
  return ratio(sum(betas, (beta) => beta), betas.length);
}

/** @type {(laneRounds: Round[], alone: Round[]) => number | null} */
function costRatio(laneRounds, alone) {
  const drafting = laneRounds.filter((round) => round.drafted.length);
  const step = ratio(sum(drafting, (r) => r.draft_seconds), sum(drafting, (r) => r.drafted.length));
  const pass = ratio(sum(alone, (round) => round.verify_seconds), alone.length);
  return step && pass ? step / pass : null;
}

/** @type {(seconds: Record<LaneName, number | null>, tokens: PerLane, name: LaneName) => number | null} */
function speedup(seconds, tokens, name) {
  const slow = ratio(seconds[ALONE] ?? 0, tokens[ALONE]);
  const fast = ratio(seconds[name] ?? 0, tokens[name]);
  return slow && fast ? slow / fast : null;
}

/** @param {Round[]} rounds */
const written = (rounds) => sum(rounds, (round) => round.emitted.length);

// Seconds of the prefill; of a watched server, until its first token.
/** @type {(name: LaneName, rounds: Round[], header?: Header) => number} */
function prefillOf(name, rounds, header) {
  if (readsPrompt(rounds[0])) return rounds[0].wall ?? 0;
  return sum(Object.values(header?.prefill_seconds?.[name] ?? {}), (value) => value);
}

/**
 * Expected tokens per round if acceptances were independent (Leviathan et al. 2022, eq. 1).
 * @type {(alpha: number, gamma: number) => number}
 */
export function predictedTau(alpha, gamma) {
  return alpha === 1 ? gamma + 1 : (1 - alpha ** (gamma + 1)) / (1 - alpha);
}

/** The last rounds may draft fewer than the others. @type {(rounds: Round[]) => Lengths} */
export function draftLengths(rounds) {
  const lengths = new Map();
  for (const { drafted: { length } } of rounds) lengths.set(length, (lengths.get(length) ?? 0) + 1);
  return lengths;
}

/** @type {(lengths: Lengths, alpha: number | null) => number | null} */
function meanPredictedTau(lengths, alpha) {
  if (alpha === null) return null;
  const entries = [...lengths];
  return ratio(sum(entries, ([length, count]) => predictedTau(alpha, length) * count),
    sum(entries, ([, count]) => count));
}

/** @type {(rounds: Round[], alpha: number | null, c: number | null) => number | null} */
function meanPredictedSpeedup(rounds, alpha, c) {
  if (alpha === null || c === null) return null;
  return ratio(sum(rounds, ({ drafted }) => predictedTau(alpha, drafted.length)),
    sum(rounds, ({ drafted }) => drafted.length * c + 1));
}

/** Count the drafts that were judged and accepted at each position of a round. @param {Round[]} rounds */
function positions(rounds) {
  const judged = /** @type {number[]} */ ([]);
  const accepted = /** @type {number[]} */ ([]);
  for (const { drafted } of rounds) {
    drafted.forEach((token, position) => {
      judged[position] = (judged[position] ?? 0) + Number(token.outcome !== "ignored");
      accepted[position] = (accepted[position] ?? 0) + Number(token.outcome === "accepted");
    });
  }
  return { judged, accepted };
}

/**
 * The points of every chart, as specviz/runs/series.py gives them.
 * @param {Round[]} rounds
 * @param {LaneName[]} [names]  the baseline last
 * @returns {Record<string, Points[]>}
 */
export function series(rounds, names = [WITH_DRAFTS, ALONE]) {
  const lists = names.map((name) => lane(rounds, name));
  const draftedLists = lists.filter((_, i) => names[i] !== ALONE);
  const rates = draftedLists.map(soFar);
  const isOne = draftedLists.length === 1; // else only the first line of each lane
  /** @type {("draft_seconds" | "verify_seconds" | "overhead_seconds")[]} */
  const allParts = ["draft_seconds", "verify_seconds", "overhead_seconds"];
  // The time of a server's step has no known parts.
  const parts = rounds.some(readsPrompt) ? allParts.slice(-1) : allParts;
  const upwards = [...lists].reverse();
  const labels = [...names].reverse().map(labelOf);
  return {
    tokens: lists.map(progress),
    rates: isOne ? rates[0].rates : rates.map((lines) => lines.rates[0]),
    tau: isOne ? rates[0].tau : rates.map((lines) => lines.tau[0]),
    speed: lists.map(pace),
    parts: parts.map((part) => ({
      x: upwards.map((list) => (list.length ? 1000 * sum(list, (r) => r[part]) / list.length : 0)),
      y: labels,
    })),
    positions: draftedLists.map(byPosition),
    requests: lists.map(requests),
  };
}

/** @param {Round[]} rounds */
function requests(rounds) {
  const requested = rounds.filter((round) => round.exchanged);
  return {
    x: requested.map(({ exchanged = 0 }) => exchanged / 1000),
    y: requested.map((round) => 1000 * round.verify_seconds),
  };
}

/** @param {Round[]} rounds */
function progress(rounds) {
  const x = [0];
  const y = [0];
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

/** Rates and tau after each round. @param {Round[]} rounds */
function soFar(rounds) {
  /** @type {Lengths} */
  const lengths = new Map();
  const isReported = reportsDrafts(rounds);
  let accepted = 0;
  let judged = 0;
  let drafted = 0;
  let emitted = 0;
  const points = timed(rounds).map((round, i) => {
    const { length } = round.drafted;
    lengths.set(length, (lengths.get(length) ?? 0) + 1);
    accepted += round.drafted.filter(({ outcome }) => outcome === "accepted").length;
    judged += round.drafted.filter(({ outcome }) => outcome !== "ignored").length;
    drafted += length;
    emitted += round.emitted.length;
    const alpha = isReported ? ratio(accepted, judged) : null;
    const efficiency = isReported ? ratio(accepted, drafted) : null;
    const predicted = meanPredictedTau(lengths, alpha);
    return { x: i + 1, alpha, efficiency, tau: emitted / (i + 1), predicted };
  });
  const line = (/** @type {"alpha" | "efficiency" | "tau" | "predicted"} */ name) =>
    ({ x: points.map(({ x }) => x), y: points.map((point) => point[name]) });
  return { rates: [line("alpha"), line("efficiency")], tau: [line("tau"), line("predicted")] };
}

/** @param {Round[]} rounds */
function byPosition(rounds) {
  const { judged, accepted } = positions(reportsDrafts(rounds) ? rounds : []);
  const places = judged.map((count, position) => [position, count]).filter(([, count]) => count);
  return {
    x: places.map(([position]) => position + 1),
    y: places.map(([position, count]) => accepted[position] / count),
  };
}
