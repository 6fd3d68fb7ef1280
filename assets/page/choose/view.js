// The view "Choose": which drafter, which gamma, and is it worth it. It covers the whole page.

import { controlsFor, queryOf } from "specviz/run/address.js";
import { element, find } from "specviz/dom/dom.js";
import { saveBlob } from "specviz/run/saving.js";
import { Advice } from "specviz/choose/advice.js";
import { Figures } from "specviz/choose/figures.js";
import { Form } from "specviz/choose/form.js";
import { Sweep } from "specviz/choose/sweep.js";
import { Table } from "specviz/choose/table.js";
import { dayOf, plural } from "specviz/words/words.js";

const TICK = 1000; // ms
const NOTHING = "It was stopped before the first result.";
const BUSY = "The controls are set: press Run once this run is over.";
const SUBTITLE = "Which drafter, which γ, and is it worth it? Measured with these models and prompts, "
  + "on this machine.";
const PREDICT = "One run with the largest γ shows what every smaller γ would have accepted: "
  + "a curve for each drafter within seconds.";
const MEASURE = "Promising rows race against the target alone in alternating turns, so that all of them "
  + "share the same conditions.";
const DECIDE = "Most time goes to rows that are close. The answer is a row with settings to paste, or "
  + "“do not speculate here”.";
const FRAME = `
  <header class="sc-head">
    <h1 id="sc-title">Choose <small>${SUBTITLE}</small></h1>
    <button type="button" data-theme>Light or dark</button>
    <button type="button" class="sv-close"
      aria-label="Back to the race" title="Back to the race (Esc)">×</button>
  </header>
  <div class="sc-body">
    <div class="sc-what">
      <p class="sc-pair"><small>Models</small><b></b></p>
      <div class="sc-start"><button type="submit" form="sc-form"
        class="sv-button">Start</button><p role="status"></p></div>
    </div>
    <div class="sc-main" role="region" tabindex="-1" aria-label="Results">
      <div class="sc-progress" hidden>
        <p><b></b> <span></span></p><progress max="1" value="0" aria-label="Progress of the sweep"></progress>
        <button type="button" data-stop>Stop</button>
      </div>
      <p class="sc-error" role="alert" hidden></p>
      <div class="sc-intro">
        <h2>What should you deploy, and how much faster is it?</h2>
        <ol>
          <li><b>Predict.</b> ${PREDICT}</li>
          <li><b>Measure.</b> ${MEASURE}</li>
          <li><b>Decide.</b> ${DECIDE}</li>
        </ol>
      </div>
      <div class="sc-results" hidden></div>
    </div>
  </div>`;

export class ChooseView {
  #page;
  #choose;
  #dialog = element("dialog", "sv sv-choose", { "aria-labelledby": "sc-title" });
  #sweep;
  #form;
  #table = new Table();
  #advice = new Advice((advice) => this.#use(advice), (advice) => this.#link(advice));
  #figures = new Figures(() => this.#dialog.open);
  #machine = element("p", "sc-machine");
  #exports = element("p", "sc-actions sc-exports");

  /** @param {PageGround & Needs<"shownRun" | "controls">} page */
  constructor(page) {
    this.#page = page;
    const { root, server, config: { choose } } = page;
    if (!choose) throw new Error("the page offers no sweeps");
    this.#choose = choose;
    this.#sweep = new Sweep(server, () => this.#show());
    this.#form = new Form(choose, server, { changed: () => this.#offer(), begin: () => this.#begin() });
    this.#furnish();
    root.append(this.#dialog);
    setInterval(() => this.#tick(), TICK);
    this.#sweep.resume();
    if (this.#sweep.state) this.#form.set(this.#sweep.state.wish);
  }

  open() {
    if (this.#dialog.open) return;
    const { pair, weights } = this.#page.address.naming;
    const names = this.#models();
    if (weights !== "usual") names.push(weights);
    find(this.#dialog, ".sc-pair b").textContent = names.join(", ");
    this.#form.offer(this.#page.config.drafters[pair ?? ""], this.#choose.kindsOf[pair ?? ""]);
    this.#dialog.showModal();
    this.#offer();
    this.#show();
    find(this.#dialog, ".sc-main").focus({ preventScroll: true });
  }

  /** The models that the page is set to. */
  #models() {
    const { pair, target, draft } = this.#page.address.naming;
    if (pair === "other") return [target, draft || "no draft"];
    if (pair === "builtin") return ["Built-in pair"];
    const known = this.#page.config.pairs[pair ?? ""];
    if (!known) return [pair];
    return known.draft ? [known.target[0], known.draft[0]] : [known.target[0]];
  }

  #furnish() {
    const dialog = this.#dialog;
    dialog.innerHTML = FRAME; // a constant
    this.#form.node.id = "sc-form";
    find(dialog, ".sc-pair").after(this.#form.node);
    dialog.addEventListener("close", () => this.#page.address.change({ view: null }));
    find(dialog, ".sv-close").addEventListener("click", () => dialog.close());
    find(dialog, "[data-theme]").addEventListener("click", () => this.#page.shell.toggleTheme());
    find(dialog, "[data-stop]").addEventListener("click", () => this.#stop());
    const csv = () => this.#sweep.state?.csv ?? "";
    const json = () => JSON.stringify(this.#sweep.state?.whole, null, 1);
    this.#exports.append(exporter("Table (.csv)", "csv", "text/csv", csv),
      exporter("All results (.json)", "json", "application/json", json));
    find(dialog, ".sc-results").append(
      this.#advice.node, this.#table.node, this.#machine, this.#exports, this.#figures.node);
  }

  #begin() {
    if (!this.#canBegin) return;
    this.#sweep.begin({ naming: this.#page.address.naming, ...this.#form.wish });
    find(this.#dialog, ".sc-main").scrollTop = 0;
    find(this.#dialog, ".sc-main").scrollIntoView(); // on a phone it is below the form
  }

  #stop() {
    this.#sweep.stop();
    const button = find(this.#dialog, "[data-stop]", HTMLButtonElement);
    Object.assign(button, { disabled: true, textContent: "Stopping" });
  }

  /** Show the size of the requested sweep next to the button. */
  #offer() {
    const { rows, prompts } = this.#form;
    const { mostRows } = this.#choose;
    const summary = find(this.#dialog, ".sc-start p");
    if (!rows) summary.textContent = "Choose at least one of each.";
    else if (rows > mostRows) summary.textContent = `${rows} rows: choose ${mostRows} or fewer.`;
    else if (!prompts) summary.textContent = "There are no prompts yet.";
    else summary.textContent = `${plural(rows, "row")}, ${plural(prompts, "prompt")}`;
    const start = find(this.#dialog, ".sc-start button", HTMLButtonElement);
    start.disabled = !this.#canBegin;
    start.textContent = this.#sweep.state ? "Start again" : "Start";
  }

  get #canBegin() {
    const { rows, prompts } = this.#form;
    return rows > 0 && rows <= this.#choose.mostRows && prompts > 0 && !this.#sweep.isUnderWay;
  }

  #show() {
    const { state, isUnderWay } = this.#sweep;
    find(this.#page.root, "[data-toggle-choose]").classList.toggle("is-busy", isUnderWay);
    if (!this.#dialog.open || !state) return;
    this.#dialog.dataset.state = isUnderWay ? "running" : "over";
    const isEmpty = !state.rows.length;
    find(this.#dialog, ".sc-intro").hidden = !isEmpty;
    find(this.#dialog, ".sc-results").hidden = isEmpty;
    this.#showProgress(state);
    const error = find(this.#dialog, ".sc-error");
    error.textContent = state.error || (state.over && isEmpty ? NOTHING : "");
    error.hidden = !error.textContent;
    this.#table.show(state.rows, state.over);
    if (state.over) this.#advice.show(state.recommendations ?? [], this.#doubtOf(state));
    else this.#advice.showSoFar(state.rows);
    this.#figures.show(state.figures ?? null);
    this.#machine.textContent = machineText(state.machine);
    for (const button of this.#exports.querySelectorAll("button")) {
      button.disabled = !(button.dataset.export === "csv" ? state.csv : state.whole);
    }
    this.#offer();
  }

  /** @param {SweepState} state */
  #doubtOf({ remark, stopped, error, progress }) {
    const share = progress ? ` after ${progress.done} of about ${progress.total} runs` : "";
    if (remark) return remark;
    return stopped && !error ? `It was stopped${share}: rows without a measurement are predicted.` : "";
  }

  /** Count the seconds until a sweep has its first run. */
  #tick() {
    const { state, isUnderWay } = this.#sweep;
    if (state && isUnderWay && this.#dialog.open) this.#showProgress(state);
  }

  /** @param {SweepState} state */
  #showProgress(state) {
    const { over, progress } = state;
    const box = find(this.#dialog, ".sc-progress");
    const stop = find(box, "[data-stop]", HTMLButtonElement);
    box.hidden = over;
    if (over) Object.assign(stop, { disabled: false, textContent: "Stop" });
    const bar = find(box, "progress", HTMLProgressElement);
    const [amount, doing] = progressTexts(state);
    setText(find(box, "b"), amount);
    setText(find(box, "span"), doing);
    bar.max = progress?.total || 1;
    bar.value = progress?.done ?? 0;
  }

  /**
   * The values of the page's controls for a row of the sweep and one of its prompts.
   * @param {Recommendation} advice
   */
  #valuesFor({ best, prompt: swept }) {
    const { address, config } = this.#page;
    const { drafter, gamma, policy: gamma_policy, temperature } = /** @type {Configuration} */ (best);
    const naming = this.#sweep.state?.wish.naming ?? address.naming;
    const settings = { ...address.settings, ...naming, drafter, gamma, gamma_policy, temperature };
    const prompt = swept || String(address.state.values[0]);
    return controlsFor({ preset: null, prompt, settings }, config);
  }

  /** Set the controls to a row of the sweep, and race with it. @param {Recommendation} advice */
  #use(advice) {
    const { controls, notice, shownRun, shell } = this.#page;
    this.#dialog.close();
    controls?.adopt(this.#valuesFor(advice));
    if (shownRun.busy) notice.show(BUSY);
    else shell.run();
  }

  /** @param {Recommendation} advice */
  #link(advice) {
    const { config } = this.#page;
    const values = this.#valuesFor(advice);
    const query = queryOf({ values, recording: null, theme: null, stage: false, view: null }, config, "");
    return `${location.origin}${location.pathname}${query}`;
  }
}

/**
 * @param {string} label
 * @param {string} name  the suffix of the file
 * @param {string} type
 * @param {() => string} text
 */
const exporter = (label, name, type, text) => element("button", "sc-copy", label, {
  dataset: { export: name },
  onclick: () => saveBlob(new Blob([text()], { type: `${type};charset=utf-8` }), `specviz-sweep.${name}`),
});

/**
 * The progress of a sweep, in words.
 * @param {SweepState} state
 * @returns {[amount: string, doing: string]}
 */
function progressTexts({ progress, status = "", now = "", beganAt }) {
  if (!progress?.done) {
    const elapsed = beganAt === undefined ? "" : `, ${Math.floor((Date.now() - beganAt) / 1000)} s`;
    const doing = status || progress?.now || now;
    const phase = doing.startsWith("measuring") ? "First run" : "Getting ready";
    return [`${phase}${elapsed}`, capitalized(doing)];
  }
  const amount = `${progress.done} of about ${plural(progress.total, "run")}`;
  if (/ ahead of yours/.test(status)) return [amount, status];
  const left = `about ${Math.ceil(progress.seconds_left)} s left`;
  return [amount, [left, progress.now].filter(Boolean).join(" · ")];
}

/** @param {string} text */
const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Change a text only if it differs: screen readers read a changed text again. */
/** @type {(node: HTMLElement, text: string) => void} */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {SweptMachine | null | undefined} machine */
function machineText(machine) {
  if (!machine) return "";
  const { target, draft, processor, device, dtype, form, threads, versions, date } = machine;
  const models = draft ? `${target} with ${draft}` : target;
  const where = `${processor || device}, ${plural(threads, "thread")}`;
  const libraries = Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(", ");
  const day = dayOf(date).replaceAll(" ", "\u00a0");
  return [models, where, `${dtype}, ${form}`, libraries, day].filter(Boolean).join(" · ");
}
