// The drawer over the page's right edge, with one of two panels in it.

import { Charts } from "specviz/charts/charts.js";
import { explain } from "specviz/facts/costs.js";
import { bareOf, Check, rerunParts, tieParts } from "specviz/panels/difference.js";
import { element, find } from "specviz/dom/dom.js";
import { Experiment } from "specviz/panels/experiment.js";
import { OURS } from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { showGreedy, showSampled } from "specviz/panels/same.js";
import { WhatIf } from "specviz/panels/whatif.js";
import { showWhy } from "specviz/panels/why.js";
import { settled } from "specviz/words/verdict.js";
import { fixed } from "specviz/words/words.js";

/** @import { Session } from "specviz/run/session.js" */

/** @type {Record<string, string>} */
const TITLES = { why: "Why this speed?", same: "Is it the same text?" };
/** @type {[string, string, string][]} metric, letter, what it is */
const GREEK = [["c", "c", "the price of a guess, in passes of the target alone"],
  ["tau_predicted", "τ by the formula", "if verdicts did not depend on each other"], ["efficiency", "efficiency", "accepted of all guesses, also the ignored ones"]];
const REDRAW = 300; // ms between drawings, at least

export class Panels {
  #drawer = element("div", "sv-drawer");
  #title = element("h2");
  #body = element("div", "sv-drawer-body");
  #why = element("div", "sv-why");
  #greek = greek();
  #charts;
  #whatIf;
  #config;
  #tellClosed;
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
   * @param {{ server: Server, config: Config, session: Session, closed: () => void }} parts
   */
  constructor(root, { server, config, session, closed }) {
    this.#tellClosed = closed;
    this.#config = config;
    this.#charts = new Charts(config);
    this.#whatIf = new WhatIf(config.mostGamma);
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
      asked: () => session.trace && { run: session.liveRun, lane: this.#shown?.lane, trace: bareOf(session.trace) },
      isBusy: () => session.busy,
    });
    this.#rerun = new Check({
      ...rerunParts(server),
      asked: () => session.trace && { run: session.liveRun, trace: bareOf(session.trace) },
      isBusy: () => session.busy,
    });
    this.#furnish();
    root.append(this.#drawer);
  }

  /** Whether one was open. */
  close() {
    if (this.#open === null) return false;
    this.#open = null;
    this.#drawer.hidden = true;
    this.#experiment.end();
    this.#check.forget();
    this.#rerun.forget();
    this.#tellClosed();
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
    if (!this.#why.isConnected) this.#body.replaceChildren(this.#why, this.#charts.node, this.#whatIf.node, comparing());
    showWhy(this.#why, why, trace);
    this.#charts.show(rounds, trace);
    const { c, tau_predicted, efficiency } = measure(rounds, trace.header);
    for (const [name, value] of Object.entries({ c, tau_predicted, efficiency })) find(this.#greek, `[data-metric="${name}"]`).textContent = fixed(value, 2);
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

/** What opens the last two runs side by side. */
function comparing() {
  const button = element("button", "sv-quiet is-framed", "Compare the last two runs");
  button.type = "button";
  button.dataset.compare = "";
  return button;
}

/** The figures by their letters. */
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
