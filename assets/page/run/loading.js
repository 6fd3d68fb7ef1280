// The page's own pair while the server loads it: its name, size and progress, and whose recording plays.

import { pause } from "specviz/dom/dom.js";
import { pairBeside } from "specviz/run/controls.js";

const EVERY = 1000; // ms between requests

export class Loading {
  #page;

  /** @param {Needs<"server" | "config" | "notice" | "shownRun">} page */
  constructor(page) {
    this.#page = page;
  }

  /**
   * Show the progress until the load is over.
   * @param {boolean} isNew  whether the pair has just been fetched, so that its end is always announced
   */
  async watch(isNew) {
    const { notice } = this.#page;
    let state = await this.#asked();
    let wasShown = isNew;
    while (state && !state.over) {
      wasShown = true;
      const isInLanes = this.#page.shownRun.pending !== null; // with the run that waits for it
      notice.setBackground(isInLanes ? "" : `${state.said} ${this.#meanwhile()}`.trim());
      await pause(EVERY);
      state = await this.#asked();
    }
    notice.setBackground("");
    if (state?.error) notice.show(state.error, true);
    else if (state && wasShown && !this.#page.shownRun.busy) {
      notice.mention(`${state.title} is ready: press Run.`);
    }
  }

  /** The state of the load from the server; null without a server or an answer. */
  async #asked() {
    return (await this.#page.server.loading?.({}).catch(() => null)) ?? null;
  }

  /** The pair of the shown recording, so that it is not mistaken for the page's own. */
  #meanwhile() {
    const { config, shownRun } = this.#page;
    const { header } = shownRun.trace ?? {};
    if (!header || shownRun.source !== "recording") return "";
    return `Meanwhile a recording of ${pairBeside(header, config)}.`;
  }
}
