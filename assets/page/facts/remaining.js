// How long a run that goes on will still take, from what its lanes have needed per token so far.

import { ALONE, draftedLanes, lanesOf } from "specviz/facts/lanes.js";
import { secondsOf } from "specviz/facts/uncertainty.js";

const FEWEST_ROUNDS = 3; // of a lane, from which its pace is known
const BEHIND = 4; // rounds that a lane's clock may be behind another's: one that is further behind has ended

/**
 * Seconds until the last lane is done if every lane writes as many tokens as it may, and seconds that the
 * lanes have taken until now; they take turns on one machine, so both are sums over lanes. Null while too
 * little is known. A text may end earlier.
 * @param {Pick<Trace, "header" | "rounds">} trace
 * @returns {{ taken: number, left: number } | null}
 */
export function remaining({ header, rounds }) {
  if (header.source) return null; // a server's lanes run side by side
  let taken = 0;
  let left = 0;
  const lanes = lanesOf(header).map((name) => ({ name, own: rounds.filter(({ lane }) => lane === name) }));
  if (lanes.some(({ own }) => own.length < FEWEST_ROUNDS)) return null;
  const newest = Math.max(...lanes.map(({ own }) => own[own.length - 1].clock));
  for (const { name, own } of lanes) {
    const { clock } = own[own.length - 1];
    const tokens = own.reduce((sum, { emitted }) => sum + emitted.length, 0);
    const settings = header.lanes[name === ALONE ? draftedLanes(header)[0] : name];
    const longest = Math.max(...own.map(secondsOf));
    const hasEnded = newest - clock > BEHIND * longest;
    taken += clock;
    if (!hasEnded) left += (Math.max(0, settings.max_new_tokens - tokens) * clock) / Math.max(1, tokens);
  }
  return { taken, left };
}
