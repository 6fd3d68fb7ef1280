// The prompt field: one line, or with the focus as many lines as the prompt needs.

import { element, find } from "specviz/dom/dom.js";
import { plural } from "specviz/words/words.js";

const MAX_LINES = 5; // visible at once

export class PromptBox {
  #area;
  #row;
  #more = element("span", "sv-more-lines", { "aria-hidden": "true", hidden: true });
  #isPressed = false; // whether a pointer is down

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

  /** Close after the focus has left. If that was by a press, wait: its target must not move away. */
  #closeAfterPress() {
    if (!this.#isPressed) {
      this.close();
      return;
    }
    // A click comes in the same turn as the end of its press.
    const closeUnlessBack = () => { if (document.activeElement !== this.#area) this.close(); };
    document.addEventListener("pointerup", () => setTimeout(closeUnlessBack), { once: true });
  }

  /** Show one line, the first that is not blank, and the number of lines after it. */
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

  /** Show all lines, up to the limit. */
  #open() {
    const area = this.#area;
    this.#row.classList.add("is-open");
    this.#more.hidden = true;
    const { lineHeight, paddingTop, paddingBottom } = getComputedStyle(area);
    const padding = parseFloat(paddingTop) + parseFloat(paddingBottom);
    area.style.height = "0"; // so that scrollHeight is the height of the content
    const lines = Math.round((area.scrollHeight - padding) / parseFloat(lineHeight));
    const rows = Math.max(1, Math.min(lines, MAX_LINES));
    area.style.height = `${rows * parseFloat(lineHeight) + padding}px`;
  }
}
