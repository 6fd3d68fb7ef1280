// Words about several runs: whose run is shown if it does not match the controls above it, how long a
// requested run has been waiting, and the names of the two runs that are compared.

/**
 * The shown run compared with the values of the controls.
 * @typedef {object} Mismatch

 * @property {"live" | "recording"} source
 * @property {Pick<Map<string, string>, "has" | "size">} differences  the settings whose controls differ
 * @property {boolean} isOtherPair  whether it has other models than the controls name
 * @property {boolean} isOwnPreset  whether it is the recording of the preset in the controls, and the
 *   page's own pair is chosen
 * @property {boolean} isBusy  whether a live run is under way
 * @property {string} pair  the pair of the recording, relative to the page's own pair
 */

/**
 * The large note on a run that does not match the controls; empty for one that does. The page's own
 * recordings may be of another pair than it runs: that is noted, but they are not faded.
 * @param {Mismatch} shown
 * @returns {{ text: string, isFaded: boolean }}
 */
export function mismatchOf({ source, differences, isOtherPair, isOwnPreset, isBusy, pair }) {
  if (!differences.size) return { text: "", isFaded: false };
  const run = source === "recording" ? "Recording" : "Run";
  if (isOwnPreset && differences.has("target")) return { text: `${run} of ${pair}.`, isFaded: false };
  const action = isBusy ? "is under way." : "press Run.";
  const joined = isBusy ? " " : ": ";
  if (differences.has("prompt")) return { text: `${run} of another prompt${joined}${action}`, isFaded: true };
  if (isOtherPair) return { text: `${run} of another pair${joined}${action}`, isFaded: true };
  return { text: `${run} with other settings${joined}${action}`, isFaded: true };
}

/**
 * A requested run that has not written a token yet.
 * @typedef {object} PendingRun
 * @property {string} prompt
 * @property {string} status  a sentence
 * @property {number} since  ms
 * @property {number | null} left  the latest estimate of the seconds until it begins; null if unknown
 * @property {number} estimatedAt  ms, the time of that estimate
 */

/**
 * The elapsed and the remaining seconds of a wait, in words.
 * @type {(pending: Pick<PendingRun, "since" | "left" | "estimatedAt">, now: number) => string}
 */
export function waitingTime({ since, left, estimatedAt }, now) {
  const elapsed = `${Math.max(0, Math.floor((now - since) / 1000))} s elapsed`;
  if (left === null) return `${elapsed} · time left unknown`;
  const rest = left - (now - estimatedAt) / 1000;
  if (rest <= 0) return `${elapsed} · longer than usual`;
  return `${elapsed} · about ${Math.max(1, Math.ceil(rest))} s left`;
}

/**
 * A run that was shown.
 * @typedef {object} Run
 * @property {Trace} trace
 * @property {string} origin  the words of its badge
 * @property {boolean} isVisitors  whether it is the visitor's, not a recording of the page
 */

const MAX_KEPT = 4; // runs of each kind; one that failed before its first round is skipped

/** The newest runs of each kind, in their order. @param {Run[]} runs */
export function newest(runs) {
  const visitorsRuns = runs.filter((run) => run.isVisitors).slice(-MAX_KEPT);
  const recordings = runs.filter((run) => !run.isVisitors).slice(-MAX_KEPT);
  return runs.filter((run) => visitorsRuns.includes(run) || recordings.includes(run));
}

/**
 * A visitor's last two runs with their names, or the only one and the last recording, or two recordings;
 * null if there are fewer than two.
 * @param {Run[]} runs the newest last
 * @returns {{ name: string, run: Run }[] | null}
 */
export function lastTwo(runs) {
  const begun = runs.filter(({ trace }) => trace.rounds.length);
  const visitorsRuns = begun.filter((run) => run.isVisitors);
  const recorded = begun.filter((run) => !run.isVisitors);
  const named = (/** @type {[string, Run | undefined][]} */ pairs) =>
    pairs.map(([name, run]) => ({ name, run: /** @type {Run} */ (run) }));
  if (visitorsRuns.length > 1) {
    return named([["Your earlier run", visitorsRuns.at(-2)], ["Your latest run", visitorsRuns.at(-1)]]);
  }
  if (visitorsRuns.length && recorded.length) {
    return named([["Recording", recorded.at(-1)], ["Your run", visitorsRuns[0]]]);
  }
  if (recorded.length < 2) return null;
  return named([["Earlier recording", recorded.at(-2)], ["Latest recording", recorded.at(-1)]]);
}
