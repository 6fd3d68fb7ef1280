// Words about a pair that is not on this machine yet, and about its download.

/** Bytes as people read them. @param {number} count */
function size(count) {
  if (count >= 1e9) return `${(count / 1e9).toFixed(1)} GB`;
  if (count >= 1e6) return `${Math.round(count / 1e6)} MB`;
  return `${Math.ceil(count / 1e3)} kB`;
}

/** An estimated time in words. @param {number} seconds */
function about(seconds) {
  if (seconds < 90) return `about ${Math.max(1, Math.round(seconds))} s`;
  return `about ${Math.round(seconds / 60)} min`;
}

/** The fetched share of the pair, 0 to 1. @param {Pick<FetchState, "bytes" | "done">} state */
export const fetchedShare = ({ bytes, done }) => (bytes ? Math.min(1, done / bytes) : 0);

/**
 * The missing pair, the pair that runs meanwhile, and the label of the button.
 * @type {(state: FetchState, isRecording: boolean) => { about: string, beside: string, button: string }}
 */
export function offerWords({ title, running, bytes, done, left, state, mayFetch }, isRecording) {
  const here = mayFetch ? "on this machine" : "here";
  const recording = isRecording ? "This is a recording of it. " : "";
  const time = left === null ? "" : `, ${about(left)}`;
  let verb = "Get this pair";
  if (state === "failed") verb = "Try again";
  else if (state === "stopped" || done) verb = "Resume";
  return {
    about: `${title}: not ${here} yet.`,
    beside: `${recording}Run races ${running}.`,
    button: `${verb}: ${size(bytes - done)}${time}`,
  };
}

/** The progress of the fetch, or the reason of its end. @param {FetchState} state */
export function fetchedWords({ state, bytes, done, step, elapsed, left, error }) {
  const far = `${size(done)} of ${size(bytes)}`;
  if (state === "failed") return error ?? "The fetch failed.";
  if (state === "stopped") return `Stopped. ${far} are here and stay.`;
  if (state !== "running") return done ? `${far} are here already.` : "";
  const doing = step ? `${step[0].toUpperCase()}${step.slice(1)}` : "Fetching";
  const time = left === null ? "" : ` · ${about(left)} left`;
  return `${doing} · ${far} · ${Math.floor(elapsed ?? 0)} s elapsed${time}`;
}
