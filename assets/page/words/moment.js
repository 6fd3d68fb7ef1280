// What is said between two runs: whose run is shown, if it is not of the prompt and the settings above it,
// and how long a run takes that has not begun.

/**
 * The shown run beside the values of the controls.
 * @typedef {object} Mismatch
 * @property {"live" | "recording"} source
 * @property {Pick<Map<string, string>, "has" | "size">} differences  where the controls say something else
 * @property {boolean} isOtherPair  whether it is of other models than those that the controls name
 * @property {boolean} isOwnPreset  whether it is the recording of the preset that the controls hold, where
 *   nobody has chosen another pair than the page's own
 * @property {boolean} isBusy  whether a live run is under way
 * @property {string} pair  whose recording it is, beside the page's own pair
 */

/**
 * What is said in large letters of a run that is not the one that the controls ask for; empty of one that
 * is. The page's own recordings may be of another pair than it runs: that is said, but they are not faded.
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
 * A run that has been asked for, and has written nothing yet.
 * @typedef {object} PendingRun
 * @property {string} prompt
 * @property {string} phase  a sentence about what goes on
 * @property {number} since  ms
 * @property {number | null} left  seconds until it begins, as last told; null if nobody knows
 * @property {number} toldAt  ms, when that was told
 */

/**
 * The elapsed and the remaining seconds of a wait, each with its name.
 * @type {(pending: Pick<PendingRun, "since" | "left" | "toldAt">, now: number) => string}
 */
export function waitingTime({ since, left, toldAt }, now) {
  const elapsed = `${Math.max(0, Math.floor((now - since) / 1000))} s elapsed`;
  if (left === null) return `${elapsed} · time left unknown`;
  const rest = left - (now - toldAt) / 1000;
  if (rest <= 0) return `${elapsed} · longer than usual`;
  return `${elapsed} · about ${Math.max(1, Math.ceil(rest))} s left`;
}
