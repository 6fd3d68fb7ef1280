// The parts that are fetched when they are first opened: the views, the panels of the drawer, the menu Share,
// the card of a token.

import { closable, closest, element, find, findAll, importPart, loaded } from "specviz/dom/dom.js";
import { kept, SWEEP } from "specviz/dom/kept.js";
import { hasBaseline } from "specviz/facts/lanes.js";

/**
 * The menu Share. Returns the function that closes it.
 * @param {PageGround & Needs<"shownRun">} page
 */
export function shareMenu(page) {
  const { notice, root } = page;
  const menu = find(root, "[data-share]", HTMLDetailsElement);
  const input = find(menu, "[data-open]", HTMLInputElement);
  const fetched = notice.fetching(async () => new (await importPart("share/takeaway.js")).Takeaway(page));
  fetchAhead("[data-share] summary", fetched);
  menu.addEventListener("toggle", () => fetched());
  find(menu, "[data-choose]").addEventListener("click", () => input.click());
  input.addEventListener("change", async () => (await fetched())?.open(input));
  return closable(menu);
}

/**
 * The functions that open a round step by step, and the comparison of two runs.
 * @param {PageGround & PagePlay & Needs<"view">} page
 */
export function openersOf(page) {
  const { notice, root } = page;
  const explained = notice.fetching(async () =>
    new (await importPart("explain/explain.js")).Explain(page));
  const compared = notice.fetching(async () =>
    new (await importPart("compare/compare.js")).Compare(root));
  fetchAhead("[data-explain]", explained);
  fetchAhead("[data-compare]", compared);
  return {
    async explain() { (await explained())?.open(); },
    async compare() { (await compared())?.open(page.runs); },
  };
}

// Fetch a part when the pointer is over its button, since it may be pressed next.
/** @type {(selector: string, fetched: (isAhead: boolean) => Promise<unknown>) => void} */
function fetchAhead(selector, fetched) {
  document.addEventListener("pointerover", (event) => { if (closest(event, selector)) fetched(true); });
}

/** The view "Choose". */
export class Choosing {
  #page;
  #view;

  /** @param {PageGround & PagePlay & Needs<"controls">} page */
  constructor(page) {
    this.#page = page;
    this.#view = page.notice.fetching(() => this.#fetch());
    if (!this.#canChoose) return;
    for (const name of ["[data-toggle-choose]", "[data-choose-key]"]) find(page.root, name).hidden = false;
    document.addEventListener("click", (event) => {
      if (closest(event, "[data-toggle-choose]")) this.open();
    });
    if (page.address.asked.view === "choose") this.open();
    else if (kept(SWEEP)?.over === false) this.#view(); // it continues the sweep
  }

  get #canChoose() {
    return this.#page.config.choose && this.#page.server.begin_sweep;
  }

  async open() {
    if (!this.#canChoose) return;
    const { address, timeline } = this.#page;
    if (timeline.isPlaying) timeline.pause(); // the hidden page must not use the processor
    const view = await this.#view();
    if (!view) return;
    view.open();
    address.change({ view: "choose" });
  }

  async #fetch() {
    const { href } = new URL("choose/choose.css", import.meta.url);
    const styles = element("link", "", { rel: "stylesheet", href });
    const [{ ChooseView }, { fetchPlotly }] = await Promise.all(
      [importPart("choose/view.js"), importPart("charts/figures.js"), loaded(styles)]);
    fetchPlotly(this.#page.config).catch(() => {}); // its charts come a little later
    return new ChooseView(this.#page);
  }
}

/** The shown rounds, of two lanes or of one. @typedef {[Round[], Trace, LaneName]} Shown */

/** The buttons that open a panel of the drawer. */
export class Openers {
  #buttons;
  #fetched;
  #panels = /** @type {Panels | null} */ (null);
  #open = /** @type {string | null} */ (null);
  #shown = /** @type {Shown | null} */ (null);

  /** @param {PageGround & Needs<"shownRun">} page */
  constructor(page) {
    this.#fetched = page.notice.fetching(async () =>
      new (await importPart("panels/panels.js")).Panels(page, () => this.#mark(null)));
    fetchAhead("[data-panel-open]", this.#fetched);
    this.#buttons = findAll(page.root, "[data-panel-open]", HTMLButtonElement);
    for (const button of this.#buttons) {
      const name = button.dataset.panelOpen ?? "";
      button.addEventListener("click", () => (this.#open === name ? this.close() : this.#openPanel(name)));
    }
  }

  /** Close the panel, and return whether one was open. */
  close() {
    return this.#panels?.close() ?? false;
  }

  /** @param {Shown} content */
  show(...content) {
    const [rounds, trace] = content;
    this.#shown = content;
    for (const button of this.#buttons) {
      button.hidden = !rounds.length || !canOpen(button.dataset.panelOpen, trace);
    }
    this.#panels?.show(...content);
  }

  /** @param {string} name */
  async #openPanel(name) {
    this.#panels = await this.#fetched();
    if (!this.#panels) return;
    if (this.#shown) this.#panels.show(...this.#shown);
    this.#panels.open(name);
    this.#mark(name);
  }

  /** @param {string | null} open */
  #mark(open) {
    const opener = this.#buttons.find((button) => button.dataset.panelOpen === this.#open);
    this.#open = open;
    for (const button of this.#buttons) {
      button.setAttribute("aria-expanded", String(button.dataset.panelOpen === open));
    }
    if (open !== null) return;
    // The focused element is gone, or disappears with the drawer.
    const focused = document.activeElement;
    if (focused === document.body || focused?.closest(".sv-drawer")) opener?.focus();
  }
}

// Whether a panel applies to a run: a watched server reports no costs and cannot repeat draws.
/** @type {(name: string | undefined, trace: Trace) => boolean} */
const canOpen = (name, { header }) =>
  !header.source || (name === "same" && header.settings.temperature === 0 && hasBaseline(header));

/** The card of a token: fetched at the first pointed token, and shown if that is still pointed at. */
export class Cards {
  #card = /** @type {Card | null} */ (null);

  /** @param {Needs<"root" | "notice" | "shownRun">} page */
  constructor(page) {
    const { notice, root } = page;
    const fetched = notice.fetching(async () => {
      const { Card } = await importPart("race/card.js");
      this.#card = new Card(page);
      return this.#card;
    });
    const hear = async (/** @type {Event} */ event) => {
      const token = this.#card ? null : closest(event, "[data-lane] .t"); // a card has its own listeners
      if (!token) return;
      const card = await fetched();
      const isMeant = event.type === "click" || token.matches(":hover, :focus");
      if (isMeant) card?.hear(event);
    };
    for (const type of ["pointerover", "focusin", "click"]) root.addEventListener(type, hear);
  }

  /** Close the card, and return whether it was open. */
  close() {
    return this.#card?.close() ?? false;
  }

  /** Close the card if its token has been removed. */
  refresh() {
    this.#card?.refresh();
  }
}
