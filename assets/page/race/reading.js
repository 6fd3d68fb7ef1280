// Marks or text: whether the lanes show each verdict, or the text that was emitted, with a thin mark where a
// guess was rejected. The style sheet does the rest.

import { remember, remembered } from "specviz/dom/kept.js";
import { closest, element, findAll } from "specviz/dom/dom.js";

/** @typedef {"marks" | "text"} Mode */

/** @type {{ mode: Mode, title: string }[]} */
const MODES = [
  { mode: "marks", title: "Every guess with its verdict (M)" },
  { mode: "text", title: "The text alone, with a thin mark where a guess was rejected (M)" },
];
const REMEMBERED = "specviz-reading";

export class ReadingMode {
  /** The switch, for the lanes to take in. */
  node;
  #page;

  /** @param {PageParts} page */
  constructor(page) {
    this.#page = page;
    const buttons = MODES.map(({ mode, title }) => element("button", "", mode, { title, dataset: { mode } }));
    const group = { role: "group", "aria-label": "What the lanes show" };
    this.node = element("span", "sv-mode", group, ...buttons);
    this.node.addEventListener("click", (event) => {
      const mode = closest(event, "[data-mode]")?.dataset.mode;
      if (mode) this.#choose(mode === "text" ? "text" : "marks");
    });
    this.#set(page.address.asked.reading ?? remembered(REMEMBERED));
  }

  get isText() {
    return this.#page.root.dataset.reading === "text";
  }

  toggle() {
    this.#choose(this.isText ? "marks" : "text");
  }

  /** @param {Mode} mode */
  #choose(mode) {
    this.#set(mode);
    remember(REMEMBERED, mode);
  }

  /** @param {unknown} mode  anything but "text" means marks */
  #set(mode) {
    const { root, address } = this.#page;
    const reading = mode === "text" ? "text" : "marks";
    root.dataset.reading = reading;
    for (const button of findAll(this.node, "button", HTMLButtonElement)) {
      button.setAttribute("aria-pressed", String(button.dataset.mode === reading));
    }
    address.change({ reading });
  }
}
