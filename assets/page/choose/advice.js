// What a sweep recommends: in words, as settings for other engines, and as a button for this page.

import { element } from "specviz/dom/dom.js";
import { nameOf, worded } from "specviz/choose/words.js";

/** @import { Labels } from "specviz/choose/words.js" */

const COPIED = "Copied";
const NOT_COPIED = "Not allowed by the browser";

/**
 * @typedef {object} AdviceParts
 * @property {Labels} labels
 * @property {(best: Configuration) => void} use  sets the page to a row
 * @property {(best: Configuration) => string} link  to the page with a row set
 */

export class Advice {
  node = element("div", "sc-advice");
  #parts;
  #shown = ""; // JSON of what is shown

  /** @param {AdviceParts} parts */
  constructor(parts) {
    this.#parts = parts;
    this.node.setAttribute("aria-live", "polite");
  }

  /**
   * @param {Recommendation[]} recommendations
   * @param {string} doubt  why the sweep ended too early, if it did
   */
  show(recommendations, doubt) {
    const several = recommendations.length > 1;
    this.#fill([recommendations, doubt], () => recommendations.map((one, i) => this.#one(one, { several, doubt, number: i })));
  }

  /**
   * The best rows so far. One line for each temperature, so that nothing below moves.
   * @param {SweepRow[]} rows
   */
  showSoFar(rows) {
    const temperatures = [...new Set(rows.map((row) => row.configuration.temperature))];
    const lines = temperatures.map((temperature) => {
      const best = rows.find(({ mark, configuration }) => mark === "best" && configuration.temperature === temperature);
      const speedup = best?.measured?.speedup;
      if (!best || !speedup) return "nothing is measured yet";
      const range = speedup.low === null ? "one prompt" : `${speedup.low.toFixed(2)} to ${speedup.high?.toFixed(2)}`;
      return `${nameOf(best.configuration, this.#parts.labels)}: ${speedup.value.toFixed(2)}× (${range})`;
    });
    this.#fill(lines, () => lines.map((line, i) => {
      const part = element("section"), heading = element("h2", "", line);
      const where = temperatures.length > 1 ? `, ${temperatureText(temperatures[i])}` : "";
      heading.prepend(element("small", "", `Best so far${where}`));
      part.append(heading);
      return part;
    }));
  }

  /**
   * @param {unknown} shown
   * @param {() => HTMLElement[]} make
   */
  #fill(shown, make) {
    const text = JSON.stringify(shown);
    if (text === this.#shown) return;
    this.#shown = text;
    this.node.replaceChildren(...make());
  }

  /**
   * @param {Recommendation} one
   * @param {{ several: boolean, doubt: string, number: number }} around
   */
  #one(one, { several, doubt, number }) {
    const { labels } = this.#parts;
    const part = element("section");
    part.dataset.answer = one.answer;
    const heading = element("h2", "", worded(one.headline, labels));
    if (several) heading.prepend(element("small", "", temperatureText(one.temperature)));
    part.append(heading);
    const reasons = element("ul");
    reasons.append(...one.reasons.map((reason) => element("li", "", worded(reason, labels))));
    if (one.reasons.length) part.append(reasons);
    for (const sentence of [doubt, one.doubt]) if (sentence) part.append(element("p", "sc-doubt", sentence));
    if (one.best) part.append(this.#buttons(one.best));
    if (one.settings.length) part.append(this.#engines(one.settings, number));
    return part;
  }

  /** @param {Configuration} best */
  #buttons(best) {
    const row = element("p", "sc-actions");
    const use = element("button", "sv-button", "Race with these settings");
    Object.assign(use, { type: "button", title: "Sets the page to this row; press Run there" });
    use.dataset.use = "";
    use.addEventListener("click", () => this.#parts.use(best));
    row.append(use, copyButton("Copy a link to this row", () => this.#parts.link(best)));
    return row;
  }

  /**
   * @param {EngineSettings[]} engines
   * @param {number} number of the recommendation
   */
  #engines(engines, number) {
    const box = element("div", "sc-engines"), tabs = element("div", "sc-tabs");
    tabs.setAttribute("role", "tablist");
    tabs.setAttribute("aria-label", "The same settings for");
    const panels = engines.map((engine, i) => enginePanel(engine, `sc-engine-${number}-${i}`));
    const buttons = engines.map(({ engine }, i) => {
      const button = element("button", "", engine);
      Object.assign(button, { type: "button", id: `sc-engine-${number}-${i}-tab` });
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", panels[i].id);
      return button;
    });
    const open = (/** @type {number} */ place, isByKey = false) => {
      buttons.forEach((button, i) => {
        button.setAttribute("aria-selected", String(i === place));
        button.tabIndex = i === place ? 0 : -1;
        panels[i].hidden = i !== place;
      });
      if (isByKey) buttons[place].focus();
    };
    buttons.forEach((button, i) => button.addEventListener("click", () => open(i)));
    tabs.addEventListener("keydown", ({ key }) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[key];
      const at = buttons.findIndex((button) => button.tabIndex === 0);
      if (by) open((at + by + buttons.length) % buttons.length, true);
    });
    tabs.append(...buttons);
    box.append(element("h3", "", "The same settings elsewhere"), tabs, ...panels);
    open(0);
    return box;
  }
}

/**
 * @param {EngineSettings} engine
 * @param {string} id
 */
function enginePanel({ engine, version, source, text, note }, id) {
  const panel = element("div", "sc-engine");
  panel.id = id;
  panel.setAttribute("role", "tabpanel");
  panel.setAttribute("aria-labelledby", `${id}-tab`);
  if (text) {
    const code = element("pre", "", text);
    code.tabIndex = 0; // so that keys can scroll it
    code.setAttribute("role", "region");
    code.setAttribute("aria-label", `Settings for ${engine}`);
    panel.append(code, copyButton("Copy", () => text));
  }
  if (note) panel.append(element("p", "", note));
  const from = element("small", "", `Spelled as in ${engine} ${version}: `);
  const link = element("a", "", hostOf(source));
  Object.assign(link, { href: source, target: "_blank", rel: "noopener noreferrer" });
  from.append(link);
  if (source) panel.append(from);
  return panel;
}

/**
 * @param {string} label
 * @param {() => string} text  what is copied
 */
function copyButton(label, text) {
  const button = element("button", "sc-copy", label);
  button.type = "button";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = COPIED;
    } catch {
      button.textContent = NOT_COPIED;
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
  return button;
}

/** @param {number} temperature */
const temperatureText = (temperature) => (temperature === 0 ? "greedy" : `temperature ${temperature}`);

/** @param {string} source */
function hostOf(source) {
  try {
    return new URL(source).hostname;
  } catch {
    return source;
  }
}
