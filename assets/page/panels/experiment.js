// The sampling experiment: begins it on the server, asks how far it is, shows what it found.

import { element } from "specviz/dom/dom.js";
import { lastState, NO_ANSWER } from "specviz/dom/polling.js";
import { resultOf } from "specviz/panels/same.js";

const OFFLINE = "This experiment needs the models, so it is not part of a page that was taken away.";
const BUSY = "Wait for the run to end: the experiment must not disturb it.";

/**
 * @typedef {object} ExperimentParts
 * @property {Server} server
 * @property {number} draws  in each lane
 * @property {() => Pick<SamplingWish, "run" | "prompt" | "settings"> | null} asked  what to draw
 * @property {() => boolean} isBusy  whether a run is under way
 */

export class Experiment {
  node = element("div", "sv-experiment");
  #parts;
  #label;
  #button;
  #bar = element("progress");
  #said = element("p");
  #result = element("div");
  /** @type {string | null} */
  #id = null; // "" until the server has given it one; null while nothing is drawn
  #again = 0; // experiments with this run so far
  #turn = 0; // tells answers to an experiment that was given up

  /** @param {ExperimentParts} parts */
  constructor(parts) {
    this.#parts = parts;
    this.#label = `Draw ${parts.draws} in each lane`;
    this.#button = element("button", "sv-button", this.#label);
    this.#button.type = "button";
    this.#button.hidden = !parts.server.begin_sampling;
    this.#button.addEventListener("click", () => (this.#id === null ? this.#begin() : this.end()));
    this.#bar.hidden = true;
    this.#said.setAttribute("role", "status");
    this.#said.textContent = this.#hint();
    this.node.append(this.#button, this.#bar, this.#said, this.#result);
  }

  end() {
    if (this.#id) this.#parts.server.end_job?.({ id: this.#id }).catch(() => {});
    this.#turn += 1;
    if (this.#id !== null) this.#finish({ over: true, stopped: true });
  }

  /** Another run is shown: what was drawn for the one before says nothing about it. */
  forget() {
    this.end();
    this.#again = 0;
    this.#button.textContent = this.#label;
    this.#said.textContent = this.#hint();
    this.#result.replaceChildren();
  }

  #hint() {
    return this.#parts.server.begin_sampling ? "" : OFFLINE;
  }

  async #begin() {
    const wish = this.#parts.asked();
    if (!wish) return;
    if (this.#parts.isBusy()) {
      this.#said.textContent = BUSY;
      return;
    }
    this.#turn += 1;
    this.#id = "";
    this.#result.replaceChildren();
    this.#show({ over: false, status: "Asking for the models." });
    const turn = this.#turn;
    try {
      await this.#draw(wish, turn);
    } catch {
      if (turn === this.#turn) this.#finish({ over: true, error: NO_ANSWER });
    }
  }

  /**
   * @param {Pick<SamplingWish, "run" | "prompt" | "settings">} wish
   * @param {number} turn
   */
  async #draw(wish, turn) {
    const { server, draws } = this.#parts;
    const begun = server.begin_sampling?.({ ...wish, again: this.#again, draws });
    this.#again += 1;
    const state = await lastState(server, begun, () => turn === this.#turn, (one) => {
      this.#id = one.id ?? "";
      this.#show(one);
    });
    if (state) this.#finish(state);
  }

  /** @param {ExperimentState} state */
  #show({ done = 0, draws = 1, status = "" }) {
    this.#button.textContent = "Stop drawing";
    this.#bar.hidden = false;
    this.#bar.max = draws;
    this.#bar.value = done;
    this.#said.textContent = done ? `${done} of ${draws} draws in each lane` : status;
  }

  /** @param {ExperimentState} state */
  #finish({ error, stopped, result, draws = 0 }) {
    this.#id = null;
    this.#bar.hidden = true;
    this.#button.textContent = this.#again ? "Draw again" : this.#label;
    this.#said.textContent = error ?? (stopped ? "Stopped before it could tell." : "");
    if (result) this.#result.replaceChildren(resultOf(result, draws));
  }
}
