// Which runs are compared, and what they are called: a recording of the page is never taken for a
// run that the visitor made.

import { FROM_FILE } from "specviz/words/words.js";

/** origin: what the badge of a run says of it. @typedef {{ trace: Trace, origin: string }} Run */

const KEPT = 4; // of each kind: one that failed before its first round is passed over

/** @param {Run} run */
const isOwn = ({ origin }) => origin.startsWith("LIVE") || origin.includes(FROM_FILE);

/** The runs that are worth keeping, in their order. @param {Run[]} runs */
export function newest(runs) {
  const own = runs.filter(isOwn).slice(-KEPT);
  const others = runs.filter((run) => !isOwn(run)).slice(-KEPT);
  return runs.filter((run) => own.includes(run) || others.includes(run));
}

/**
 * A visitor's last two runs with their names, or the only one beside the last recording, or two
 * recordings; null if there are no two.
 * @param {Run[]} runs the newest last
 * @returns {{ name: string, run: Run }[] | null}
 */
export function lastTwo(runs) {
  const begun = runs.filter(({ trace }) => trace.rounds.length);
  const own = begun.filter(isOwn);
  const recorded = begun.filter((run) => !isOwn(run));
  const named = (/** @type {[string, Run | undefined][]} */ pairs) =>
    pairs.map(([name, run]) => ({ name, run: /** @type {Run} */ (run) }));
  if (own.length > 1) return named([["Your earlier run", own.at(-2)], ["Your latest run", own.at(-1)]]);
  if (own.length && recorded.length) return named([["Recording", recorded.at(-1)], ["Your run", own[0]]]);
  if (recorded.length < 2) return null;
  return named([["Earlier recording", recorded.at(-2)], ["Latest recording", recorded.at(-1)]]);
}
