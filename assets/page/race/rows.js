// The rows of a lane's text, in blocks. A row is a line of the text, which may wrap; the rows of a code block
// are marked. A round is in one or several rows, and owns those that it begins.

import { element } from "specviz/dom/dom.js";

// Tokens of a block. Blocks outside the view are not laid out. A block that was the last one is laid out
// until it leaves the view: switching earlier would cost a second layout of all of it.
const BLOCK = 40;
const MAX_BLOCK = 1024; // tokens; a longer block ends in the middle of a line
const TAB = 4; // columns, as in the style sheet
const FURTHER = 2; // columns of extra indent for the rest of a wrapped line of code
const MAX_HANG = 16; // columns of indent, since a narrow lane needs the rest

/**
 * The nodes of a round.
 * @typedef {object} RoundNodes
 * @property {HTMLElement} row  in which it begins
 * @property {string} blockBefore  the role of that row in a code block before the round
 * @property {HTMLElement[]} parts  of it, one in that row and one in each that it owns
 * @property {HTMLElement[]} rows  that it owns
 * @property {HTMLElement | null} previousPart  the part of the previous round, if it is in the same row
 */

export class Rows {
  #text;

  /** @param {HTMLElement} text  the parent of the rows */
  constructor(text) {
    this.#text = text;
  }

  /** Remove all rows, and add the first one again. */
  clear() {
    this.#text.replaceChildren();
    this.#add();
  }

  /** The last block; the text may have other nodes after it for a moment. */
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

  /** Whether the last block is so long that a row must begin. */
  get isTooLong() {
    return countIn(this.lastBlock) >= MAX_BLOCK;
  }

  /**
   * @param {RoundNodes} [last]  of the newest round
   * @returns {RoundNodes} of the next round
   */
  begin(last) {
    const row = this.last;
    const part = element("span", "sv-round");
    row.append(part);
    const end = last?.parts[last.parts.length - 1];
    const previousPart = end?.parentElement === row ? end : null;
    return { row, blockBefore: row.dataset.block ?? "", parts: [part], rows: [], previousPart };
  }

  /**
   * Put the fragments of the newest round into their rows; present ones are not touched, or their animations
   * would start again.
   * @type {(nodes: RoundNodes, fragments: Fragment[]) => void}
   */
  fill(nodes, fragments) {
    /** @type {Set<Element>} */
    const wanted = new Set(fragments.map(({ node }) => node));
    for (const node of nodes.parts.flatMap((part) => [...part.children])) {
      if (!wanted.has(node)) node.remove();
    }
    setBlock(nodes.row, nodes.blockBefore);
    let count = 0; // rows that the round owns, so far
    let last = /** @type {Element | null} */ (null); // fragment in the row
    for (const { node, opensRow, isSpaced, block } of fragments) {
      if (opensRow) {
        if (count === nodes.rows.length) this.#extend(nodes);
        count += 1;
        last = null;
        nodes.rows[count - 1].classList.toggle("is-spaced", isSpaced);
        setBlock(nodes.rows[count - 1], "");
      }
      const part = nodes.parts[count];
      const next = last ? last.nextSibling : part.firstChild;
      if (node !== next) part.insertBefore(node, next);
      if (block) setBlock(count ? nodes.rows[count - 1] : nodes.row, block);
      last = node;
    }
    while (nodes.rows.length > count) this.#shorten(nodes);
    for (const row of [nodes.row, ...nodes.rows]) setHang(row);
    markEnds(fragments);
    const [first] = fragments;
    markRing(nodes, Boolean(first?.node.matches(".own") && !first.opensRow));
  }

  /** Remove the newest round. @param {RoundNodes} nodes */
  remove(nodes) {
    while (nodes.rows.length) this.#shorten(nodes);
    nodes.parts[0].remove();
    markRing(nodes, false);
    setBlock(nodes.row, nodes.blockBefore);
    setHang(nodes.row);
  }

  /** @param {RoundNodes} nodes */
  #extend(nodes) {
    const row = this.#add();
    const part = element("span", "sv-round");
    part.classList.toggle("is-marked", nodes.parts[0].matches(".is-marked"));
    row.append(part);
    nodes.rows.push(row);
    nodes.parts.push(part);
  }

  /** @param {RoundNodes} nodes */
  #shorten(nodes) {
    const row = nodes.rows.pop();
    const block = row?.parentElement;
    nodes.parts.pop();
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

// Indent the rest of a wrapped line of code. A rejected guess does not change the indent.
/** @param {HTMLElement} row */
function setHang(row) {
  if (!row.dataset.block) return;
  const writtenNodes = [...row.querySelectorAll(".t:not(.rejected, .ignored)")];
  const line = writtenNodes.map(({ textContent }) => textContent ?? "").join("");
  const blanks = line.match(/^[ \t]+/)?.[0] ?? "";
  const after = (/** @type {number} */ column, /** @type {string} */ blank) =>
    column + (blank === "\t" ? TAB - (column % TAB) : 1);
  const columns = [...blanks].reduce(after, 0);
  const further = blanks.includes("\t") ? TAB : FURTHER; // with tabs, the indent is a multiple of them
  if (columns) row.style.setProperty("--hang", String(Math.min(columns + further, MAX_HANG)));
  else row.removeAttribute("style");
}

// The mark is at the end of a token, or of the last one of several accepted tokens. Inside code, a rejected
// guess and the ignored ones after it share one mark, which ends with its row.
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

// Of rounds without a guess in one row, only the last has the ring.
/** @type {(nodes: RoundNodes, isUnguessed: boolean) => void} */
function markRing({ previousPart }, isUnguessed) {
  previousPart?.querySelector(":scope > .t.own")?.classList.toggle("goes-on", isUnguessed);
}
