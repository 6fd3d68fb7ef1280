// The drawer over the page's right edge, with one of two panels in it, and what opens them.

import { Charts } from "specviz/charts/charts.js";
import { explain } from "specviz/facts/costs.js";
import { bareOf, Check, partingOf, rerunParts, tieParts } from "specviz/panels/difference.js";
import { element, findAll } from "specviz/dom/dom.js";
import { Experiment } from "specviz/panels/experiment.js";
import { hasBaseline, OURS } from "specviz/facts/lanes.js";
import { showGreedy, showSampled } from "specviz/panels/same.js";
import { WhatIf } from "specviz/panels/whatif.js";
import { showWhy } from "specviz/panels/why.js";
import { settled } from "specviz/words/verdict.js";

/** @import { Session } from "specviz/run/session.js" */

/** @type {Record<string, string>} */
const TITLES = { why: "Why this speed?", same: "Is it the same text?" };
/** @type {[string, string, string][]} metric, letter, what it is */
const GREEK = [["c", "c", "the price of a guess, in passes of the target alone"],
  ["tau_predicted", "τ by the formula", "if verdicts did not depend on each other"], ["efficiency", "efficiency", "accepted of all guesses, also the ignored ones"]];
const REDRAW = 300; // ms between drawings, at least

/**
 * Whether a run has what a panel is about: a watched server shows no costs and draws nothing anew.
 * @param {string | undefined} name
 * @param {Trace} trace
 */
const canOpen = (name, { header }) =>
  !header.source || (name === "same" && header.settings.temperature === 0 && hasBaseline(header));

export class Panels {
  #drawer = element("div", "sv-drawer");
  #title = element("h2");
  #body = element("div", "sv-drawer-body");
  #why = element("div", "sv-why");
  #greek = greek();
  #charts;
  #whatIf;
  #openers;
  #config;
  #experiment;
  #check;
  #rerun;
  /** @type {string | null} */
  #open = null; // the panel
  /** @type {{ rounds: Round[], trace: Trace, lane: LaneName } | null} */
  #shown = null;
  /** @type {Trace | null} */
  #filled = null; // the trace that the panel was filled from
  #redrawing = 0; // timer

  /**
   * @param {HTMLElement} root
   * @param {{ server: Server, config: Config, session: Session }} parts
   */
  constructor(root, { server, config, session }) {
    this.#config = config;
    this.#charts = new Charts(config);
    this.#whatIf = new WhatIf(config.mostGamma);
    this.#openers = findAll(root, "[data-panel-open]", HTMLButtonElement);
    this.#experiment = new Experiment({
      server,
      draws: config.draws,
      asked: () => {
        if (!this.#shown) return null;
        const { trace, lane } = this.#shown;
        const { prompt, settings } = trace.header;
        return { run: session.liveRun, lane, prompt, settings };
      },
      isBusy: () => session.busy,
    });
    this.#check = new Check({
      ...tieParts(server),
      asked: () => {
        const parting = this.#shown && partingOf(this.#shown.trace);
        return parting && { run: session.liveRun, parting };
      },
      isBusy: () => session.busy,
    });
    this.#rerun = new Check({
      ...rerunParts(server),
      asked: () => session.trace && { run: session.liveRun, trace: bareOf(session.trace) },
      isBusy: () => session.busy,
    });
    this.#furnish();
    root.append(this.#drawer);
    for (const button of this.#openers) {
      const name = button.dataset.panelOpen ?? "";
      button.setAttribute("aria-controls", this.#drawer.id);
      button.addEventListener("click", () => (this.#open === name ? this.close() : this.#openPanel(name)));
    }
  }

  /** Whether one was open. */
  close() {
    if (this.#open === null) return false;
    const opener = this.#openers.find((button) => button.dataset.panelOpen === this.#open);
    const isInside = this.#drawer.contains(document.activeElement);
    this.#open = null;
    this.#drawer.hidden = true;
    this.#experiment.end();
    this.#check.forget();
    this.#rerun.forget();
    this.#markOpeners();
    if (isInside) opener?.focus();
    return true;
  }

  /**
   * @param {Round[]} rounds
   * @param {Trace} trace  of a race of two, or one lane of another beside the baseline
   * @param {LaneName} lane  which one
   */
  show(rounds, trace, lane) {
    if (this.#shown?.trace !== trace) {
      this.#experiment.forget();
      this.#check.forget();
      this.#rerun.forget();
    }
    this.#shown = { rounds, trace, lane };
    for (const button of this.#openers) button.hidden = !rounds.length || !canOpen(button.dataset.panelOpen, trace);
    if (this.#open !== null) this.#fillSoon();
  }

  #furnish() {
    const close = element("button", "sv-close", "×");
    close.type = "button";
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", () => this.close());
    Object.assign(this.#drawer, { id: "sv-drawer", hidden: true, tabIndex: -1 });
    this.#body.tabIndex = 0; // so that keys can scroll it
    this.#title.id = "sv-drawer-title";
    this.#drawer.setAttribute("role", "dialog");
    this.#drawer.setAttribute("aria-labelledby", this.#title.id);
    const head = element("header");
    head.append(this.#title, close);
    this.#drawer.append(head, this.#greek, this.#body);
  }

  /** @param {string} name */
  #openPanel(name) {
    this.#open = name;
    this.#filled = null;
    this.#drawer.dataset.panel = name;
    this.#drawer.hidden = false;
    this.#markOpeners();
    this.#fill();
    this.#body.scrollTop = 0;
    this.#drawer.focus({ preventScroll: true });
  }

  #markOpeners() {
    for (const button of this.#openers) {
      button.setAttribute("aria-expanded", String(button.dataset.panelOpen === this.#open));
    }
  }

  #fill() {
    if (this.#open === null || !this.#shown) return;
    const { rounds, trace, lane } = this.#shown;
    this.#title.textContent = TITLES[this.#open] + (lane === OURS ? "" : ` · ${lane}`);
    if (this.#open === "why") this.#fillWhy(rounds, trace);
    else if (trace.header.settings.temperature === 0) {
      showGreedy(this.#body, rounds, trace, trace.header.source ? element("p") : this.#check.node);
    }
    else if (this.#filled !== trace) showSampled(this.#body, trace, this.#experiment.node);
    if (this.#open === "same" && !trace.header.source) this.#body.append(this.#rerun.node);
    this.#filled = trace;
  }

  /**
   * The sliders stay in their place: whoever holds one must not lose it.
   * @param {Round[]} rounds
   * @param {Trace} trace
   */
  #fillWhy(rounds, trace) {
    const why = explain(settled(rounds, trace), trace.header, this.#config.mostGamma);
    if (!this.#why.isConnected) this.#body.replaceChildren(this.#why, this.#charts.node, this.#whatIf.node);
    showWhy(this.#why, why, trace);
    this.#charts.show(rounds, trace);
    this.#whatIf.show(why, trace.header.settings);
  }

  #fillSoon() {
    if (this.#redrawing) return;
    this.#redrawing = setTimeout(() => {
      this.#redrawing = 0;
      this.#fill();
    }, REDRAW);
  }
}

/** The figures by their letters; they are written into it with those of the page. */
function greek() {
  const list = element("dl", "sv-greek");
  for (const [name, letter, words] of GREEK) {
    const item = element("div"), value = element("dd", "", "–");
    value.dataset.metric = name;
    item.append(element("dt", "", letter), value, element("small", "", words));
    list.append(item);
  }
  return list;
}
