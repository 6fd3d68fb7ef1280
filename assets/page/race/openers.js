// The buttons that open a panel of the drawer; the panels are fetched when somebody opens the first.

import { findAll } from "specviz/dom/dom.js";
import { hasBaseline } from "specviz/facts/lanes.js";

/** @import { Panels } from "specviz/panels/panels.js" */

/** What is shown: of a race of two, or of one lane of another. @typedef {[Round[], Trace, LaneName]} Shown */

export class Openers {
  #buttons;
  #fetch;
  /** @type {Promise<Panels> | null} */
  #coming = null;
  /** @type {Panels | null} */
  #panels = null;
  /** @type {string | null} */
  #open = null;
  /** @type {Shown | null} */
  #shown = null;

  /**
   * @param {HTMLElement} root
   * @param {(closed: () => void) => Promise<Panels>} fetch  closed: to be called by a panel that is closed
   */
  constructor(root, fetch) {
    this.#fetch = fetch;
    this.#buttons = findAll(root, "[data-panel-open]", HTMLButtonElement);
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
    for (const button of this.#buttons) button.hidden = !rounds.length || !canOpen(button.dataset.panelOpen, trace);
    this.#panels?.show(...shown);
  }

  /** @param {string} name */
  async #openPanel(name) {
    this.#coming ??= this.#fetch(() => this.#mark(null));
    this.#panels = await this.#coming;
    if (this.#shown) this.#panels.show(...this.#shown);
    this.#panels.open(name);
    this.#mark(name);
  }

  /** @param {string | null} open */
  #mark(open) {
    const closed = open === null ? this.#buttons.find((button) => button.dataset.panelOpen === this.#open) : null;
    this.#open = open;
    for (const button of this.#buttons) button.setAttribute("aria-expanded", String(button.dataset.panelOpen === open));
    if (closed && (document.activeElement === document.body || document.activeElement?.closest(".sv-drawer"))) closed.focus();
  }
}

/**
 * Whether a run has what a panel is about: a watched server shows no costs and draws nothing anew.
 * @param {string | undefined} name
 * @param {Trace} trace
 */
const canOpen = (name, { header }) =>
  !header.source || (name === "same" && header.settings.temperature === 0 && hasBaseline(header));
