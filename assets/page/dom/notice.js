// The line that shows progress, errors and hints.

import { element, once } from "specviz/dom/dom.js";

const MENTIONED_FOR = 8000; // ms
const COUNTED_FROM = 3; // seconds; shorter waits show no time
const NOT_FETCHED = "A part of the page could not be fetched from the server: try again.";

export class Notice {
  #node;
  #hiding = 0; // timer
  #awaited = ""; // the kind of the shown progress
  #counting = 0; // timer
  #isFree = true; // whether there is no other sentence
  #background = ""; // the sentence that is shown while there is no other

  /** @param {HTMLElement} node */
  constructor(node) {
    this.#node = node;
  }

  /** @type {(text: string, isError?: boolean) => void} */
  show(text, isError = false) {
    clearTimeout(this.#hiding);
    clearInterval(this.#counting);
    this.#awaited = "";
    this.#node.classList.remove("is-waiting");
    this.#isFree = !text;
    this.#write(text || this.#background, isError);
  }

  /** Set the lasting sentence, which shows while there is no other. @param {string} text */
  setBackground(text) {
    this.#background = text;
    if (this.#isFree) this.#write(text, false);
  }

  /** @type {(text: string, isError: boolean) => void} */
  #write(text, isError) {
    if (this.#node.textContent !== text) this.#node.textContent = text;
    this.#node.hidden = !text;
    this.#node.classList.toggle("is-error", isError);
    this.#node.classList.toggle("is-background", this.#isFree);
    this.#node.setAttribute("role", isError ? "alert" : "status");
  }

  /**
   * Show the progress notice: with a moving sign, and with the elapsed seconds.
   * @param {string} text
   */
  wait(text) {
    const kind = text.replace(/\d+/g, ""); // an estimate in the same sentence may change
    if (kind === this.#awaited && this.#node.firstChild) {
      this.#node.firstChild.textContent = text;
      return;
    }
    this.show(text);
    this.#awaited = kind;
    this.#node.classList.add("is-waiting");
    const begun = performance.now();
    const seconds = element("span", "sv-waited", { "aria-hidden": "true" }); // not for screen readers
    this.#node.append(seconds);
    this.#counting = setInterval(() => {
      const passed = Math.floor((performance.now() - begun) / 1000);
      if (passed >= COUNTED_FROM) seconds.textContent = ` ${passed} s`;
    }, 500);
  }

  clear() {
    this.show("");
  }

  /** Show a sentence that disappears after some seconds. @param {string} text */
  mention(text) {
    this.show(text);
    this.#hiding = setTimeout(() => this.clear(), MENTIONED_FOR);
  }

  /**
   * A function that fetches a part of the page at its first use, and again after a failure. A failure gives
   * null and is shown to the visitor, unless the part was only fetched ahead.
   * @template Part
   * @param {() => Promise<Part>} fetch
   * @returns {(isAhead?: boolean) => Promise<Part | null>}
   */
  fetching(fetch) {
    const fetched = once(fetch);
    return (isAhead = false) => fetched().catch((error) => {
      console.info("specviz: a part of the page could not be fetched:", error);
      if (!isAhead) this.show(NOT_FETCHED, true);
      return null;
    });
  }
}
