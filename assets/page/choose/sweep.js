// A sweep on the server: starts it, polls its progress, ends it, and stores its results in this tab, so that
// a reloaded page continues with it.

import { pause } from "specviz/dom/dom.js";
import { keep, kept, SWEEP } from "specviz/dom/kept.js";

const ASK_EVERY = 500; // ms
const PATIENCE = 20; // failed requests in a row after which the server counts as lost
const OWN = "This file or text is empty, or too large to be sent.";
const LOST = "The connection to the server was lost, which ended the sweep. Its results so far are kept.";
const ASKING = "Waiting for the models.";
const NO_ANSWER = "The server did not answer: try again.";

export class Sweep {
  state = /** @type {SweepState | null} */ (null);
  #server;
  #changed;
  #turn = 0; // identifies answers to an earlier sweep

  /**
   * @param {Server} server
   * @param {() => void} changed  called when the state changes
   */
  constructor(server, changed) {
    this.#server = server;
    this.#changed = changed;
    addEventListener("pagehide", () => this.#keep());
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.#keep(); });
  }

  get isUnderWay() {
    return this.state !== null && !this.state.over;
  }

  /** Continue the sweep that this tab has stored. */
  resume() {
    /** @type {SweepState | null} */
    const state = kept(SWEEP);
    if (!state?.wish || !Array.isArray(state.rows)) return;
    this.state = state;
    this.#changed();
    if (!state.over && state.id) this.#follow(state.id, 0);
    else if (!state.over) this.#finish(LOST);
  }

  /** @param {SweepWish} wish */
  async begin(wish) {
    this.#turn += 1;
    const turn = this.#turn;
    this.state = { over: false, rows: [], wish, status: ASKING, beganAt: Date.now() };
    this.#changed();
    try {
      const news = await this.#server.begin_sweep?.(wish);
      if (!news) throw new Error(OWN);
      if (turn === this.#turn) this.#take(news);
      if (news.id && turn === this.#turn && !news.over) this.#follow(news.id, news.next ?? 0);
    } catch (error) {
      console.info("specviz: a sweep could not begin:", error);
      if (turn === this.#turn) this.#finish(NO_ANSWER);
    }
  }

  /** End it; its results arrive with the next answer. */
  stop() {
    const id = this.state?.id;
    if (id) this.#server.end_job?.({ id }).catch(() => {});
    else if (this.isUnderWay) { this.#turn += 1; this.#finish(""); }
  }

  /**
   * @param {string} id
   * @param {number} seq  the number of the next news
   */
  async #follow(id, seq) {
    this.#turn += 1;
    const turn = this.#turn;
    let failures = 0;
    while (this.isUnderWay && turn === this.#turn) {
      await pause(ASK_EVERY);
      try {
        const news = await this.#server.ask_job?.({ id, seq, hidden: document.hidden });
        if (!news || turn !== this.#turn) return;
        failures = 0;
        seq = news.next ?? seq;
        this.#take(news);
      } catch {
        failures += 1;
        if (failures > PATIENCE && turn === this.#turn) this.#finish(LOST);
      }
    }
  }

  /** @param {SweepNews} news */
  #take(news) {
    if (!this.state) return;
    const { rows = [], ...rest } = news;
    const isKnown = (/** @type {[string, unknown]} */ [, value]) => value !== undefined && value !== null;
    const known = Object.fromEntries(Object.entries(rest).filter(isKnown));
    const indexes = new Map(this.state.rows.map((row, i) => [row.key, i]));
    const merged = [...this.state.rows];
    for (const row of rows) {
      const index = indexes.get(row.key);
      if (index === undefined) merged.push(row); else merged[index] = row;
    }
    this.state = { ...this.state, ...known, rows: merged, over: news.over };
    // The server has forgotten the sweep: there will be no more results.
    if (news.error && !news.id) this.state.interrupted = true;
    if (news.over) this.#keep();
    this.#changed();
  }

  /** @param {string} error */
  #finish(error) {
    if (!this.state) return;
    this.state = { ...this.state, over: true, interrupted: true, error: error || null };
    this.#keep();
    this.#changed();
  }

  #keep() {
    if (this.state) keep(SWEEP, { ...this.state, wish: { ...this.state.wish, prompts: null } });
  }
}
