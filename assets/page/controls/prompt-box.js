// The field of the prompt: one line of the page, and with the focus as many as the prompt needs.

import { element, find } from "specviz/dom/dom.js";
import { plural } from "specviz/words/words.js";

const MAX_LINES = 5; // that are seen at once

export class PromptBox {
  #area;
  #row;
  #more = element("span", "sv-more-lines", { "aria-hidden": "true", hidden: true });
  #isPressed = false; // whether a visitor holds a pointer down

  constructor() {
    this.#row = find(document, "#prompt-row");
    this.#area = find(document, "#prompt textarea", HTMLTextAreaElement);
    const area = this.#area;
    find(document, "#prompt").append(this.#more);
    this.#more.addEventListener("click", () => area.focus());
    for (const type of ["focus", "input", "click"]) area.addEventListener(type, () => this.#open());
    area.addEventListener("blur", () => this.#closeAfterPress());
    document.addEventListener("pointerdown", () => { this.#isPressed = true; }, true);
    for (const type of ["pointerup", "pointercancel"]) {
      document.addEventListener(type, () => { this.#isPressed = false; }, true);
    }
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") area.blur();
    });
    new ResizeObserver(() => { if (this.#isOpen) this.#open(); }).observe(this.#row);
    this.close();
  }

  get value() {
    return this.#area.value;
  }

  set value(prompt) {
    this.#area.value = prompt;
    if (this.#isOpen) this.#open(); else this.close();
  }

  /** Set its placeholder. @param {string} text */
  set placeholder(text) {
    this.#area.placeholder = text;
  }

  /** The focus goes, perhaps since something is pressed: that must not move away under the press. */
  #closeAfterPress() {
    if (!this.#isPressed) {
      this.close();
      return;
    }
    // A click comes in the same turn as the end of its press.
    const closeUnlessBack = () => { if (document.activeElement !== this.#area) this.close(); };
    document.addEventListener("pointerup", () => setTimeout(closeUnlessBack), { once: true });
  }

  /** Show one line: the first that says something, and how many others there are. */
  close() {
    const area = this.#area;
    this.#row.classList.remove("is-open");
    area.style.height = "";
    const lines = area.value.trimEnd().split("\n");
    const first = Math.max(0, lines.findIndex((line) => line.trim() !== ""));
    const others = lines.length - first - 1;
    this.#more.textContent = others > 0 ? `+${plural(others, "line")}` : "";
    this.#more.hidden = others <= 0;
    area.scrollTo(0, first * parseFloat(getComputedStyle(area).lineHeight));
  }

  get #isOpen() {
    return this.#row.classList.contains("is-open");
  }

  /** Show as many lines as there are, up to a limit. */
  #open() {
    const area = this.#area;
    this.#row.classList.add("is-open");
    this.#more.hidden = true;
    const { lineHeight, paddingTop, paddingBottom } = getComputedStyle(area);
    const padding = parseFloat(paddingTop) + parseFloat(paddingBottom);
    area.style.height = "0"; // so that its content alone says how high it would be
    const lines = Math.round((area.scrollHeight - padding) / parseFloat(lineHeight));
    const rows = Math.max(1, Math.min(lines, MAX_LINES));
    area.style.height = `${rows * parseFloat(lineHeight) + padding}px`;
  }
}
