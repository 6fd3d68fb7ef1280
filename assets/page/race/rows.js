// The rows of a lane's text, in blocks. A row is a line of the text, however often it wraps; those of a
// block of code know that they are. A round stands in one row or in several, and owns those that it begins.

import { element } from "specviz/dom/dom.js";

// Tokens; whole blocks outside the view are not laid out. A block that was the last stays as it is until
// it leaves the view: to learn that it may be left out, and that it may not, would be a second layout of
// all of it.
const BLOCK = 40;
const LONGEST_BLOCK = 1024; // tokens, after which a block ends although no line does
const TAB = 4; // columns, as the style sheet has it
const FURTHER = 2; // columns by which a wrapped line of code goes on further in
const MOST_HANG = 16; // columns from the edge: a narrow lane needs the rest

/**
 * Where a round stands.
 * @typedef {object} Place
 * @property {HTMLElement} row  in which it begins
 * @property {string} block  what that row was to a block of code before it
 * @property {HTMLElement[]} parts  of it, one in that row and one in each that it owns
 * @property {HTMLElement[]} rows  that it owns
 * @property {HTMLElement | null} before  the part of the round before it, if that stands in the same row
 */

export class Rows {
  #text;

  /** @param {HTMLElement} text  that they stand in */
  constructor(text) {
    this.#text = text;
  }

  /** Away with all of them; the first is there again. */
  clear() {
    this.#text.replaceChildren();
    this.#add();
  }

  /** The last block; the text may hold other things behind it for a moment. */
  get lastBlock() {
    let node = this.#text.lastElementChild;
    while (node && !node.matches(".sv-block")) node = node.previousElementSibling;
    return node ?? /** @type {HTMLElement} */ (this.#add().parentElement);
  }

  /** @returns {HTMLElement} the last row */
  get last() {
    const row = this.lastBlock.lastElementChild;
    return row instanceof HTMLElement ? row : this.#add();
  }

  /** Whether the last block has gone on for so long that a row must begin. */
  get isTooLong() {
    return countIn(this.lastBlock) >= LONGEST_BLOCK;
  }

  /**
   * @param {Place} [last]  of the newest round
   * @returns {Place} of the next round
   */
  begin(last) {
    const row = this.last;
    const part = element("span", "sv-round");
    row.append(part);
    const end = last?.parts[last.parts.length - 1];
    const before = end?.parentElement === row ? end : null;
    return { row, block: row.dataset.block ?? "", parts: [part], rows: [], before };
  }

  /**
   * Put the fragments of the newest round where they belong; those that are there already are not touched,
   * or what moves in them would begin anew.
   * @type {(place: Place, fragments: Fragment[]) => void}
   */
  fill(place, fragments) {
    /** @type {Set<Element>} */
    const wanted = new Set(fragments.map(({ node }) => node));
    for (const node of place.parts.flatMap((part) => [...part.children])) {
      if (!wanted.has(node)) node.remove();
    }
    setBlock(place.row, place.block);
    let count = 0; // rows that the round owns, so far
    let last = /** @type {Element | null} */ (null); // fragment in the row
    for (const { node, opensRow, isSpaced, block } of fragments) {
      if (opensRow) {
        if (count === place.rows.length) this.#extend(place);
        count += 1;
        last = null;
        place.rows[count - 1].classList.toggle("is-spaced", isSpaced);
        setBlock(place.rows[count - 1], "");
      }
      const part = place.parts[count];
      const next = last ? last.nextSibling : part.firstChild;
      if (node !== next) part.insertBefore(node, next);
      if (block) setBlock(count ? place.rows[count - 1] : place.row, block);
      last = node;
    }
    while (place.rows.length > count) this.#shorten(place);
    for (const row of [place.row, ...place.rows]) setHang(row);
    markEnds(fragments);
    const [first] = fragments;
    markRing(place, Boolean(first?.node.matches(".own") && !first.opensRow));
  }

  /** Away with the newest round. @param {Place} place */
  remove(place) {
    while (place.rows.length) this.#shorten(place);
    place.parts[0].remove();
    markRing(place, false);
    setBlock(place.row, place.block);
    setHang(place.row);
  }

  /** @param {Place} place */
  #extend(place) {
    const row = this.#add();
    const part = element("span", "sv-round");
    part.classList.toggle("is-marked", place.parts[0].matches(".is-marked"));
    row.append(part);
    place.rows.push(row);
    place.parts.push(part);
  }

  /** @param {Place} place */
  #shorten(place) {
    const row = place.rows.pop();
    const block = row?.parentElement;
    place.parts.pop();
    if (row) setBlock(row, "");
    row?.remove();
    if (block && !block.querySelector(".sv-row")) block.remove();
  }

  #add() {
    const row = element("div", "sv-row");
    const last = [...this.#text.children].filter((node) => node.matches(".sv-block")).pop();
    if (last && countIn(last) < BLOCK) last.append(row);
    else this.#text.append(element("div", "sv-block", row));
    return row;
  }
}

/** @param {Element} block */
const countIn = (block) => block.querySelectorAll("[data-index]").length;

/** @type {(row: HTMLElement, block: string) => void} */
function setBlock(row, block) {
  row.previousElementSibling?.classList.toggle("is-last-of-code", block === "close");
  if (block) {
    row.dataset.block = block;
    return;
  }
  delete row.dataset.block;
  row.removeAttribute("style"); // only a line of code hangs
}

// A line of code that wraps goes on further in than it begins. A guess that was rejected moves no line.
/** @param {HTMLElement} row */
function setHang(row) {
  if (!row.dataset.block) return;
  const kept = [...row.querySelectorAll(".t:not(.rejected, .ignored)")];
  const blanks = kept.map(({ textContent }) => textContent ?? "").join("").match(/^[ \t]+/)?.[0] ?? "";
  const after = (/** @type {number} */ column, /** @type {string} */ blank) =>
    column + (blank === "\t" ? TAB - (column % TAB) : 1);
  const columns = [...blanks].reduce(after, 0);
  const further = blanks.includes("\t") ? TAB : FURTHER; // tabs reach to multiples of what a line hangs by
  if (columns) row.style.setProperty("--hang", String(Math.min(columns + further, MOST_HANG)));
  else row.removeAttribute("style");
}

// A sign stands at the end of a token, and of accepted ones behind the last. Inside code a refused guess and
// what was ignored after it are one slip, which ends with its row.
/** @param {Fragment[]} fragments */
function markEnds(fragments) {
  fragments.forEach(({ node }, i) => {
    const next = fragments[i + 1];
    const isInParts = next?.node.dataset.of !== undefined;
    const areAccepted = node.matches(".accepted") && next?.node.matches(".accepted");
    node.classList.toggle("goes-on", Boolean(isInParts || areAccepted));
    node.classList.toggle("slips-on", Boolean(next?.node.matches(".ignored") && !next.opensRow));
  });
}

// Of rounds without a guess that stand in one row, the last has the ring.
/** @type {(place: Place, isOwn: boolean) => void} */
function markRing({ before }, isOwn) {
  before?.querySelector(":scope > .t.own")?.classList.toggle("goes-on", isOwn);
}
