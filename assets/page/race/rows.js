// The rows of a lane's text, in blocks. A row is a line of the text, however often it wraps; those of a
// block of code know that they are. A round stands in one row or in several, and owns those that it begins.

import { element } from "specviz/dom/dom.js";

// Tokens; whole blocks outside the view are not laid out. A block that was the last stays as it is until
// it leaves the view: to learn that it may be left out, and that it may not, would be a second layout of
// all of it.
const BLOCK = 40;
const LONGEST_BLOCK = 1024; // tokens, after which a block ends although no line does

/**
 * Where a round stands.
 * @typedef {object} Place
 * @property {HTMLElement} row  in which it begins
 * @property {string} block  what that row was to a block of code before it
 * @property {HTMLElement[]} parts  of it, one in that row and one in each that it owns
 * @property {HTMLElement[]} rows  that it owns
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

  get lastBlock() {
    return /** @type {HTMLElement} */ (this.last.parentElement);
  }

  get last() {
    return [...this.#text.querySelectorAll(".sv-row")].pop() ?? this.#add();
  }

  /** Whether the last block has gone on for so long that a row must begin. */
  get isTooLong() {
    return countIn(this.lastBlock) >= LONGEST_BLOCK;
  }

  /** @returns {Place} of the next round */
  begin() {
    const row = /** @type {HTMLElement} */ (this.last);
    const part = element("span", "sv-round");
    row.append(part);
    return { row, block: row.dataset.block ?? "", parts: [part], rows: [] };
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
    markEnds(fragments);
  }

  /** Away with the newest round. @param {Place} place */
  remove(place) {
    while (place.rows.length) this.#shorten(place);
    place.parts[0].remove();
    setBlock(place.row, place.block);
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
    row?.remove();
    if (block && !block.querySelector(".sv-row")) block.remove();
  }

  #add() {
    const last = [...this.#text.querySelectorAll(".sv-block")].pop();
    const block = last && countIn(last) < BLOCK ? last : element("div", "sv-block");
    const row = element("div", "sv-row");
    block.append(row);
    if (block !== last) this.#text.append(block);
    return row;
  }
}

/** @param {Element} block */
const countIn = (block) => block.querySelectorAll("[data-index]").length;

/** @type {(row: HTMLElement, block: string) => void} */
function setBlock(row, block) {
  if (block) row.dataset.block = block; else delete row.dataset.block;
}

// A sign stands at the end of a token, and of accepted ones behind the last: not where a row ends
// within them.
/** @param {Fragment[]} fragments */
function markEnds(fragments) {
  fragments.forEach(({ node }, i) => {
    const next = fragments[i + 1];
    const goesOn = next?.opensRow && (next.node.dataset.of !== undefined
      || (node.matches(".accepted") && next.node.matches(".accepted")));
    node.classList.toggle("goes-on", Boolean(goesOn));
  });
}
