// Opens the view "Choose". Its modules and its style sheet are fetched when somebody opens it first.

import { closest, find } from "specviz/dom/dom.js";

/** @import { Address } from "specviz/run/address.js" */
/** @import { ChooseView } from "specviz/choose/view.js" */
/** @import { Notice } from "specviz/dom/notice.js" */
/** @import { Shell } from "specviz/shell.js" */
/** @import { Timeline } from "specviz/run/timeline.js" */

const KEPT = "specviz-sweep"; // in the tab's storage; choose/sweep.js writes it
const NOT_FETCHED = "This view could not be fetched from the server; try again.";

/**
 * @typedef {object} ChoosingParts
 * @property {Server} server
 * @property {Config} config
 * @property {Address} address
 * @property {Notice} notice
 * @property {Shell} shell
 * @property {Timeline} timeline
 */

export class Choosing {
  /** @type {Value[] | null} what the controls should hold next, if the view wants that */
  wanted = null;
  #root;
  #parts;
  /** @type {Promise<ChooseView> | null} */
  #view = null;
  #button;

  /**
   * @param {HTMLElement} root
   * @param {ChoosingParts} parts
   */
  constructor(root, parts) {
    this.#root = root;
    this.#parts = parts;
    const canChoose = Boolean(parts.config.choose && parts.server.begin_sweep);
    this.#button = find(root, "[data-toggle-choose]");
    if (!canChoose) return;
    this.#button.hidden = find(root, "[data-choose-key]").hidden = false;
    document.addEventListener("click", (event) => {
      if (closest(event, "[data-toggle-choose]")) this.open();
    });
    if (parts.address.asked.view === "choose") this.open();
    else if (isUnderWay()) this.#fetched().catch(() => {}); // it asks the server how the sweep is
  }

  async open() {
    if (!this.#parts.config.choose || !this.#parts.server.begin_sweep) return;
    const { address, timeline, notice } = this.#parts;
    if (timeline.playing) timeline.pause(); // nothing behind the view may use the processor
    try {
      (await this.#fetched()).open();
      address.change({ view: "choose" });
    } catch (error) {
      console.info("specviz: the view could not be opened:", error);
      this.#view = null;
      notice.show(NOT_FETCHED, true);
    }
  }

  #fetched() {
    this.#view ??= this.#fetch();
    return this.#view;
  }

  async #fetch() {
    const { server, config, address, shell } = this.#parts;
    const [{ ChooseView }, { fetchPlotly }] = await Promise.all([import("specviz/choose/view.js"), import("specviz/charts/charts.js"), styled()]);
    fetchPlotly(config).catch(() => {}); // its charts come a little later
    return new ChooseView(this.#root, {
      server, config, address, shell,
      set: (values) => { this.wanted = values; shell.adopt(); },
      closed: () => address.change({ view: null }),
      busy: (isBusy) => this.#button.classList.toggle("is-busy", isBusy),
    });
  }
}

function isUnderWay() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "null")?.over === false;
  } catch {
    return false; // storage may be forbidden
  }
}

/** @returns {Promise<void>} kept once the style sheet is there */
function styled() {
  return new Promise((resolve, reject) => {
    const link = document.createElement("link");
    Object.assign(link, { rel: "stylesheet", href: new URL("choose/choose.css", import.meta.url).href });
    link.onload = () => resolve();
    link.onerror = () => reject(new Error("no style sheet"));
    document.head.append(link);
  });
}
