// The buttons that open a panel of the drawer; the panels are fetched when somebody opens the first.

import { findAll, once } from "specviz/dom/dom.js";
import { hasBaseline } from "specviz/facts/lanes.js";

/** What is shown: of a race of two, or of one lane of another. @typedef {[Round[], Trace, LaneName]} Shown */

export class Openers {
  #buttons;
  #fetched;
  #panels = /** @type {Panels | null} */ (null);
  #open = /** @type {string | null} */ (null);
  #shown = /** @type {Shown | null} */ (null);

  /** @param {PageParts} page */
  constructor(page) {
    this.#fetched = once(async () =>
      new (await import("specviz/panels/panels.js")).Panels(page, () => this.#mark(null)));
    this.#buttons = findAll(page.root, "[data-panel-open]", HTMLButtonElement);
    for (const button of this.#buttons) {
      const name = button.dataset.panelOpen ?? "";
      button.addEventListener("click", () => (this.#open === name ? this.close() : this.#openPanel(name)));
    }
  }

  /** Whether one was open. */
  close() {
    return this.#panels?.close() ?? false;
  }

  /** @param {Shown} shown */
  show(...shown) {
    const [rounds, trace] = shown;
    this.#shown = shown;
    for (const button of this.#buttons) {
      button.hidden = !rounds.length || !canOpen(button.dataset.panelOpen, trace);
    }
    this.#panels?.show(...shown);
  }

  /** @param {string} name */
  async #openPanel(name) {
    this.#panels = await this.#fetched();
    if (this.#shown) this.#panels.show(...this.#shown);
    this.#panels.open(name);
    this.#mark(name);
  }

  /** @param {string | null} open */
  #mark(open) {
    const opener = this.#buttons.find((button) => button.dataset.panelOpen === this.#open);
    this.#open = open;
    for (const button of this.#buttons) {
      button.setAttribute("aria-expanded", String(button.dataset.panelOpen === open));
    }
    if (open !== null) return;
    // What had the focus is gone, or goes with the drawer.
    const focused = document.activeElement;
    if (focused === document.body || focused?.closest(".sv-drawer")) opener?.focus();
  }
}

// Whether a run has what a panel is about: a watched server shows no costs and draws nothing anew.
/** @type {(name: string | undefined, trace: Trace) => boolean} */
const canOpen = (name, { header }) =>
  !header.source || (name === "same" && header.settings.temperature === 0 && hasBaseline(header));
