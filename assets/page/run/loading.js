// The page's own pair while the server loads it: what, how much, how far, and whose recording plays.

import { pause } from "specviz/dom/dom.js";
import { pairBeside } from "specviz/run/controls.js";

const EVERY = 1000; // ms between questions

export class Loading {
  #page;

  /** @param {Needs<"server" | "config" | "notice" | "session">} page */
  constructor(page) {
    this.#page = page;
  }

  /**
   * Tell how far it is, until it is over.
   * @param {boolean} isNew  whether the page has this pair only now, so that its end is told in any case
   */
  async watch(isNew) {
    const { notice } = this.#page;
    let state = await this.#asked();
    let wasTold = isNew;
    while (state && !state.over) {
      wasTold = true;
      const isTold = this.#page.session.pending !== null; // in the lanes, with the run that waits for it
      notice.setBackground(isTold ? "" : `${state.said} ${this.#meanwhile()}`.trim());
      await pause(EVERY);
      state = await this.#asked();
    }
    notice.setBackground("");
    if (state?.error) notice.show(state.error, true);
    else if (state && wasTold && !this.#page.session.busy) {
      notice.mention(`${state.title} is ready: press Run.`);
    }
  }

  /** The state of the load by the server; null without one, or without an answer. */
  async #asked() {
    return (await this.#page.server.loading?.({}).catch(() => null)) ?? null;
  }

  /** Whose recording is seen, if one is: another pair's is never taken for this one's. */
  #meanwhile() {
    const { config, session } = this.#page;
    const { header } = session.trace ?? {};
    if (!header || session.source !== "recording") return "";
    return `Meanwhile a recording of ${pairBeside(header, config)}.`;
  }
}
