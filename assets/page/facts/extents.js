// How far the axes of the charts go: as far as the whole run, once it is known, so that its lines
// grow into their places and no scale moves under a viewer's eyes.

import { lanesOf } from "specviz/facts/lanes.js";
import { series } from "specviz/facts/metrics.js";

const AIR = 1.05; // above the highest point

/** @typedef {{ x: [number, number], y?: [number, number] }} Extent */

/** @type {WeakMap<Trace, Record<string, Extent>>} */
const known = new WeakMap();

/**
 * The ranges of those charts that have some, by name; none before the run is over.
 * @param {Trace | null} trace
 * @returns {Record<string, Extent>}
 */
export function extentsOf(trace) {
  if (!trace?.end || !trace.rounds.length) return {};
  const found = known.get(trace) ?? measured(trace);
  known.set(trace, found);
  return found;
}

/**
 * @param {Trace} trace
 * @returns {Record<string, Extent>}
 */
function measured({ header, rounds }) {
  const points = series(rounds, lanesOf(header));
  const most = (/** @type {string} */ name, /** @type {"x" | "y"} */ axis) =>
    points[name].flatMap((line) => line[axis]).reduce((/** @type {number} */ top, value) => Math.max(top, Number(value)), 0);
  const clock = most("tokens", "x"), last = Math.max(2, most("tau", "x"));
  return {
    tokens: { x: [0, clock], y: [0, AIR * most("tokens", "y")] },
    speed: { x: [0, clock], y: [0, AIR * most("speed", "y")] },
    rates: { x: [1, last] },
    tau: { x: [1, last], y: [0, AIR * most("tau", "y")] },
  };
}
