// The recommendation of a sweep: in words, as settings for other engines, and as a button for this page.
// Configurations have the names that Python's sentences use.

import { element } from "specviz/dom/dom.js";
import { choiceIn } from "specviz/facts/vocabulary.js";

const COPIED = "Copied";
const NOT_COPIED = "Not allowed by the browser";

export class Advice {
  node = element("div", "sc-advice", { "aria-live": "polite" });
  #use;
  #link;
  #shown = ""; // JSON of what is shown

  /**
   * @param {(advice: Recommendation) => void} use  sets the page to the best row
   * @param {(advice: Recommendation) => string} link  to the page with that row set
   */
  constructor(use, link) {
    this.#use = use;
    this.#link = link;
  }

  /**
   * @param {Recommendation[]} recommendations
   * @param {string} doubt  why the sweep ended too early, if it did
   */
  show(recommendations, doubt) {
    const several = recommendations.length > 1;
    const sections = () => recommendations.map((recommendation, number) =>
      this.#sectionOf(recommendation, { several, doubt, number }));
    this.#fill([recommendations, doubt], sections);
  }

  /**
   * Show the best row so far, one line for each temperature, so that nothing below moves.
   * @param {SweepRow[]} rows
   */
  showSoFar(rows) {
    const temperatures = [...new Set(rows.map((row) => row.configuration.temperature))];
    const best = rows.filter(({ mark }) => mark === "best");
    const lines = temperatures.map((temperature) =>
      bestSoFar(best.find(({ configuration }) => configuration.temperature === temperature)));
    const where = (/** @type {number} */ i) =>
      (temperatures.length > 1 ? `, ${temperatureText(temperatures[i])}` : "");
    this.#fill(lines, () => lines.map((line, i) => {
      const title = element("small", "", `Best so far${where(i)}`);
      return element("section", "", element("h2", "", title, line));
    }));
  }

  /** @type {(shown: unknown, make: () => HTMLElement[]) => void} */
  #fill(contents, make) {
    const text = JSON.stringify(contents);
    if (text === this.#shown) return;
    this.#shown = text;
    this.node.replaceChildren(...make());
  }

  /**
   * @param {Recommendation} recommendation
   * @param {{ several: boolean, doubt: string, number: number }} around
   */
  #sectionOf(recommendation, { several, doubt, number }) {
    const { answer, headline, temperature, reasons, best, settings } = recommendation;
    const title = element("h2");
    if (several) title.append(element("small", "", temperatureText(temperature)));
    title.append(headline);
    const section = element("section", "", { dataset: { answer } }, title);
    if (reasons.length) {
      section.append(element("ul", "", ...reasons.map((reason) => element("li", "", reason))));
    }
    for (const sentence of [doubt, recommendation.doubt]) {
      if (sentence) section.append(element("p", "sc-doubt", sentence));
    }
    if (best) section.append(this.#buttons(recommendation));
    if (settings.length) section.append(enginesOf(settings, number));
    return section;
  }

  /** @param {Recommendation} advice */
  #buttons(advice) {
    const use = element("button", "sv-button", "Race with these settings", {
      title: "Sets the page to this row and races a prompt of the sweep",
      dataset: { use: "" },
      onclick: () => this.#use(advice),
    });
    return element("p", "sc-actions", use, copyButton("Copy a link to this row", () => this.#link(advice)));
  }
}

/** The best row of a temperature, in a line. @param {SweepRow} [row] */
function bestSoFar(row) {
  const speedup = row?.measured?.speedup;
  if (!row || !speedup) return "nothing is measured yet";
  const { value, low, high } = speedup;
  const range = low === null ? "one prompt" : `${low.toFixed(2)} to ${high?.toFixed(2)}`;
  return `${nameOf(row.configuration)}: ${value.toFixed(2)}× (${range})`;
}

/**
 * The same settings for other engines, in tabs.
 * @param {EngineSettings[]} engines
 * @param {number} number of the recommendation
 */
function enginesOf(engines, number) {
  const ids = engines.map((_, i) => `sc-engine-${number}-${i}`);
  const panels = engines.map((engine, i) => enginePanel(engine, ids[i]));
  const buttons = engines.map(({ engine }, i) => element("button", "", engine, {
    id: `${ids[i]}-tab`,
    role: "tab",
    "aria-controls": ids[i],
    onclick: () => open(i),
  }));
  const open = (/** @type {number} */ tab, isByKey = false) => {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-selected", String(i === tab));
      button.tabIndex = i === tab ? 0 : -1;
      panels[i].hidden = i !== tab;
    });
    if (isByKey) buttons[tab].focus();
  };
  const onkeydown = (/** @type {KeyboardEvent} */ { key }) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[key];
    const at = buttons.findIndex((button) => button.tabIndex === 0);
    if (by) open((at + by + buttons.length) % buttons.length, true);
  };
  open(0);
  const title = element("h3", "", "For other engines: the best row that each can run");
  const tablist = { role: "tablist", "aria-label": "The same settings for", onkeydown };
  const tabs = element("div", "sc-tabs", tablist, ...buttons);
  return element("div", "sc-engines", title, tabs, ...panels);
}

/** @type {(engine: EngineSettings, id: string) => HTMLDivElement} */
function enginePanel({ engine, version, source, text, note }, id) {
  const panel = element("div", "sc-engine", { id, role: "tabpanel", "aria-labelledby": `${id}-tab` });
  if (text) {
    // The settings can be scrolled by keys.
    const region = { tabIndex: 0, role: "region", "aria-label": `Settings for ${engine}` };
    panel.append(element("pre", "", text, region), copyButton("Copy", () => text));
  }
  if (note) panel.append(element("p", "", note));
  if (source) {
    const link = { href: source, target: "_blank", rel: "noopener noreferrer" };
    const spelled = `Spelled as in ${engine} ${version}: `;
    panel.append(element("small", "", spelled, element("a", "", hostOf(source), link)));
  }
  return panel;
}

/**
 * @param {string} label
 * @param {() => string} text  what is copied
 */
function copyButton(label, text) {
  const button = element("button", "sc-copy", label, {
    onclick: async () => {
      button.textContent = await navigator.clipboard.writeText(text()).then(() => COPIED, () => NOT_COPIED);
      setTimeout(() => { button.textContent = label; }, 2000);
    },
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

/** @param {Pick<Configuration, "drafter" | "gamma" | "policy">} configuration */
export function nameOf({ drafter, gamma, policy }) {
  const name = choiceIn("drafters", drafter);
  return policy === "fixed" ? `${name}, γ ${gamma}` : `${name}, γ ≤ ${gamma}, ${policy}`;
}
