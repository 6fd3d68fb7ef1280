// One lane's token stream: rounds are appended and removed as the playhead moves.

import { element, find } from "specviz/dom/dom.js";
import { ALONE } from "specviz/facts/lanes.js";
import { Rows } from "specviz/race/rows.js";
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
const MAX_MARKED = 30; // rounds whose marks change in one frame; those of a whole run would delay it

/**
 * A token, and the state of the text before it.
 * @typedef {{ token: ShownToken, stateBefore: TextState, fragments: Fragment[] }} DrawnToken
 * @typedef {object} DrawnRound
 * @property {RoundNodes} nodes
 * @property {Round} round
 * @property {DrawnToken[]} tokens
 * @property {TextState} stateBefore
 * @property {TextState} stateAfter
 * @property {boolean} isPartial
 * @property {number} at  ms, the time of drawing
 * @property {boolean} isMarked  whether its marks are full
 */

/** @typedef {import("specviz/race/rows.js").RoundNodes} RoundNodes */

/** Draws one lane into its article. */
export class Lane {
  /** @type {LaneName} */
  name;
  stream;
  #text = element("div");
  #caret = element("i", "sv-caret");
  #reserved = element("span", "sv-ahead");
  #rows = new Rows(this.#text);
  #drawn = /** @type {DrawnRound[]} */ ([]);
  #newest = /** @type {HTMLElement[]} */ ([]); // parts of the newest round
  #tokenCount = 0;
  /** @type {TextState} */
  #startState = { breaks: 0, isDue: false, reading: null };
  #pinned = true; // whether the lane follows the end of its text
  #pointed = /** @type {HTMLElement[]} */ ([]); // parts of the round at the moment that is pointed at
  /** The scroll position before the text was scrolled to that round, in px. @type {number | null} */
  #scrolledFrom = null;
  #movedAt = -Infinity; // ms, the time of the visitor's latest scroll
  #leavingBlocks; // observes blocks that were the last one

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
      if (!this.#pinned && !isAtEnd) this.#movedAt = event.timeStamp; // during a drag or a fling
    }, { passive: true });
    // Keep the end of the text visible when the height of the text or of the lane changes.
    const toEnd = new ResizeObserver(() => {
      this.#showWholeLines();
      if (this.#pinned) this.#scrollToEnd();
    });
    toEnd.observe(this.stream);
    toEnd.observe(this.#text);
    this.#leavingBlocks = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) continue;
        target.classList.remove("is-in-sight");
        this.#leavingBlocks.unobserve(target);
      }
    }, { root: this.stream });
  }

  /** @param {string} prompt  that the text continues; empty before an answer, which is read as Markdown */
  reset(prompt) {
    this.#startState = { breaks: 0, isDue: false, reading: prompt ? null : START };
    this.#drawn = [];
    this.#tokenCount = 0;
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
    if (last?.isPartial) this.#continueRound(last, rounds[this.#drawn.length - 1], partial);
    while (this.#drawn.length > rounds.length && !this.#drawn[this.#drawn.length - 1].isPartial) {
      this.#removeNewest();
    }
    for (const round of rounds.slice(this.#drawn.length)) this.#append(round, tokensOf(round), false);
    if (partial && this.#drawn.length === rounds.length) {
      this.#append(partial.round, tokensSoFar(partial), true);
    }
    if (block.nextElementSibling) {
      block.classList.add("is-in-sight");
      this.#leavingBlocks.observe(block);
    }
    // Reserve room for the rest of a word, or the word would jump to the next line as it grows.
    const [first, ...later] = next;
    const isRowDue = this.#drawn[this.#drawn.length - 1]?.stateAfter.isDue;
    const coming = first ? [...tokensOf(first).slice(partial?.seen ?? 0), ...later.flatMap(tokensOf)] : [];
    this.#reserved.textContent = isRowDue ? "" : restOfWord(coming);
    this.#rows.last.append(this.#reserved, this.#caret);
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
  #continueRound(last, done, partial) {
    const soFar = partial?.round === last.round ? tokensSoFar(partial) : null;
    const tokens = done === last.round ? tokensOf(done) : soFar;
    if (!tokens || tokens.length < last.tokens.length) {
      this.#removeNewest();
      return;
    }
    this.#tokenCount += tokens.length - last.tokens.length;
    last.isPartial = done !== last.round;
    this.#fill(last, tokens);
  }

  /**
   * Give the newest rounds full marks until the run is over; after that, marks appear under the pointer.
   * Returns whether rounds are left for the next frame.
   * @param {{ isRunning: boolean, isOver: boolean }} run
   */
  markNewest({ isRunning, isOver }) {
    const now = performance.now();
    const newest = this.#drawn.length - 1;
    const isFresh = (/** @type {number} */ age, /** @type {number} */ at) =>
      this.name !== ALONE && (age < FRESH || (isRunning && age < MAX_FRESH && now - at < FLASH));
    let left = MAX_MARKED;
    for (let i = newest; i >= 0 && left >= 0; i -= 1) {
      const drawn = this.#drawn[i];
      const isMarked = !isOver && isFresh(newest - i, drawn.at);
      if (drawn.isMarked === isMarked) continue;
      left -= 1;
      drawn.isMarked = isMarked;
      for (const part of drawn.nodes.parts) part.classList.toggle("is-marked", isMarked);
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
   * @param {boolean} [isScrolledTo]  whether to scroll it into view while it is pointed at
   */
  point(index, isScrolledTo = false) {
    const drawn = this.#drawn.find(({ round }) => round.index === index);
    const parts = drawn?.nodes.parts ?? [];
    for (const part of this.#pointed) if (!parts.includes(part)) part.classList.remove("is-pointed");
    for (const part of parts) part.classList.add("is-pointed");
    this.#pointed = [...parts];
    if (parts.length && isScrolledTo) this.#scrollTo(parts[0]);
    else if (this.#scrolledFrom !== null && (!parts.length || !isScrolledTo)) {
      this.stream.scrollTop = this.#scrolledFrom;
      this.#scrolledFrom = null;
    }
  }

  /** Scroll a hidden part of a round into view, and keep the scroll position. @param {HTMLElement} part */
  #scrollTo(part) {
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
    const parts = this.#drawn[this.#drawn.length - 1]?.nodes.parts ?? [];
    for (const part of this.#newest) if (!parts.includes(part)) part.classList.remove("is-newest");
    for (const part of parts) part.classList.add("is-newest");
    this.#newest = [...parts];
  }

  /** @type {(round: Round, tokens: ShownToken[], isPartial: boolean) => void} */
  #append(round, tokens, isPartial) {
    const last = this.#drawn[this.#drawn.length - 1];
    const state = last?.stateAfter ?? this.#startState;
    const stateBefore = this.#rows.isTooLong ? { ...state, isDue: true } : state;
    /** @type {DrawnRound} */
    const drawn = {
      nodes: this.#rows.begin(last?.nodes),
      round,
      tokens: [],
      stateBefore,
      stateAfter: stateBefore,
      isPartial,
      at: performance.now(),
      isMarked: false,
    };
    this.#tokenCount += tokens.length;
    this.#fill(drawn, tokens);
    this.#drawn.push(drawn);
  }

  /**
   * Draw the tokens of the newest round; unchanged ones keep their nodes.
   * @param {DrawnRound} drawn
   * @param {ShownToken[]} tokens
   */
  #fill(drawn, tokens) {
    const first = this.#tokenCount - tokens.length; // index of the first one in its lane
    let state = drawn.stateBefore;
    drawn.tokens = tokens.map((token, i) => {
      const old = drawn.tokens[i];
      const stateBefore = state;
      const { fragments, after } = drawnToken(token, drawn.round, first + i, stateBefore);
      state = after;
      const stays = old?.token.outcome === token.outcome && isSame(old.stateBefore, stateBefore);
      return stays ? old : { token, stateBefore, fragments };
    });
    drawn.stateAfter = state;
    this.#rows.fill(drawn.nodes, drawn.tokens.flatMap(({ fragments }) => fragments));
  }

  #removeNewest() {
    const last = this.#drawn.pop();
    if (!last) return;
    this.#rows.remove(last.nodes);
    this.#tokenCount -= last.tokens.length;
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
