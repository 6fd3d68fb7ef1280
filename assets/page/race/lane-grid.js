// The lanes of a race: an article for each with its name, bar, text and token counts, and the switch between
// marks and text.

import { closest, element, find, findAll } from "specviz/dom/dom.js";
import { remember, remembered } from "specviz/dom/kept.js";
import { defined } from "specviz/race/definitions.js";
import { Lane } from "specviz/race/lane.js";
import {
  ALONE, changedLanes, draftedLanes, hasBaseline, isSeveral, labelOf, lanesOf, WITH_DRAFTS, ruleOf,
} from "specviz/facts/lanes.js";
import { verdictKind } from "specviz/facts/vocabulary.js";
import { GUESSER } from "specviz/words/watched.js";
import { guesser } from "specviz/words/words.js";

/**
 * A lane's figures, its ratio if it is shown, and whether it is the fastest.
 * @typedef {{ metrics: Metrics, ratio: number | null, isBest: boolean }} Standing
 */

const PHASES = [
  ["Guess", "one token after another"],
  ["Check", "one pass of the target reads all of them"],
  ["Verdict", "accepted up to the first rejection"],
];
const KEYS = 8; // colours and dashes of lanes with drafts
const IDLE_DRAFTED = "A small model guesses a few tokens ahead, and one pass of the target judges all of "
  + "them.";
const IDLE_ALONE = "The same target, the same prompt and the same clock, without any help: "
  + "one pass, one token.";

export class LaneGrid {
  lanes = /** @type {Lane[]} */ ([]);
  #root;
  #mode;
  #choose;
  #box;
  #arranged = ""; // the names and notes of the lanes that have an article

  /**
   * @param {HTMLElement} root
   * @param {HTMLElement} mode  the switch between marks and text
   * @param {(lane: LaneName) => void} choose  called with the lane whose figures a visitor asks for
   */
  constructor(root, mode, choose) {
    this.#root = root;
    this.#mode = mode;
    this.#choose = choose;
    this.#box = find(root, ".sv-lanes");
    this.arrange();
  }

  /**
   * Make an article for each lane of a race; before there is a race, for the page's usual two.
   * @param {Header} [header]
   */
  arrange(header) {
    const names = isSeveral(header) ? lanesOf(header) : [WITH_DRAFTS, ALONE];
    const notes = names.map((name) => noteOf(name, header));
    const arrangement = JSON.stringify([names, notes]);
    if (arrangement === this.#arranged) return;
    this.#arranged = arrangement;
    if (isSeveral(header)) this.#root.dataset.several = String(names.length);
    else delete this.#root.dataset.several;
    this.#root.style.setProperty("--sv-rows", String(Math.ceil(names.length / 2)));
    const drafted = draftedLanes(header);
    const articles = names.map((name, i) => this.#article(name, drafted, i, notes[i]));
    this.#box.replaceChildren(...articles);
    // The last visible lane has room for the switch.
    const last = articles[hasBaseline(header) ? articles.length - 1 : 0];
    find(last, ".sv-foot").append(this.#mode);
    this.lanes = articles.map((article) => new Lane(article));
  }

  /** Show the articles of a page without a race. */
  clear() {
    this.#arranged = "";
    this.arrange();
  }

  /**
   * Mark the chosen lane of a race of named lanes, and show each lane's ratio next to its name.
   * @param {Header} header
   * @param {Map<LaneName, Standing>} standings
   * @param {LaneName} chosen  the lane that the figures are about
   */
  markChosen(header, standings, chosen) {
    if (!isSeveral(header)) return;
    for (const article of this.#box.children) {
      const name = article instanceof HTMLElement ? article.dataset.lane ?? "" : "";
      const standing = standings.get(name);
      article.classList.toggle("is-chosen", name === chosen);
      article.querySelector(".sv-lane-name")?.setAttribute("aria-pressed", String(name === chosen));
      const ratio = article.querySelector("[data-ratio]");
      if (!ratio || !standing) continue;
      ratio.textContent = standing.ratio === null ? "" : `${standing.ratio.toFixed(2)}×`;
      ratio.classList.toggle("is-best", standing.isBest);
      const title = standing.isBest ? "The fastest lane" : "Speed-up over the target alone";
      ratio.setAttribute("title", title);
    }
  }

  /**
   * @param {LaneName} name
   * @param {LaneName[]} drafted  all lanes with drafts: the index among them selects a colour and a dash
   * @param {number} number  of the article, from 0
   * @param {{ text: string, warning: string }} note
   */
  #article(name, drafted, number, { text, warning }) {
    const isAlone = name === ALONE;
    const isNamed = !isAlone && name !== WITH_DRAFTS;
    const id = `sv-name-${number}`;
    const title = element("h2", "", { id }, this.#nameOf(name, drafted));
    const ratio = isNamed ? [element("b", "sv-lane-ratio", { dataset: { ratio: name } })] : [];
    const note = warning
      ? element("em", "sv-inexact", text, { title: warning })
      : element("small", "", text, { title: text, dataset: { guesser: name } });
    const rate = element("span", "sv-value", { dataset: { rate: name } });
    const label = isAlone ? `Tokens of the ${labelOf(name)}` : `Tokens ${labelOf(name)}`;
    const idle = element("p", "sv-empty", isAlone ? IDLE_ALONE : IDLE_DRAFTED);
    const key = isAlone ? "alone" : drafted.indexOf(name) % KEYS;
    return element(
      "article",
      "",
      { "aria-labelledby": id, dataset: { lane: name, key } },
      element("header", "", title, ...ratio, note, rate),
      element("div", "sv-bar", { dataset: { bar: name } }, element("i"), element("u", "", { hidden: true })),
      element("div", "sv-stream", { role: "group", "aria-label": label }, idle),
      footOf(name),
    );
  }

  /** @type {(name: LaneName, drafted: LaneName[]) => HTMLElement} */
  #nameOf(name, drafted) {
    if (name === ALONE) return defined("target", "Target alone");
    return name === WITH_DRAFTS ? defined("draft", "With drafts") : this.#nameButton(name, drafted);
  }

  /** @type {(name: LaneName, drafted: LaneName[]) => HTMLButtonElement} */
  #nameButton(name, drafted) {
    const title = `Show the figures of this lane (${drafted.indexOf(name) + 1} of ${drafted.length})`;
    return element("button", "sv-lane-name", name, { title, onclick: () => this.#choose(name) });
  }
}

/** @param {LaneName} name */
function footOf(name) {
  const sums = defined("pass", { dataset: { sums: name, define: "pass" } });
  if (name === ALONE) return element("footer", "sv-foot", sums);
  const phases = PHASES.map(([phase, words]) =>
    element("li", `is-${phase.toLowerCase()}`, phase, element("small", "", words)));
  const slowly = element("button", "sv-link", "Step by step", {
    dataset: { explain: name },
    title: "This round in numbers, step by step (E)",
  });
  return element("footer", "sv-foot", sums, element("ol", "sv-phases", ...phases), slowly);
}

/**
 * The note next to a lane's name, and the warning if its text is not the target's.
 * @param {LaneName} name
 * @param {Header} [header]
 */
function noteOf(name, header) {
  if (name === ALONE) return { text: isSeveral(header) ? "" : "one token a pass", warning: "" };
  if (!header) return { text: "many guesses, one pass", warning: "" };
  const settings = header.lanes[name] ?? header.settings;
  if (!isSeveral(header)) return { text: header.source ? GUESSER : guesser(settings), warning: "" };
  if (!changedLanes(header).includes(name)) return { text: "", warning: "" };
  return { text: "changes the text", warning: verdictKind(ruleOf(settings)).warning };
}

// Whether the lanes show each verdict, or only the emitted text with a thin mark where a guess was rejected.
// The style sheet does the rest.
/** @typedef {"marks" | "text"} Mode */

/** @type {{ mode: Mode, title: string }[]} */
const MODES = [
  { mode: "marks", title: "Every guess with its verdict (M)" },
  { mode: "text", title: "The text alone, with a thin mark where a guess was rejected (M)" },
];
const REMEMBERED = "specviz-reading";

export class ReadingMode {
  /** The switch, which the lanes display. */
  node;
  #page;

  /** @param {Needs<"root" | "address">} page */
  constructor(page) {
    this.#page = page;
    const buttons = MODES.map(({ mode, title }) => element("button", "", mode, { title, dataset: { mode } }));
    const group = { role: "group", "aria-label": "What the lanes show" };
    this.node = element("span", "sv-mode", group, ...buttons);
    this.node.addEventListener("click", (event) => {
      const mode = closest(event, "[data-mode]")?.dataset.mode;
      if (mode) this.#choose(mode === "text" ? "text" : "marks");
    });
    this.#set(page.address.asked.reading ?? remembered(REMEMBERED));
  }

  get isText() {
    return this.#page.root.dataset.reading === "text";
  }

  toggle() {
    this.#choose(this.isText ? "marks" : "text");
  }

  /** @param {Mode} mode */
  #choose(mode) {
    this.#set(mode);
    remember(REMEMBERED, mode);
  }

  /** @param {unknown} mode  anything but "text" means marks */
  #set(mode) {
    const { root, address } = this.#page;
    const reading = mode === "text" ? "text" : "marks";
    root.dataset.reading = reading;
    for (const button of findAll(this.node, "button", HTMLButtonElement)) {
      button.setAttribute("aria-pressed", String(button.dataset.mode === reading));
    }
    address.change({ reading });
  }
}
