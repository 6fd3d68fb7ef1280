// The menu "Share": the shown run as a link, a picture, a film, a page of its own, as tables, its
// charts as pictures, and as a file that can be opened again.

import { chartFigure, fetchPlotly, REQUESTS } from "specviz/charts/charts.js";
import { SERVER } from "specviz/words/description.js";
import { element, find, findAll } from "specviz/dom/dom.js";
import { filmItem } from "specviz/share/film-item.js";
import { lanesOf } from "specviz/facts/lanes.js";
import { pictureOf } from "specviz/share/picture.js";
import { fileStem, plain, saveBlob, saveTrace } from "specviz/run/recordings.js";

const FORMS = [
  { form: "html", label: "Page that plays offline (.html)", type: "text/html" },
  { form: "embed", label: "Small player for an article (.html)", type: "text/html" },
  { form: "tokens", label: "Tokens as a table (.csv)", type: "text/csv" },
  { form: "rounds", label: "Rounds as a table (.csv)", type: "text/csv" },
];
const PICTURES = ["png", "svg"];
const SIZE = { width: 640, height: 400, scale: 2 }; // px; a PNG has `scale` times as many
const COPY = "Copy a link to this view", COPIED = "Copied";
const NOT_COPIED = "The browser did not allow the copy: take the link from its address line.";
const FAILED = "The server could not make this file; try again.";
const NOT_SENT = "The file did not reach the server; try again.";
const NOT_PAINTED = "The browser could not paint the picture; try again.";

/** The address tells prompt, pair and settings, or the recording. */
const copyLink = () => navigator.clipboard.writeText(location.href);

/**
 * @typedef {object} TakeawayParts
 * @property {Server} server
 * @property {Config} config
 * @property {(trace: Trace) => void} show  told what an opened file holds
 * @property {() => Trace | null} trace  the shown one
 * @property {(sentence: string) => void} fail  told why a file cannot be made or opened
 */

export class Takeaway {
  #menu;
  #list;
  #parts;

  /**
   * @param {HTMLElement} root
   * @param {TakeawayParts} parts
   */
  constructor(root, parts) {
    this.#menu = find(root, "[data-share]", HTMLDetailsElement);
    this.#list = find(this.#menu, "[data-take-list]");
    this.#parts = parts;
    if (parts.server.take_away) {
      this.#list.append(this.#item(COPY, "link", copyLink));
    }
    this.#list.append(this.#item("Picture to share (.png)", "picture", () => this.#takePicture()),
      filmItem(parts.trace, parts.fail));
    if (parts.server.take_away) {
      for (const { form, label, type } of FORMS) {
        this.#list.append(this.#item(label, form, () => this.#takeForm(form, type)));
      }
    }
    if (parts.config.plotly) {
      this.#list.append(element("details", "sv-take-charts", element("summary", "", "Charts as pictures"),
        ...Object.entries(parts.config.titles).map(([name, title]) => this.#chartRow(name, title))));
    }
    this.#menu.addEventListener("toggle", () => this.#offer());
    this.#wireFiles();
    this.#offer();
  }

  /** A run as a file that can be opened again. */
  #wireFiles() {
    for (const button of findAll(this.#menu, "[data-save]", HTMLButtonElement)) {
      button.addEventListener("click", () => {
        this.#menu.open = false;
        saveTrace(this.#trace(), button.dataset.save === "packed");
      });
    }
  }

  /**
   * Open the file that somebody chose.
   * @param {HTMLInputElement} input
   */
  async open(input) {
    const file = input.files?.[0];
    input.value = ""; // so that the same file can be chosen again
    this.#menu.open = false;
    if (!file) return;
    const { server, config, show, fail } = this.#parts;
    try {
      const answer = await server.opened?.(file.slice(0, config.mostPacked + 1));
      if (answer?.trace) show(answer.trace);
      else fail(answer?.error ?? NOT_SENT);
    } catch (error) {
      console.info("specviz: a file could not be opened:", error);
      fail(NOT_SENT);
    }
  }

  /**
   * @param {string} label
   * @param {string} name
   * @param {() => Promise<void>} take
   */
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
        this.#parts.fail({ link: NOT_COPIED, picture: NOT_PAINTED }[name] ?? FAILED);
      }
      button.disabled = false;
    });
    return button;
  }

  /**
   * @param {string} name
   * @param {string} title
   */
  #chartRow(name, title) {
    const buttons = PICTURES.map((format) => {
      const label = format.toUpperCase(), button = this.#item(label, `${name}.${format}`, () => this.#takeChart(name, format));
      button.setAttribute("aria-label", `${title}, ${label}`);
      return button;
    });
    return element("div", "sv-take-chart", { dataset: { of: name } }, element("span", "", title), ...buttons);
  }

  /** Nothing can be taken before a run is shown. */
  #offer() {
    const hasRun = this.#parts.trace() !== null, copy = this.#list.querySelector("[data-take=link]");
    if (copy) copy.textContent = COPY;
    for (const button of findAll(this.#menu, "[data-take], [data-needs-run]", HTMLButtonElement)) button.disabled = !hasRun;
    const isServed = this.#parts.trace()?.header.target.form === SERVER;
    for (const row of findAll(this.#list, `[data-of="${REQUESTS}"]`, HTMLElement)) row.hidden = !isServed;
  }

  #trace() {
    const trace = this.#parts.trace();
    if (!trace) throw new Error("no run is shown");
    return trace;
  }

  async #takePicture() {
    const trace = this.#trace();
    saveBlob(await pictureOf(trace), `${fileStem(trace.header)}.png`);
  }

  /**
   * @param {string} form
   * @param {string} type
   */
  async #takeForm(form, type) {
    const trace = this.#trace();
    const answer = await this.#parts.server.take_away?.(form, new Blob([JSON.stringify(plain(trace))]));
    if (!answer) throw new Error("there is no server");
    if (answer.error !== undefined) this.#parts.fail(answer.error);
    else saveBlob(new Blob([answer.text], { type: `${type};charset=utf-8` }), fileStem(trace.header) + answer.suffix);
  }

  /**
   * @param {string} name
   * @param {string} format
   */
  async #takeChart(name, format) {
    const { header, rounds } = this.#trace();
    await fetchPlotly(this.#parts.config);
    if (!window.Plotly) throw new Error("charts cannot be drawn");
    const figure = chartFigure(this.#parts.config, name, rounds, lanesOf(header));
    const url = await window.Plotly.toImage(figure, { format, ...SIZE });
    saveBlob(await (await fetch(url)).blob(), `${fileStem(header)}-${name}.${format}`);
  }
}
