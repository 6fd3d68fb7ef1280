// Two runs side by side, in a dialog: a visitor's own, where there are two, beside a recording else.

import { chart, figures, lead, settings, showDifference, sideOf, texts, times } from "specviz/compare/parts.js";
import { lastTwo } from "specviz/run/pick.js";
import { closing, element, find, titled } from "specviz/dom/dom.js";

const ONLY_ONE = "There is only one run yet. Make another one, choose a preset or open a recording, then compare again.";
const NONE = "There is no run yet. Press Run, choose a preset or open a recording.";

export class Compare {
  #body = element("div", "sv-compare-body", { tabIndex: 0, role: "group", "aria-label": "Comparison" });
  #dialog = element("dialog", "sv-compare", { "aria-labelledby": "sv-compare-title" },
    element("header", "", element("h2", "", "Two runs, side by side", { id: "sv-compare-title" }),
      element("button", "sv-close", "×", { "aria-label": "Close" })), this.#body);
  /** @type {Side[]} */
  #sides = []; // what the dialog shows

  /** @param {HTMLElement} root */
  constructor(root) {
    root.append(this.#dialog);
    closing(this.#dialog);
    this.#dialog.addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() !== "c" || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.#dialog.close();
    });
    addEventListener("resize", () => { if (this.#dialog.open) this.#drawChart(); });
  }

  /** @param {Run[]} runs  that were shown, the newest last */
  open(runs) {
    if (this.#dialog.open) return;
    const pair = lastTwo(runs);
    this.#dialog.showModal();
    this.#sides = pair?.map(({ name, run }) => sideOf(name, run)) ?? [];
    if (pair) this.#fill();
    else this.#body.replaceChildren(element("p", "sv-lead", runs.length ? ONLY_ONE : NONE));
  }

  #fill() {
    const sides = this.#sides;
    const made = element("p", "", sides.map(({ name, origin, trace }) =>
      `${name}: ${origin}${trace.end ? "" : ", not finished"}`).join(" · "));
    this.#body.replaceChildren(
      element("p", "sv-lead", lead(sides)), made,
      titled("What differs", ...settings(sides)), titled("Figures", figures(sides)),
      titled("Tokens against clock", element("div", "sv-compare-chart")),
      titled("Where a round’s time goes", ...times(sides)),
      titled("Text with drafts", ...texts(sides)));
    this.#drawChart();
    this.#body.scrollTop = 0;
    showDifference(this.#body);
    this.#body.focus({ preventScroll: true });
  }

  /** In the pixels that it has, so that its letters have their size on any screen. */
  #drawChart() {
    if (!this.#sides.length) return;
    const place = find(this.#body, ".sv-compare-chart");
    place.replaceChildren(...chart(this.#sides, place.clientWidth));
  }
}
