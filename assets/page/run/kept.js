// What had arrived of a run, kept when the page is loaded anew: Gradio does so by itself once it
// has found the server again.

const KEY = "specviz-interrupted";

/**
 * While `unfinished` gives a trace, it survives the page in this tab.
 * @param {() => Trace | null} unfinished
 */
export function keepOnReload(unfinished) {
  addEventListener("pagehide", () => {
    const trace = unfinished();
    if (!trace?.rounds.length) return;
    try {
      sessionStorage.setItem(KEY, JSON.stringify(trace));
    } catch (error) {
      console.info("specviz: the run is too large to be kept:", error);
    }
  });
}

/**
 * The trace that was kept, once; null if there is none.
 * @returns {Trace | null}
 */
export function takeKept() {
  try {
    const text = sessionStorage.getItem(KEY);
    sessionStorage.removeItem(KEY);
    return text ? JSON.parse(text) : null;
  } catch {
    return null; // storage may be forbidden
  }
}
