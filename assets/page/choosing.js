// Opens the view "Choose". Its modules and its style sheet are fetched when somebody opens it first.

import { closest, element, find, loaded, once } from "specviz/dom/dom.js";
import { kept, SWEEP } from "specviz/dom/kept.js";

const NOT_FETCHED = "This view could not be fetched from the server; try again.";

export class Choosing {
  #page;
  #view = once(() => this.#fetch());

  /** @param {PageParts} page */
  constructor(page) {
    this.#page = page;
    if (!this.#canChoose) return;
    for (const name of ["[data-toggle-choose]", "[data-choose-key]"]) find(page.root, name).hidden = false;
    document.addEventListener("click", (event) => {
      if (closest(event, "[data-toggle-choose]")) this.open();
    });
    if (page.address.asked.view === "choose") this.open();
    else if (kept(SWEEP)?.over === false) this.#view().catch(() => {}); // it asks the server how the sweep is
  }

  get #canChoose() {
    return this.#page.config.choose && this.#page.server.begin_sweep;
  }

  async open() {
    if (!this.#canChoose) return;
    const { address, timeline, notice } = this.#page;
    if (timeline.playing) timeline.pause(); // nothing behind the view may use the processor
    try {
      (await this.#view()).open();
      address.change({ view: "choose" });
    } catch (error) {
      console.info("specviz: the view could not be opened:", error);
      notice.show(NOT_FETCHED, true);
    }
  }

  async #fetch() {
    const { href } = new URL("choose/choose.css", import.meta.url);
    const styles = element("link", "", { rel: "stylesheet", href });
    const [{ ChooseView }, { fetchPlotly }] = await Promise.all(
      [import("specviz/choose/view.js"), import("specviz/charts/figures.js"), loaded(styles)]);
    fetchPlotly(this.#page.config).catch(() => {}); // its charts come a little later
    return new ChooseView(this.#page);
  }
}
