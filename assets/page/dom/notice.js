// The line that tells a visitor what happens, what went wrong, and what may be of interest.

const MENTIONED_FOR = 8000; // ms

export class Notice {
  #node;
  #hiding = 0; // timer

  /** @param {HTMLElement} node */
  constructor(node) {
    this.#node = node;
  }

  /** @type {(text: string, isError?: boolean) => void} */
  show(text, isError = false) {
    clearTimeout(this.#hiding);
    this.#node.textContent = text;
    this.#node.hidden = !text;
    this.#node.classList.toggle("is-error", isError);
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
