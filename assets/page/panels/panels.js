// The drawer at the page's right edge, with one of two panels.

import { Charts } from "specviz/charts/charts.js";
import { explain } from "specviz/facts/costs.js";
import { bareOf, Check, checkKinds } from "specviz/panels/check.js";
import { element, find } from "specviz/dom/dom.js";
import { WITH_DRAFTS } from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { showGreedy, showSampled } from "specviz/panels/same.js";
import { WhatIf } from "specviz/panels/what-if.js";
import { showWhy } from "specviz/panels/why.js";
import { settled } from "specviz/words/verdict.js";
import { fixed } from "specviz/words/words.js";

/** @type {Record<string, string>} */
const TITLES = { why: "Why this speed?", same: "Is it the same text?" };
/** @type {[string, string, string][]} metric, letter, meaning */
const GREEK = [
  ["c", "c", "the cost of a guess, in passes of the target alone"],
  ["tau_predicted", "τ by the formula", "for verdicts independent of each other"],
  ["efficiency", "efficiency", "accepted share of all guesses, with the ignored ones"],
];
const REDRAW = 300; // ms, the shortest time between two drawings

export class Panels {
  #title = element("h2", "", { id: "sv-drawer-title" });
  #body = element("div", "sv-drawer-body", { tabIndex: 0 }); // so that keys can scroll it
  #why = element("div", "sv-why");
  #greek = greek();
  #drawer;
  #charts;
  #whatIf;
  #config;
  #shownRun;
  #onClose;
  #checks;
  #open = /** @type {string | null} */ (null); // the panel
  #shown = /** @type {{ rounds: Round[], trace: Trace, lane: LaneName } | null} */ (null);
  #filled = /** @type {Trace | null} */ (null); // the trace that the panel was filled from
  #redrawing = 0; // timer

  /**
   * @param {Needs<"root" | "server" | "config" | "shownRun">} page
   * @param {() => void} onClose  called when a panel is closed
   */
  constructor(page, onClose) {
    const { root, server, config, shownRun } = page;
    const kinds = checkKinds(server, config.draws);
    this.#onClose = onClose;
    this.#config = config;
    this.#shownRun = shownRun;
    this.#charts = new Charts(page);
    this.#whatIf = new WhatIf(config.mostGamma);
    this.#checks = {
      draws: new Check(page, kinds.draws, () => this.#prompt()),
      tie: new Check(page, kinds.tie, () => this.#run()),
      rerun: new Check(page, kinds.rerun, () => this.#run()),
    };
    const close = element("button", "sv-close", "×", { "aria-label": "Close", onclick: () => this.close() });
    const dialog = {
      id: "sv-drawer",
      hidden: true,
      tabIndex: -1,
      role: "dialog",
      "aria-labelledby": this.#title.id,
    };
    const header = element("header", "", this.#title, close);
    this.#drawer = element("div", "sv-drawer", dialog, header, this.#body);
    root.append(this.#drawer);
  }

  /** The run that a check is about. */
  #run() {
    const { trace, liveRun: run } = this.#shownRun;
    return trace && { run, lane: this.#shown?.lane, trace: bareOf(trace) };
  }

  /** The prompt and the settings for many draws. */
  #prompt() {
    if (!this.#shown) return null;
    const { lane, trace } = this.#shown;
    const { prompt, settings } = trace.header;
    return { run: this.#shownRun.liveRun, lane, prompt, settings };
  }

  /** Close the panel, and return whether one was open. */
  close() {
    if (this.#open === null) return false;
    this.#open = null;
    this.#drawer.hidden = true;
    for (const check of Object.values(this.#checks)) check.end();
    this.#onClose();
    return true;
  }

  /**
   * @param {Round[]} rounds
   * @param {Trace} trace  of a race of two, or one lane of a larger race with the baseline
   * @param {LaneName} lane  its name
   */
  show(rounds, trace, lane) {
    if (this.#shown?.trace !== trace) for (const check of Object.values(this.#checks)) check.forget();
    this.#shown = { rounds, trace, lane };
    if (this.#open === null || this.#redrawing) return;
    this.#redrawing = setTimeout(() => {
      this.#redrawing = 0;
      this.#fill();
    }, REDRAW);
  }

  /** @param {string} name */
  open(name) {
    this.#open = name;
    this.#filled = null;
    this.#drawer.dataset.panel = name;
    this.#drawer.hidden = false;
    this.#fill();
    this.#body.scrollTop = 0;
    this.#drawer.focus({ preventScroll: true });
  }

  #fill() {
    if (this.#open === null || !this.#shown) return;
    const { rounds, trace, lane } = this.#shown;
    this.#title.textContent = TITLES[this.#open] + (lane === WITH_DRAFTS ? "" : ` · ${lane}`);
    if (this.#open === "why") this.#fillWhy(rounds, trace, lane);
    else if (trace.header.settings.temperature === 0) {
      showGreedy(this.#body, rounds, trace, trace.header.source ? element("p") : this.#checks.tie.node);
    } else if (this.#filled !== trace) showSampled(this.#body, trace, this.#checks.draws.node);
    if (this.#open === "same" && !trace.header.source) this.#body.append(this.#checks.rerun.node);
    this.#filled = trace;
  }

  // The sliders are never replaced, since a visitor may be dragging one. Once a run is over, sentences,
  // figures and charts are about all of it, wherever the playhead is.
  /** @type {(shownRounds: Round[], trace: Trace, lane: LaneName) => void} */
  #fillWhy(shownRounds, trace, lane) {
    const rounds = settled(shownRounds, trace);
    const why = explain(rounds, trace.header, this.#config.mostGamma);
    if (!this.#why.isConnected) {
      this.#body.replaceChildren(this.#why, this.#charts.node, this.#whatIf.node, comparing());
    }
    showWhy(this.#why, why, trace, this.#greek);
    const race = this.#shownRun.trace;
    if (race) this.#charts.show(race, lane);
    const { c, tau_predicted, efficiency } = measure(rounds, trace.header);
    for (const [name, value] of Object.entries({ c, tau_predicted, efficiency })) {
      find(this.#greek, `[data-metric="${name}"]`).textContent = fixed(value, 2);
    }
    this.#whatIf.show(why, trace.header.settings);
  }
}

/** The button that opens the last two runs side by side. */
const comparing = () =>
  element("button", "sv-quiet is-framed", "Compare the last two runs", { dataset: { compare: "" } });

/** The figures by their letters. */
function greek() {
  const figures = GREEK.map(([metric, letter, words]) => {
    const value = element("dd", "", "–", { dataset: { metric } });
    return element("div", "", element("dt", "", letter), value, element("small", "", words));
  });
  return element("dl", "sv-greek", ...figures);
}
