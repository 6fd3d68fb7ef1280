// The entry of the menu "Take away" that records a film: how far it is, and how to cancel it.

import { element } from "specviz/dom/dom.js";
import { filmOf, filmType } from "specviz/share/film.js";
import { fileStem, saveBlob } from "specviz/run/recordings.js";

const CANNOT = "This browser cannot record a film of a page: use a current Chromium or Firefox, or take the picture.";
const FAILED = "The browser could not record the film; try again, or take the picture.";

/**
 * @param {() => Trace | null} trace the shown one
 * @param {(sentence: string) => void} fail told why there is no film
 */
export function filmItem(trace, fail) {
  const start = element("button", "", "Short film (.webm)", { dataset: { take: "film" } }), cancel = element("button", "", "Cancel");
  const bar = element("progress", "", { "aria-label": "Recording of the film" });
  const row = element("div", "sv-film-row", { hidden: true }, element("span", "", "recording, 12 s"), bar, cancel);
  start.addEventListener("click", async () => {
    const run = trace();
    if (!run) return;
    if (!filmType()) {
      fail(CANNOT);
      return;
    }
    const stop = new AbortController(), giveUp = () => stop.abort();
    cancel.addEventListener("click", giveUp);
    start.hidden = true;
    row.hidden = false;
    bar.value = 0;
    cancel.focus({ preventScroll: true });
    try {
      const film = await filmOf(run, { signal: stop.signal, progress: (share) => { bar.value = share; } });
      if (film) saveBlob(film, `${fileStem(run.header)}.${film.type.endsWith("mp4") ? "mp4" : "webm"}`);
    } catch (error) {
      console.info("specviz: no film:", error);
      fail(FAILED);
    }
    const hadFocus = row.contains(document.activeElement);
    row.hidden = true;
    start.hidden = false;
    if (hadFocus) start.focus({ preventScroll: true });
    cancel.removeEventListener("click", giveUp);
  });
  return element("div", "sv-film", start, row);
}
