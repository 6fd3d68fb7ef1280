// The menu "Share": the shown run as a link, a picture, a film, a page, as tables, its charts as pictures,
// and as a file that can be opened again.

import { chartsOf, figuresOf, REQUESTS } from "specviz/charts/charts.js";
import { fetchPlotly } from "specviz/charts/figures.js";
import { SERVER } from "specviz/words/description.js";
import { element, find, findAll } from "specviz/dom/dom.js";
import { filmOf, filmType, suffixOf } from "specviz/share/film.js";
import { asTrace } from "specviz/facts/trace.js";
import { pictureOf } from "specviz/share/picture.js";
import { fileStem, plain, saveBlob, saveTrace } from "specviz/run/saving.js";
import { UNVERIFIED } from "specviz/words/words.js";

const FORMS = [
  { form: "html", label: "Page that plays offline (.html)", type: "text/html" },
  { form: "embed", label: "Small player for an article (.html)", type: "text/html" },
  { form: "charts", label: "Interactive charts (.html)", type: "text/html" },
  { form: "tokens", label: "Tokens as a table (.csv)", type: "text/csv" },
  { form: "rounds", label: "Rounds as a table (.csv)", type: "text/csv" },
];
const PICTURES = ["png", "svg"];
const SIZE = { width: 640, height: 400, scale: 2 }; // px; a PNG has `scale` times as many
const COPY = "Copy a link to this view";
const COPIED = "Copied";
const NOT_COPIED = "The browser did not allow the copy: copy the link from its address bar.";
const FAILED = "The server could not make this file; try again.";
const NOT_SENT = "The file did not reach the server; try again.";
const NOT_PAINTED = "The browser could not draw the picture; try again.";
const NO_FILM = "This browser cannot record a film of a page: use a current Chromium or Firefox, "
  + "or share the picture.";
const FILM_FAILED = "The browser could not record the film; try again, or share the picture.";

/** The address has the prompt, the pair and the settings, or the recording. */
const copyLink = () => navigator.clipboard.writeText(location.href);

export class Takeaway {
  #page;
  #menu;
  #list;

  /** @param {Needs<"root" | "server" | "config" | "notice" | "shownRun">} page */
  constructor(page) {
    const { root, server, config } = this.#page = page;
    this.#menu = find(root, "[data-share]", HTMLDetailsElement);
    this.#list = find(this.#menu, "[data-take-list]");
    if (server.take_away) this.#list.append(this.#item(COPY, "link", copyLink));
    const picture = this.#item("Picture to share (.png)", "picture", () => this.#takePicture());
    this.#list.append(picture, filmItem(page));
    if (server.take_away) {
      for (const { form, label, type } of FORMS) {
        this.#list.append(this.#item(label, form, () => this.#takeForm(form, type)));
      }
    }
    if (config.plotly) {
      const rows = Object.entries(config.titles).map(([name, title]) => this.#chartRow(name, title));
      const summary = element("summary", "", "Charts as pictures");
      this.#list.append(element("details", "sv-take-charts", summary, ...rows));
    }
    this.#menu.addEventListener("toggle", () => this.#offer());
    for (const button of findAll(this.#menu, "[data-save]", HTMLButtonElement)) {
      button.addEventListener("click", () => {
        this.#menu.open = false;
        saveTrace(this.#trace(), button.dataset.save === "packed");
      });
    }
    this.#offer();
  }

  /** Open the chosen file. @param {HTMLInputElement} input */
  async open(input) {
    const file = input.files?.[0];
    input.value = ""; // so that the same file can be chosen again
    this.#menu.open = false;
    if (!file) return;
    const { server, config, shownRun, notice } = this.#page;
    try {
      const answer = await server.opened?.(file.slice(0, config.mostPacked + 1));
      if (!answer?.trace) notice.show(answer?.error ?? NOT_SENT, true);
      else {
        shownRun.showFile(asTrace(answer.trace));
        notice.mention(UNVERIFIED);
      }
    } catch (error) {
      console.info("specviz: a file could not be opened:", error);
      notice.show(NOT_SENT, true);
    }
  }

  /** @type {(label: string, name: string, take: () => Promise<void>) => HTMLButtonElement} */
  #item(label, name, take) {
    const button = element("button", "", label, { dataset: { take: name } });
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        await take();
        if (name === "link") button.textContent = COPIED;
        else this.#menu.open = false;
      } catch (error) {
        console.info("specviz: nothing to take away:", error);
        this.#page.notice.show({ link: NOT_COPIED, picture: NOT_PAINTED }[name] ?? FAILED, true);
      }
      button.disabled = false;
    });
    return button;
  }

  /** @type {(name: string, title: string) => HTMLDivElement} */
  #chartRow(name, title) {
    const buttons = PICTURES.map((format) => {
      const label = format.toUpperCase();
      const button = this.#item(label, `${name}.${format}`, () => this.#takeChart(name, format));
      button.setAttribute("aria-label", `${title}, ${label}`);
      return button;
    });
    return element("div", "sv-take-chart", { dataset: { of: name } }, element("span", "", title), ...buttons);
  }

  /** Enable the entries if a run is shown. */
  #offer() {
    const { trace } = this.#page.shownRun;
    const hasRun = trace !== null;
    const copy = this.#list.querySelector("[data-take=link]");
    if (copy) copy.textContent = COPY;
    for (const button of findAll(this.#menu, "[data-take], [data-needs-run]", HTMLButtonElement)) {
      button.disabled = !hasRun;
    }
    const isServed = trace?.header.target.form === SERVER && !trace.header.source;
    for (const row of findAll(this.#list, `[data-of="${REQUESTS}"]`, HTMLElement)) row.hidden = !isServed;
  }

  #trace() {
    const { trace } = this.#page.shownRun;
    if (!trace) throw new Error("no run is shown");
    return trace;
  }

  async #takePicture() {
    const trace = this.#trace();
    saveBlob(await pictureOf(trace), `${fileStem(trace.header)}.png`);
  }

  /** @type {(form: string, type: string) => Promise<void>} */
  async #takeForm(form, type) {
    const trace = this.#trace();
    const answer = await this.#page.server.take_away?.(form, new Blob([JSON.stringify(plain(trace))]));
    if (!answer) throw new Error("there is no server");
    if (answer.error !== undefined) {
      this.#page.notice.show(answer.error, true);
      return;
    }
    const file = new Blob([answer.text], { type: `${type};charset=utf-8` });
    saveBlob(file, fileStem(trace.header) + answer.suffix);
  }

  /** @type {(name: string, format: string) => Promise<void>} */
  async #takeChart(name, format) {
    const trace = this.#trace();
    const [figures] = await Promise.all([figuresOf(this.#page, trace), fetchPlotly(this.#page.config)]);
    const figure = chartsOf(figures)[name];
    if (!window.Plotly || !figure) throw new Error("charts cannot be drawn");
    const url = await window.Plotly.toImage(figure, { format, ...SIZE });
    saveBlob(await (await fetch(url)).blob(), `${fileStem(trace.header)}-${name}.${format}`);
  }
}

/**
 * The entry that records a film, with its progress and a button to cancel it.
 * @param {Needs<"shownRun" | "notice">} page
 */
function filmItem({ shownRun, notice }) {
  const label = `Short film (.${suffixOf(filmType() ?? "")})`;
  const start = element("button", "", label, { dataset: { take: "film" } });
  const cancel = element("button", "", "Cancel");
  const bar = element("progress", "", { "aria-label": "Recording of the film" });
  const duration = element("span", "", "recording, 12 s");
  const row = element("div", "sv-film-row", { hidden: true }, duration, bar, cancel);
  start.addEventListener("click", async () => {
    const { trace } = shownRun;
    if (!trace || !filmType()) {
      if (trace) notice.show(NO_FILM, true);
      return;
    }
    const stop = new AbortController();
    const giveUp = () => stop.abort();
    cancel.addEventListener("click", giveUp);
    start.hidden = true;
    row.hidden = false;
    bar.value = 0;
    cancel.focus({ preventScroll: true });
    try {
      const film = await filmOf(trace, { signal: stop.signal, progress: (share) => { bar.value = share; } });
      if (film) saveBlob(film, `${fileStem(trace.header)}.${suffixOf(film.type)}`);
    } catch (error) {
      console.info("specviz: no film:", error);
      notice.show(FILM_FAILED, true);
    }
    const hadFocus = row.contains(document.activeElement);
    row.hidden = true;
    start.hidden = false;
    if (hadFocus) start.focus({ preventScroll: true });
    cancel.removeEventListener("click", giveUp);
  });
  return element("div", "sv-film", start, row);
}
