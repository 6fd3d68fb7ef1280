// The places of the lanes: the two of the page's own, or as many as a race of named lanes has.

import { element, find, findAll } from "specviz/dom/dom.js";
import { Lane } from "specviz/race/lane.js";
import { ALONE, draftedLanes, labelOf, lanesOf } from "specviz/facts/lanes.js";
import { verdictKind } from "specviz/facts/vocabulary.js";
import { changedLanes, ruleOf } from "specviz/words/rules.js";

/** @import { Metrics } from "specviz/facts/metrics.js" */

/** A lane's figures, and whether it is the fastest. @typedef {{ metrics: Metrics, isBest: boolean }} Standing */

export class LaneGrid {
  /** @type {Lane[]} */
  lanes = [];
  #root;
  #choose;
  #bars;
  #box;
  #own; // the two lanes and bars of the page
  #shown = ""; // the names of the lanes that have a place, and of those that change the text

  /**
   * @param {HTMLElement} root
   * @param {(lane: LaneName) => void} choose  told of the lane that a visitor asks about
   */
  constructor(root, choose) {
    this.#root = root;
    this.#choose = choose;
    this.#bars = find(root, ".sv-bars");
    this.#box = find(root, ".sv-lanes");
    const articles = findAll(this.#box, "[data-lane]", HTMLElement);
    this.#own = {
      articles, bars: findAll(this.#bars, "[data-bar]", HTMLElement), lanes: articles.map((one) => new Lane(one)),
    };
    this.lanes = this.#own.lanes;
  }

  /**
   * Give the lanes of a race their places.
   * @param {Header} header
   */
  arrange(header) {
    const names = header.lanes ? lanesOf(header) : [], changed = changedLanes(header);
    const shown = [...names, ...changed].join("\n");
    if (shown === this.#shown) return;
    this.#shown = shown;
    if (names.length) this.#root.dataset.several = String(names.length);
    else delete this.#root.dataset.several;
    this.#root.style.setProperty("--sv-rows", String(Math.ceil(names.length / 2)));
    const { articles, bars, lanes } = this.#own;
    const drafted = draftedLanes(header);
    const own = names.map((name, place) => this.#article(name, place, drafted, changed.includes(name) ? verdictKind(ruleOf(header.lanes?.[name] ?? header.settings)).warning : ""));
    this.#box.replaceChildren(...(names.length ? own : articles));
    this.#bars.replaceChildren(...(names.length ? names.map(barOf) : bars));
    this.lanes = names.length ? own.map((one) => new Lane(one)) : lanes;
  }

  /**
   * What is said of each lane of a race of named lanes beside its name.
   * @param {Header} header
   * @param {Map<LaneName, Standing>} standings
   * @param {LaneName} chosen  the lane that the figures are about
   */
  mark({ lanes }, standings, chosen) {
    if (!lanes) return;
    for (const article of this.#box.children) {
      const name = article instanceof HTMLElement ? article.dataset.lane ?? "" : "";
      const standing = standings.get(name);
      article.classList.toggle("is-chosen", name === chosen);
      article.querySelector("button")?.setAttribute("aria-pressed", String(name === chosen));
      const ratio = article.querySelector("[data-ratio]");
      if (!ratio || !standing) continue;
      const { speedup } = standing.metrics;
      ratio.textContent = speedup === null ? "" : `${speedup.toFixed(2)}×`;
      ratio.classList.toggle("is-best", standing.isBest);
      ratio.setAttribute("title", standing.isBest ? "The fastest lane" : "Times the speed of the target alone");
    }
  }

  /**
   * @param {LaneName} name
   * @param {number} place
   * @param {LaneName[]} drafted
   * @param {string} warning  if its text is not the target's
   */
  #article(name, place, drafted, warning) {
    const article = element("article"), head = element("h2"), stream = element("div", "sv-stream");
    article.dataset.lane = name;
    head.id = `sv-name-${place}`;
    article.setAttribute("aria-labelledby", head.id);
    if (name === ALONE) head.append(element("span", "", "Target alone"));
    else head.append(this.#nameButton(name, drafted), ratioOf(name));
    if (warning) head.append(noteOf(warning));
    const sums = element("small");
    sums.dataset.sums = name;
    head.append(sums);
    stream.setAttribute("role", "group");
    stream.setAttribute("aria-label", `Tokens of ${labelOf(name)}`);
    article.append(head, stream);
    setKey(article, name, drafted);
    return article;
  }

  /**
   * @param {LaneName} name
   * @param {LaneName[]} drafted
   */
  #nameButton(name, drafted) {
    const button = element("button", "sv-lane-name", name);
    button.type = "button";
    button.title = `Show the figures of this lane (${drafted.indexOf(name) + 1} of ${drafted.length})`;
    button.addEventListener("click", () => this.#choose(name));
    return button;
  }
}

/** @param {string} title */
function noteOf(title) {
  const note = element("em", "sv-inexact", "changes the text");
  note.title = title;
  return note;
}

/** @param {LaneName} name */
function ratioOf(name) {
  const ratio = element("b", "sv-lane-ratio");
  ratio.dataset.ratio = name;
  return ratio;
}

/**
 * @param {LaneName} name
 * @param {number} _
 * @param {LaneName[]} names
 */
function barOf(name, _, names) {
  const bar = element("div", "sv-bar"), track = element("div", "sv-track");
  bar.dataset.bar = name;
  const mark = element("u");
  mark.hidden = true;
  track.append(element("i"), mark);
  bar.append(element("span", "", labelOf(name)), track, element("span", "sv-value", "–"));
  setKey(bar, name, names.slice(0, -1));
  return bar;
}

/**
 * The place among the lanes with drafts chooses a colour and a dash, as in the charts.
 * @param {HTMLElement} node
 * @param {LaneName} name
 * @param {LaneName[]} drafted
 */
function setKey(node, name, drafted) {
  node.dataset.key = name === ALONE ? "alone" : String(drafted.indexOf(name) % 8);
}
