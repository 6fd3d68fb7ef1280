// Both lanes' tokens against their clocks, as lines between round numbers: what charts that the
// page draws itself have in common.

import { series } from "./metrics.js";

/** @typedef {{ x: number, y: number }} Point */

/**
 * The lane whose figures stand for a run: with several lanes that draft, the first of them.
 * @param {Header} header
 */
export function firstLane(header) {
  return Object.keys("lanes" in header && header.lanes ? header.lanes : {})[0] ?? "speculative";
}

/**
 * A run as a race of two: the lane that stands for it, under the name of one that drafts, and the
 * target alone.
 * @param {Trace} trace
 * @returns {Trace}
 */
export function raceOfTwo(trace) {
  const first = firstLane(trace.header);
  const rounds = trace.rounds.filter(({ lane }) => lane === "baseline" || lane === first)
    .map((round) => (round.lane === "baseline" ? round : { ...round, lane: /** @type {LaneName} */ ("speculative") }));
  return { ...trace, rounds };
}

/**
 * Tokens against seconds: of draft and target, then of the target alone.
 * @param {Round[]} rounds
 * @returns {Point[][]}
 */
export function curves(rounds) {
  return series(rounds).tokens.map(({ x, y }) => x.map((at, i) => ({ x: Number(at), y: Number(y[i]) })));
}

/**
 * Where lines end: the greatest x and y of all of them, neither of them zero.
 * @param {Point[][]} lines
 * @returns {Point}
 */
export function ends(lines) {
  const all = lines.flat();
  return {
    x: all.reduce((most, { x }) => Math.max(most, x), 0) || 1,
    y: all.reduce((most, { y }) => Math.max(most, y), 0) || 1,
  };
}

/**
 * Round numbers from 0 up to `most`, about `count` of them.
 * @param {number} most
 * @param {number} count
 */
export function ticks(most, count) {
  const rough = most / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((times) => times * power >= rough) ?? 10);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}
