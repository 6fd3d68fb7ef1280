// A requested run that has not begun: lanes without a token that show its prompt, its state and the waiting
// time.

import { element, find } from "specviz/dom/dom.js";
import { waitingTime } from "specviz/words/moment.js";

const TICK = 500; // ms

export class Pending {
  #root;
  #grid;
  #ticking = 0; // timer
  #shown = /** @type {PendingRun | null} */ (null);
  /** One for each lane. @type {{ status: HTMLElement, time: HTMLElement }[]} */
  #nodes = [];

  /**
   * @param {HTMLElement} root
   * @param {import("specviz/race/lane-grid.js").LaneGrid} grid
   */
  constructor(root, grid) {
    this.#root = root;
    this.#grid = grid;
  }

  /** Show this run, or update its state. @param {PendingRun} pending */
  show(pending) {
    if (!this.#shown) this.#begin(pending);
    this.#shown = pending;
    for (const { status } of this.#nodes) {
      if (status.textContent !== pending.status) status.textContent = pending.status;
    }
    this.#tick();
  }

  /** Remove it: the run has begun, or will not begin. */
  end() {
    clearInterval(this.#ticking);
    this.#shown = null;
    this.#nodes = [];
    this.#root.removeAttribute("data-pending");
    find(this.#root, ".sv-transport").inert = false;
  }

  /** @param {PendingRun} pending */
  #begin({ prompt }) {
    this.#root.setAttribute("data-pending", "");
    find(this.#root, ".sv-transport").inert = true;
    this.#grid.arrange();
    this.#nodes = this.#grid.lanes.map((lane, i) => {
      const attributes = i ? { "aria-hidden": "true" } : { role: "status" }; // is read once, without the time
      const status = element("p", "sv-phase", { dataset: { phase: "" } }, attributes);
      const time = element("p", "sv-waiting-time", { "aria-hidden": "true" });
      lane.empty(element("div", "sv-pending", element("p", "sv-given", prompt), status, time));
      return { status, time };
    });
    clearInterval(this.#ticking);
    this.#ticking = setInterval(() => this.#tick(), TICK);
  }

  #tick() {
    if (!this.#shown) return;
    const text = waitingTime(this.#shown, performance.now());
    for (const { time } of this.#nodes) if (time.textContent !== text) time.textContent = text;
  }
}
