// The line that tells a visitor what happens, what went wrong, and what may be of interest.

const MENTIONED_FOR = 8000; // ms

export class Notice {
  #node;
  #hiding = 0; // timer
  #isFree = true; // whether there is nothing else to say
  #background = ""; // what is said where there is nothing else to say

  /** @param {HTMLElement} node */
  constructor(node) {
    this.#node = node;
  }

  /** @type {(text: string, isError?: boolean) => void} */
  show(text, isError = false) {
    clearTimeout(this.#hiding);
    this.#isFree = !text;
    this.#write(text || this.#background, isError);
  }

  /** What lasts, and is said while there is nothing else to say. @param {string} text */
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

  clear() {
    this.show("");
  }

  /** What need not be read to go on disappears by itself. @param {string} text */
  mention(text) {
    this.show(text);
    this.#hiding = setTimeout(() => this.clear(), MENTIONED_FOR);
  }
}
