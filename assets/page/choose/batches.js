// Larger batches: what `bench --batch` measured, from a file.

import { element, find } from "specviz/dom/dom.js";
import { Figures } from "specviz/choose/figures.js";

const NOT_SENT = "The file did not reach the server; try again.";
const WHAT = "Speculation pays while a pass over one text leaves the machine idle. With more texts in a pass, "
  + "judging guesses costs as much as writing tokens. This command measures where that is here:";
const COMMAND = "python -m specviz bench --batch 1 2 4 8 16 --out batches.json";

export class Batches {
  node = element("details", "sc-batches");
  #server;
  #most;
  #figures;
  #said = element("p");

  /**
   * @param {Server} server
   * @param {ChooseConfig} config
   * @param {() => boolean} isVisible
   */
  constructor(server, config, isVisible) {
    this.#server = server;
    this.#most = config.mostFile;
    this.#figures = new Figures(config, () => isVisible() && this.node.open);
    this.node.hidden = !server.read_batches;
    this.node.innerHTML = `<summary>Larger batches</summary><p></p><pre tabindex="0"></pre>
      <p class="sc-actions"><button type="button" class="sc-copy">Open its file…</button><input type="file" accept=".json,application/json" aria-label="File of batches" hidden></p>`;
    find(this.node, "p").textContent = WHAT;
    find(this.node, "pre").textContent = COMMAND;
    this.#said.setAttribute("role", "status");
    this.node.append(this.#said, this.#figures.node);
    const input = find(this.node, "input", HTMLInputElement);
    find(this.node, "button").addEventListener("click", () => input.click());
    input.addEventListener("change", () => this.#open(input));
  }

  /** @param {HTMLInputElement} input */
  async #open(input) {
    const file = input.files?.[0];
    input.value = ""; // so that the same file can be chosen again
    if (!file) return;
    if (file.size > this.#most) {
      this.#said.textContent = "This file is too large to be a measurement of batches.";
      return;
    }
    try {
      const read = await this.#server.read_batches?.(file);
      this.#said.textContent = read?.error ?? read?.verdict ?? NOT_SENT;
      this.#figures.show(read?.figures ?? null);
    } catch {
      this.#said.textContent = NOT_SENT;
    }
  }
}
