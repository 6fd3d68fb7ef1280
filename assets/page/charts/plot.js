// Both lanes' tokens against their clocks, as lines between round numbers: what charts that the
// page draws itself have in common.

import { twoOf } from "specviz/facts/lanes.js";
import { fastestLane, series } from "specviz/facts/metrics.js";

/** @typedef {{ x: number, y: number }} Point */

/**
 * A run as a race of two: its fastest lane, under the name of one that drafts, and the target alone.
 * @param {Trace} trace
 * @returns {Trace}
 */
export const raceOfTwo = (trace) => twoOf(trace, fastestLane(trace.rounds, trace.header));

/**
 * Tokens against seconds: of draft and target, then of the target alone.
 * @type {(rounds: Round[]) => Point[][]}
 */
export function curves(rounds) {
  return series(rounds).tokens.map(({ x, y }) => x.map((at, i) => ({ x: Number(at), y: Number(y[i]) })));
}

/**
 * Where lines end: the greatest x and y of all of them, neither of them zero.
 * @type {(lines: Point[][]) => Point}
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
 * @type {(most: number, count: number) => number[]}
 */
export function ticks(most, count) {
  const rough = most / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((times) => times * power >= rough) ?? 10);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}

/**
 * The same with what is said at each.
 * @type {(most: number, count: number, say?: (value: number) => string) => [number, string][]}
 */
export const namedTicks = (most, count, say = String) => ticks(most, count).map((value) => [value, say(value)]);
