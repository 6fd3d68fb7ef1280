// The menu that saves the shown run and opens another.

import { closable, find, findAll } from "specviz/dom/dom.js";
import { saveTrace } from "specviz/run/recordings.js";

const NOT_SENT = "The file did not reach the server; try again.";

/**
 * @typedef {object} FileMenuParts
 * @property {Server} server
 * @property {number} most  bytes of a file that the server reads
 * @property {() => Trace | null} trace  the shown one
 * @property {(trace: Trace) => void} show  told what an opened file holds
 * @property {(sentence: string) => void} fail  told why a file cannot be opened
 */

export class FileMenu {
  /** Close the menu; whether it was open. */
  close;
  #menu;
  #parts;

  /**
   * @param {HTMLElement} root
   * @param {FileMenuParts} parts
   */
  constructor(root, parts) {
    this.#menu = find(root, "[data-file-menu]", HTMLDetailsElement);
    this.#parts = parts;
    this.close = closable(this.#menu);
    this.#menu.addEventListener("toggle", () => {
      const needRun = findAll(this.#menu, "[data-needs-run]", HTMLButtonElement);
      for (const button of needRun) button.disabled = !parts.trace();
    });
    for (const button of findAll(this.#menu, "[data-save]", HTMLButtonElement)) {
      button.addEventListener("click", () => this.#save(button.dataset.save === "packed"));
    }
    const input = find(this.#menu, "[data-open]", HTMLInputElement);
    find(this.#menu, "[data-choose]").addEventListener("click", () => input.click());
    input.addEventListener("change", () => this.#open(input));
  }

  /** @param {boolean} packed */
  #save(packed) {
    this.#menu.open = false;
    const trace = this.#parts.trace();
    if (trace) saveTrace(trace, packed);
  }

  /** @param {HTMLInputElement} input */
  async #open(input) {
    const file = input.files?.[0];
    input.value = ""; // so that the same file can be chosen again
    this.#menu.open = false;
    if (!file) return;
    const { server, most, show, fail } = this.#parts;
    try {
      const answer = await server.opened?.(file.slice(0, most + 1));
      if (answer?.trace) show(answer.trace);
      else fail(answer?.error ?? NOT_SENT);
    } catch (error) {
      console.info("specviz: a file could not be opened:", error);
      fail(NOT_SENT);
    }
  }
}
