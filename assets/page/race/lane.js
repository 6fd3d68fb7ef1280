// One lane's token stream: rounds are appended and removed as the playhead moves.

import { element, find } from "specviz/dom/dom.js";
import { ALONE } from "specviz/facts/lanes.js";
import { drawnToken, restOfWord, tokensOf, tokensSoFar } from "specviz/race/token.js";
import { START } from "specviz/words/markdown.js";

const AT_END = 48; // px from the end within which the lane still follows its text
const BY_HAND = ["wheel", "touchmove", "keydown", "pointerdown"]; // events with which a visitor scrolls
const HAND_LASTS = 400; // ms after such an event in which the lane may scroll because of it
const MIN_LINE = 0.94; // of its usual height, which leaves room for the marks above a line
const MAX_LINE = 1.25;
const FRESH = 2; // newest rounds with full marks
const FLASH = 160; // ms for which a round of a fast run keeps full marks
const MAX_FRESH = 12; // the most rounds with full marks
const AT_ONCE = 30; // rounds whose marks change in one frame; those of a whole run would delay it

/**
 * A token, and the state of the text before it.
 * @typedef {{ token: ShownToken, before: TextState, fragments: Fragment[] }} DrawnToken
 * @typedef {object} DrawnRound
 * @property {Place} place
 * @property {Round} round
 * @property {DrawnToken[]} tokens
 * @property {TextState} before
 * @property {TextState} after
 * @property {boolean} isPartial
 * @property {number} at  ms, the time of drawing
 * @property {boolean} isMarked  whether its marks are full
 */

/** Draws one lane into its article. */
export class Lane {
  /** @type {LaneName} */
  name;
  stream;
  #text = element("div");
  #caret = element("i", "sv-caret");
  #ahead = element("span", "sv-ahead");
  #rows = new Rows(this.#text);
  #drawn = /** @type {DrawnRound[]} */ ([]);
  #newest = /** @type {HTMLElement[]} */ ([]); // parts of the newest round
  #total = 0; // tokens
  /** @type {TextState} */
  #start = { breaks: 0, isDue: false, reading: null };
  #pinned = true; // whether the lane follows the end of its text
  #pointed = /** @type {HTMLElement[]} */ ([]); // parts of the round at the moment that is pointed at
  /** The scroll position before the text was scrolled to that round, in px. @type {number | null} */
  #scrolledFrom = null;
  #movedAt = -Infinity; // ms, the time of the visitor's latest scroll
  #leaving; // observes blocks that were the last one

  /** @param {HTMLElement} article */
  constructor(article) {
    this.name = article.dataset.lane ?? "";
    this.stream = find(article, ".sv-stream");
    this.#text.dir = "auto"; // for prompts in right-to-left scripts
    for (const name of BY_HAND) {
      this.stream.addEventListener(name, (event) => { this.#movedAt = event.timeStamp; }, { passive: true });
    }
    // A layout scrolls too, but only the visitor's scrolling leaves the end.
    this.stream.addEventListener("scroll", (event) => {
      const { scrollHeight, scrollTop, clientHeight } = this.stream;
      const isAtEnd = scrollHeight - scrollTop - clientHeight < AT_END;
      if (isAtEnd || event.timeStamp - this.#movedAt < HAND_LASTS) this.#pinned = isAtEnd;
      if (this.#pinned === isAtEnd && !isAtEnd) this.#movedAt = event.timeStamp; // during a drag or a fling
    }, { passive: true });
    // Keep the end of the text visible when the height of the text or of the lane changes.
    const toEnd = new ResizeObserver(() => {
      this.#showWholeLines();
      if (this.#pinned) this.#scrollToEnd();
    });
    toEnd.observe(this.stream);
    toEnd.observe(this.#text);
    this.#leaving = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) continue;
        target.classList.remove("is-in-sight");
        this.#leaving.unobserve(target);
      }
    }, { root: this.stream });
  }

  /** @param {string} prompt  that the text continues; empty before an answer, which is read as Markdown */
  reset(prompt) {
    this.#start = { breaks: 0, isDue: false, reading: prompt ? null : START };
    this.#drawn = [];
    this.#total = 0;
    this.#pinned = true;
    this.#pointed = [];
    this.#scrolledFrom = null;
    this.#rows.clear();
    this.stream.replaceChildren(this.#text);
    if (prompt) this.#rows.last.append(element("span", "sv-given", prompt));
    this.stream.scrollTop = 0;
  }

  /** Show this node instead of the text. @param {HTMLElement} node */
  empty(node) {
    this.reset("");
    this.stream.replaceChildren(node);
  }

  /**
   * Show these finished rounds and, with `partial`, the next one up to that step.
   * @param {Round[]} rounds
   * @param {PlayStep | null} [partial]
   * @param {Round[]} [next]  the following rounds, if they are known
   */
  show(rounds, partial, next = []) {
    const last = this.#drawn[this.#drawn.length - 1];
    const block = this.#rows.lastBlock;
    if (last?.isPartial) this.#goOn(last, rounds[this.#drawn.length - 1], partial);
    while (this.#drawn.length > rounds.length && !this.#drawn[this.#drawn.length - 1].isPartial) {
      this.#takeBack();
    }
    for (const round of rounds.slice(this.#drawn.length)) this.#append(round, tokensOf(round), false);
    if (partial && this.#drawn.length === rounds.length) {
      this.#append(partial.round, tokensSoFar(partial), true);
    }
    if (block.nextElementSibling) {
      block.classList.add("is-in-sight");
      this.#leaving.observe(block);
    }
    // Reserve room for the rest of a word, or the word would jump to the next line as it grows.
    const [first, ...later] = next;
    const isRowDue = this.#drawn[this.#drawn.length - 1]?.after.isDue;
    const coming = first ? [...tokensOf(first).slice(partial?.seen ?? 0), ...later.flatMap(tokensOf)] : [];
    this.#ahead.textContent = isRowDue ? "" : restOfWord(coming);
    this.#rows.last.append(this.#ahead, this.#caret);
    this.#markNewest();
    this.#keepReachable();
  }

  /** Keep one token in the tab order; arrows move from it to others. */
  #keepReachable() {
    if (this.stream.querySelector(".t[tabindex='0']")) return;
    const first = this.stream.querySelector(".t[data-index]");
    if (first instanceof HTMLElement) first.tabIndex = 0;
  }

  /**
   * Move a light along the guesses of the current round: the pass that reads all of them.
   * @param {number} lasts ms
   */
  sweep(lasts) {
    const drawn = this.#drawn[this.#drawn.length - 1]?.tokens ?? [];
    const guesses = drawn.flatMap(({ fragments }) => fragments.map(({ node }) => node));
    const beam = element("i", "sv-beam");
    const { length } = guesses;
    if (!length) return;
    this.#text.append(beam);
    const centres = guesses.map((node) => ({
      x: node.offsetLeft + node.offsetWidth / 2,
      y: node.offsetTop + node.offsetHeight / 2,
    }));
    const first = centres[0];
    const last = centres[length - 1];
    const frame = (/** @type {Point} */ { x, y }, opacity = 1) =>
      ({ transform: `translate(${x}px, ${y}px) translate(-50%, -50%)`, opacity });
    const frames = [
      frame({ x: first.x - 60, y: first.y }, 0),
      ...centres.map((centre) => frame(centre)),
      frame({ x: last.x + 60, y: last.y }, 0),
    ];
    beam.animate(frames, { duration: lasts }).finished.catch(() => {}).then(() => beam.remove());
    guesses.forEach((node, i) => {
      const after = ((i + 0.5) / (length + 1)) * lasts;
      node.style.setProperty("--lit-after", `${after}ms`);
    });
  }

  /**
   * Continue a partly drawn round: only tokens whose verdict has changed are redrawn.
   * @param {DrawnRound} last
   * @param {Round | undefined} done  the finished round at its index
   * @param {PlayStep | null} [partial]
   */
  #goOn(last, done, partial) {
    const soFar = partial?.round === last.round ? tokensSoFar(partial) : null;
    const tokens = done === last.round ? tokensOf(done) : soFar;
    if (!tokens || tokens.length < last.tokens.length) {
      this.#takeBack();
      return;
    }
    this.#total += tokens.length - last.tokens.length;
    last.isPartial = done !== last.round;
    this.#fill(last, tokens);
  }

  /**
   * Give the newest rounds full marks until the run is over; after that, marks appear under the pointer.
   * Returns whether rounds are left for the next frame.
   * @param {{ isRunning: boolean, isOver: boolean }} run
   */
  mark({ isRunning, isOver }) {
    const now = performance.now();
    const newest = this.#drawn.length - 1;
    const isFresh = (/** @type {number} */ age, /** @type {number} */ at) =>
      this.name !== ALONE && (age < FRESH || (isRunning && age < MAX_FRESH && now - at < FLASH));
    let left = AT_ONCE;
    for (let i = newest; i >= 0 && left >= 0; i -= 1) {
      const drawn = this.#drawn[i];
      const isMarked = !isOver && isFresh(newest - i, drawn.at);
      if (drawn.isMarked === isMarked) continue;
      left -= 1;
      drawn.isMarked = isMarked;
      for (const part of drawn.place.parts) part.classList.toggle("is-marked", isMarked);
    }
    return left < 0;
  }

  /** Follow the end of the text again, wherever the visitor has scrolled. */
  follow() {
    this.#pinned = true;
    this.#scrollToEnd();
  }

  /**
   * Mark the round at the moment that is pointed at elsewhere; null for none.
   * @param {number | null} index
   * @param {boolean} [isBrought]  whether to scroll it into view while it is pointed at
   */
  point(index, isBrought = false) {
    const drawn = this.#drawn.find(({ round }) => round.index === index);
    const parts = drawn?.place.parts ?? [];
    for (const part of this.#pointed) if (!parts.includes(part)) part.classList.remove("is-pointed");
    for (const part of parts) part.classList.add("is-pointed");
    this.#pointed = [...parts];
    if (parts.length && isBrought) this.#bring(parts[0]);
    else if (this.#scrolledFrom !== null && (!parts.length || !isBrought)) {
      this.stream.scrollTop = this.#scrolledFrom;
      this.#scrolledFrom = null;
    }
  }

  /** Scroll a hidden part of a round into view, and keep the scroll position. @param {HTMLElement} part */
  #bring(part) {
    const { stream } = this;
    const box = stream.getBoundingClientRect();
    const { top, bottom } = part.getBoundingClientRect();
    if (top >= box.top && bottom <= box.bottom) return;
    this.#scrolledFrom ??= stream.scrollTop;
    stream.scrollTop += (top + bottom - box.top - box.bottom) / 2;
  }

  #scrollToEnd() {
    this.stream.scrollTop = this.stream.scrollHeight;
  }

  /** Fit the line height to the height of the lane, so that no line is cut off at the upper edge. */
  #showWholeLines() {
    const { lineHeight, paddingTop, paddingBottom } = getComputedStyle(this.stream);
    const room = this.stream.clientHeight - parseFloat(paddingTop) - parseFloat(paddingBottom);
    const line = sharedLine(room, parseFloat(lineHeight));
    const { style } = this.#text;
    const height = `${line.height}px`;
    const spare = `${line.spare}px`;
    if (style.lineHeight !== height) style.lineHeight = height;
    if (style.paddingBottom !== spare) style.paddingBottom = spare;
  }

  // Mark the newest round: in slow motion its words move.
  #markNewest() {
    const parts = this.#drawn[this.#drawn.length - 1]?.place.parts ?? [];
    for (const part of this.#newest) if (!parts.includes(part)) part.classList.remove("is-newest");
    for (const part of parts) part.classList.add("is-newest");
    this.#newest = [...parts];
  }

  /** @type {(round: Round, tokens: ShownToken[], isPartial: boolean) => void} */
  #append(round, tokens, isPartial) {
    const last = this.#drawn[this.#drawn.length - 1];
    const standing = last?.after ?? this.#start;
    const before = this.#rows.isTooLong ? { ...standing, isDue: true } : standing;
    /** @type {DrawnRound} */
    const drawn = {
      place: this.#rows.begin(last?.place),
      round,
      tokens: [],
      before,
      after: before,
      isPartial,
      at: performance.now(),
      isMarked: false,
    };
    this.#total += tokens.length;
    this.#fill(drawn, tokens);
    this.#drawn.push(drawn);
  }

  /**
   * Draw the tokens of the newest round; unchanged ones keep their nodes.
   * @param {DrawnRound} drawn
   * @param {ShownToken[]} tokens
   */
  #fill(drawn, tokens) {
    const first = this.#total - tokens.length; // index of the first one in its lane
    let standing = drawn.before;
    drawn.tokens = tokens.map((token, i) => {
      const old = drawn.tokens[i];
      const before = standing;
      const { fragments, after } = drawnToken(token, drawn.round, first + i, before);
      standing = after;
      const stays = old?.token.outcome === token.outcome && isSame(old.before, before);
      return stays ? old : { token, before, fragments };
    });
    drawn.after = standing;
    this.#rows.fill(drawn.place, drawn.tokens.flatMap(({ fragments }) => fragments));
  }

  #takeBack() {
    const last = this.#drawn.pop();
    if (!last) return;
    this.#rows.remove(last.place);
    this.#total -= last.tokens.length;
  }
}

/**
 * The line height near the usual one with which whole lines fill a room, and the spare height. In whole px,
 * since browsers round.
 * @type {(room: number, usual: number) => { height: number, spare: number }}
 */
export function sharedLine(room, usual) {
  const few = Math.max(1, Math.floor(room / usual));
  const heights = [few + 1, few].map((count) => Math.floor(room / count));
  const isLine = (/** @type {number} */ height) => height >= usual * MIN_LINE && height <= usual * MAX_LINE;
  const height = heights.find(isLine) ?? usual;
  return { height, spare: Math.max(0, room % height) || 0 };
}

/**
 * Whether a token would be drawn the same in both states.
 * @type {(a: TextState, b: TextState) => boolean}
 */
function isSame(a, b) {
  return a.breaks === b.breaks && a.isDue === b.isDue
    && JSON.stringify(a.reading) === JSON.stringify(b.reading);
}

// The rows of a lane's text, in blocks. A row is a line of the text, which may wrap; the rows of a code block
// are marked. A round is in one or several rows, and owns those that it begins.

// Tokens of a block. Blocks outside the view are not laid out. A block that was the last one is laid out
// until it leaves the view: switching earlier would cost a second layout of all of it.
const BLOCK = 40;
const MAX_BLOCK = 1024; // tokens; a longer block ends in the middle of a line
const TAB = 4; // columns, as in the style sheet
const FURTHER = 2; // columns of extra indent for the rest of a wrapped line of code
const MAX_HANG = 16; // columns of indent, since a narrow lane needs the rest

/**
 * The position of a round in the rows.
 * @typedef {object} Place
 * @property {HTMLElement} row  in which it begins
 * @property {string} block  the role of that row in a code block before the round
 * @property {HTMLElement[]} parts  of it, one in that row and one in each that it owns
 * @property {HTMLElement[]} rows  that it owns
 * @property {HTMLElement | null} before  the part of the previous round, if it is in the same row
 */

class Rows {
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
   * Put the fragments of the newest round into their rows; present ones are not touched, or their animations
   * would start again.
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

  /** Remove the newest round. @param {Place} place */
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
/** @type {(place: Place, isUnguessed: boolean) => void} */
function markRing({ before }, isUnguessed) {
  before?.querySelector(":scope > .t.own")?.classList.toggle("goes-on", isUnguessed);
}
