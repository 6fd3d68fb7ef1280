// Two runs side by side, in a dialog: a visitor's own, where there are two, beside a recording else.

import { chart } from "specviz/compare/chart.js";
import { figures, lead, settings, showDifference, sideOf, texts, times } from "specviz/compare/parts.js";
import { lastTwo } from "specviz/run/pick.js";
import { closest, element, find } from "specviz/dom/dom.js";

/** @import { Side } from "specviz/compare/parts.js" */

/** @import { Run } from "specviz/run/pick.js" */

const ONLY_ONE = "There is only one run yet. Make another one, choose a preset or open a recording, then compare again.";
const NONE = "There is no run yet. Press Run, choose a preset or open a recording.";

export class Compare {
  #dialog = element("dialog", "sv-compare");
  #body = element("div", "sv-compare-body");
  /** @type {Side[]} */
  #sides = []; // what the dialog shows

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#furnish();
    root.append(this.#dialog);
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

  #furnish() {
    const close = element("button", "sv-close", "×"), head = element("header"), title = element("h2");
    Object.assign(close, { type: "button", ariaLabel: "Close" });
    Object.assign(title, { id: "sv-compare-title", textContent: "Two runs, side by side" });
    Object.assign(this.#body, { tabIndex: 0, role: "group", ariaLabel: "Comparison" });
    head.append(title, close);
    this.#dialog.setAttribute("aria-labelledby", title.id);
    this.#dialog.append(head, this.#body);
    this.#dialog.addEventListener("click", (event) => {
      if (event.target === this.#dialog || closest(event, ".sv-close")) this.#dialog.close();
    });
    this.#dialog.addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() !== "c" || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.#dialog.close();
    });
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
    place.replaceChildren();
    place.append(...chart(this.#sides, place.clientWidth));
  }
}

/**
 * @param {string} title
 * @param {...HTMLElement} content
 */
function titled(title, ...content) {
  const part = element("section");
  part.append(element("h3", "", title), ...content);
  return part;
}
