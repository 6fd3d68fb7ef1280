// What is said of a pair that is not on this machine yet, and of its fetch.

/** Bytes as people read them. @param {number} count */
function size(count) {
  if (count >= 1e9) return `${(count / 1e9).toFixed(1)} GB`;
  return count >= 1e6 ? `${Math.round(count / 1e6)} MB` : `${Math.ceil(count / 1e3)} kB`;
}

/** A time that was estimated. @param {number} seconds */
const about = (seconds) =>
  (seconds < 90 ? `about ${Math.max(1, Math.round(seconds))} s` : `about ${Math.round(seconds / 60)} min`);

/** How much of it is here, 0 to 1. @param {Pick<FetchState, "bytes" | "done">} state */
export const fetchedShare = ({ bytes, done }) => (bytes ? Math.min(1, done / bytes) : 0);

/**
 * What the pair is, whose runs the page makes meanwhile, and what the button says.
 * @type {(state: FetchState, isRecording: boolean) => { about: string, beside: string, button: string }}
 */
export function offerWords({ title, running, bytes, done, left, state, mayFetch }, isRecording) {
  const here = mayFetch ? "on this machine" : "here";
  const recording = isRecording ? "This is a recording of it. " : "";
  const time = left === null ? "" : `, ${about(left)}`;
  const verb = { failed: "Try again", stopped: "Go on" }[String(state)] ?? (done ? "Go on" : "Get this pair");
  return {
    about: `${title}: not ${here} yet.`,
    beside: `${recording}Run races ${running}.`,
    button: `${verb}: ${size(bytes - done)}${time}`,
  };
}

/** How far the fetch is, or why it ended. @param {FetchState} state */
export function fetchedWords({ state, bytes, done, step, elapsed, left, error }) {
  const far = `${size(done)} of ${size(bytes)}`;
  if (state === "failed") return error ?? "The fetch failed.";
  if (state === "stopped") return `Stopped. ${far} came and stays.`;
  if (state !== "running") return done ? `${far} came before.` : "";
  const doing = step ? `${step[0].toUpperCase()}${step.slice(1)}` : "Fetching";
  const time = left === null ? "" : ` · ${about(left)} left`;
  return `${doing} · ${far} · ${Math.floor(elapsed ?? 0)} s elapsed${time}`;
}
