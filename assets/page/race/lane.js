// One lane's token stream: rounds are appended and taken back as the playhead moves.

import { element, find } from "specviz/dom/dom.js";
import { ALONE } from "specviz/facts/lanes.js";
import { isWritten, restOfWord, tokenNode, tokensOf, tokensSoFar } from "specviz/race/token.js";
import { read, START } from "specviz/words/markdown.js";

// Tokens; whole blocks outside the view are not laid out. A block ends where the text breaks a
// line anyway, for its end is one too. A block that was the last stays as it is until it leaves the
// view: to learn that it may be left out, and that it may not, would be a second layout of all of it.
const BLOCK = 40;
const LONGEST_BLOCK = 1024;
const AT_END = 48; // px from the end within which the view keeps following
const BY_HAND = ["wheel", "touchmove", "keydown", "pointerdown"]; // what a visitor scrolls with
const HAND_LASTS = 400; // ms from such an event in which the lane may still scroll by it
const FRESH = 2; // newest rounds, whose marks are full
const FLASH = 160; // ms for which a round of a fast run keeps them
const MOST_FRESH = 12; // rounds that have them at once
const AT_ONCE = 30; // rounds whose marks change with one frame: those of a whole run would hold it up

/**
 * @typedef {object} Standing  where a text stands
 * @property {boolean} isBroken  whether it ends in a line break
 * @property {Reading | null} reading  as Markdown; null if it is none
 * @typedef {object} DrawnRound
 * @property {HTMLElement} node
 * @property {HTMLElement | null} rest  its tokens that moved on into the next block
 * @property {Round} round
 * @property {ShownToken[]} tokens
 * @property {Standing} before
 * @property {Standing} after
 * @property {boolean} isPartial
 * @property {number} at  ms, when it was drawn
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
  #drawn = /** @type {DrawnRound[]} */ ([]);
  #total = 0; // tokens
  /** @type {Standing} */
  #start = { isBroken: false, reading: null };
  #pinned = true; // whether the end of the text stays in sight
  #movedAt = -Infinity; // ms, when a visitor last scrolled
  #leaving; // watches blocks that were the last

  /** @param {HTMLElement} article */
  constructor(article) {
    this.name = article.dataset.lane ?? "";
    this.stream = find(article, ".sv-stream");
    this.#text.dir = "auto"; // a prompt from right to left goes on so
    for (const name of BY_HAND) {
      this.stream.addEventListener(name, (event) => { this.#movedAt = event.timeStamp; }, { passive: true });
    }
    // A layout scrolls too: only whoever scrolls by hand leaves the end.
    this.stream.addEventListener("scroll", (event) => {
      const { scrollHeight, scrollTop, clientHeight } = this.stream;
      const isAtEnd = scrollHeight - scrollTop - clientHeight < AT_END;
      if (isAtEnd || event.timeStamp - this.#movedAt < HAND_LASTS) this.#pinned = isAtEnd;
      if (this.#pinned === isAtEnd && !isAtEnd) this.#movedAt = event.timeStamp; // a drag or a fling goes on
    }, { passive: true });
    // Whatever changes the height of the text or of the lane, its end stays in sight.
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

  /** @param {string} prompt  that the text goes on from; empty before an answer, which is read as Markdown */
  reset(prompt) {
    this.#start = { isBroken: false, reading: prompt ? null : START };
    this.#drawn = [];
    this.#total = 0;
    this.#pinned = true;
    this.#text.replaceChildren();
    this.stream.replaceChildren(this.#text);
    const block = this.#newBlock();
    if (prompt) block.append(element("span", "sv-given", prompt));
    this.stream.scrollTop = 0;
  }

  /**
   * Show these finished rounds and, if given, as much of the next as an event tells.
   * @param {Round[]} rounds
   * @param {PlayEvent | null} [part]
   * @param {Round[]} [next]  the rounds that follow, as far as they are known
   */
  show(rounds, part, next = []) {
    const last = this.#drawn[this.#drawn.length - 1], block = this.#lastBlock();
    if (last?.isPartial) this.#goOn(last, rounds[this.#drawn.length - 1], part);
    while (this.#drawn.length > rounds.length && !this.#drawn[this.#drawn.length - 1].isPartial) this.#takeBack();
    for (const round of rounds.slice(this.#drawn.length)) this.#append(round, tokensOf(round), false);
    if (part && this.#drawn.length === rounds.length) this.#append(part.round, tokensSoFar(part), true);
    if (block.nextElementSibling) {
      block.classList.add("is-in-sight");
      this.#leaving.observe(block);
    }
    // The rest of a word holds its place, or the word would jump to the next line as it grows.
    const [first, ...later] = next;
    this.#ahead.textContent = first ? restOfWord([...tokensOf(first).slice(part?.seen ?? 0), ...later.flatMap(tokensOf)]) : "";
    this.#lastBlock().append(this.#ahead, this.#caret);
  }

  /**
   * One light along the guesses of the round under way: the pass that sees them all.
   * @param {number} lasts ms
   */
  sweep(lasts) {
    const guesses = [...this.#drawn[this.#drawn.length - 1]?.node.children ?? []].filter((node) => node instanceof HTMLElement);
    const beam = element("i", "sv-beam"), { length } = guesses;
    if (!length) return;
    this.#text.append(beam);
    const places = guesses.map((node) => ({ x: node.offsetLeft + node.offsetWidth / 2, y: node.offsetTop + node.offsetHeight / 2 }));
    const [first, last] = [places[0], places[length - 1]];
    const way = [{ x: first.x - 60, y: first.y, shown: 0 }, ...places.map((place) => ({ ...place, shown: 1 })), { x: last.x + 60, y: last.y, shown: 0 }];
    const frames = way.map(({ x, y, shown }) => ({ transform: `translate(${x}px, ${y}px) translate(-50%, -50%)`, opacity: shown }));
    beam.animate(frames, { duration: lasts }).finished.catch(() => {}).then(() => beam.remove());
    guesses.forEach((node, i) => node.style.setProperty("--lit-after", `${((i + 0.5) / (length + 1)) * lasts}ms`));
  }

  /**
   * The round that is drawn in part goes on: only what has another verdict now is drawn anew.
   * @param {DrawnRound} last
   * @param {Round | undefined} done  the finished round in its place
   * @param {PlayEvent | null} [part]
   */
  #goOn(last, done, part) {
    const tokens = done === last.round ? tokensOf(done) : part?.round === last.round ? tokensSoFar(part) : null;
    if (!tokens || tokens.length < last.tokens.length) {
      this.#takeBack();
      return;
    }
    const first = this.#total - last.tokens.length, before = last.tokens;
    last.after = this.#fill(last.node, { ...last, tokens }, before, first);
    this.#total += tokens.length - before.length;
    Object.assign(last, { tokens, isPartial: done !== last.round });
  }

  /**
   * Marks are full where a run stands still; while it goes on only those of the newest rounds are.
   * Returns whether rounds are left for the next frame.
   * @param {boolean} isRunning
   */
  mark(isRunning) {
    const now = performance.now(), newest = this.#drawn.length - 1;
    const isFresh = (/** @type {number} */ age, /** @type {number} */ at) =>
      this.name !== ALONE && (age < FRESH || (age < MOST_FRESH && now - at < FLASH));
    let left = AT_ONCE;
    for (let i = newest; i >= 0 && left >= 0; i -= 1) {
      const round = this.#drawn[i], wanted = !isRunning || isFresh(newest - i, round.at);
      if (round.isMarked === wanted) continue;
      left -= 1;
      round.isMarked = wanted;
      for (const part of [round.node, round.rest]) part?.classList.toggle("is-marked", wanted);
    }
    return left < 0;
  }

  /** Back to the end of the text, wherever the viewer had scrolled. */
  follow() {
    this.#pinned = true;
    this.#scrollToEnd();
  }

  #scrollToEnd() {
    this.stream.scrollTop = this.stream.scrollHeight;
  }

  /** Room that is too low for a line goes below the last one: no line is cut off at the upper edge. */
  #showWholeLines() {
    const { lineHeight, paddingTop, paddingBottom } = getComputedStyle(this.stream);
    const room = this.stream.clientHeight - parseFloat(paddingTop) - parseFloat(paddingBottom);
    const spare = `${Math.max(0, room % parseFloat(lineHeight)) || 0}px`;
    if (this.#text.style.paddingBottom !== spare) this.#text.style.paddingBottom = spare;
  }

  #newBlock() {
    const block = element("div", "sv-block");
    this.#text.append(block);
    return block;
  }

  #lastBlock() {
    return [...this.#text.querySelectorAll(".sv-block")].pop() ?? this.#newBlock();
  }

  /** @type {(round: Round, tokens: ShownToken[], isPartial: boolean) => void} */
  #append(round, tokens, isPartial) {
    const before = this.#drawn[this.#drawn.length - 1]?.after ?? this.#start;
    const last = this.#lastBlock(), count = last.querySelectorAll("[data-index]").length;
    const block = count >= LONGEST_BLOCK ? this.#newBlock() : count >= BLOCK ? this.#cut(last) : last;
    const node = element("span", "sv-round");
    const after = this.#fill(node, { round, tokens, before }, [], this.#total);
    block.append(node);
    this.#total += tokens.length;
    this.#drawn.push({ node, rest: null, round, tokens, before, after, isPartial, at: performance.now(), isMarked: false });
  }

  // The block that goes on after a full one: a new one with what stands behind the last line break,
  // if the newest round has one, perhaps within a token.
  /** @param {Element} block */
  #cut(block) {
    const newest = this.#drawn[this.#drawn.length - 1];
    if (!newest || newest.rest) return block;
    const end = [...newest.node.querySelectorAll(".nl:not(.flat)")].pop();
    if (!end) return block;
    const behind = document.createRange(), next = this.#newBlock();
    behind.setStartAfter(end);
    behind.setEndAfter(newest.node);
    next.append(behind.extractContents());
    end.classList.add("flat"); // the block ends the line
    newest.rest = find(next, ".sv-round");
    const [part] = newest.rest.children; // of the token with the break, perhaps empty
    const isSplit = part.hasChildNodes(), before = newest.node.lastElementChild, after = part.nextElementSibling;
    for (const name of ["data-index", "tabindex"]) part.removeAttribute(name);
    if (!isSplit) part.remove();
    before?.classList.toggle("goes-on", isSplit || Boolean(before.matches(".accepted") && after?.matches(".accepted")));
    return next;
  }

  /**
   * Put tokens into the node of their round; those that stand there as they are stay. Returns where the
   * text then stands.
   * @param {HTMLElement} node
   * @param {Pick<DrawnRound, "round" | "tokens" | "before">} drawn
   * @param {ShownToken[]} there  what stands there
   * @param {number} first  place of the first token in its lane
   * @returns {Standing}
   */
  #fill(node, { round, tokens, before }, there, first) {
    let { isBroken, reading } = before;
    tokens.forEach((token, i) => {
      const old = node.children[i], told = reading && read(token.text, reading);
      if (!old || there[i].outcome !== token.outcome) {
        const drawn = tokenNode(token, round, first + i, isBroken, told?.pieces);
        if (old) old.replaceWith(drawn); else node.append(drawn);
      }
      if (!token.text || !(isWritten(token) || token.outcome === "pending")) return;
      if (isWritten(token)) isBroken = token.text.endsWith("\n");
      reading = told && told.after;
    });
    return { isBroken, reading };
  }

  #takeBack() {
    const last = this.#drawn.pop();
    if (!last) return;
    const block = last.node.parentElement;
    last.rest?.parentElement?.remove(); // nothing else is left there
    last.node.remove();
    this.#total -= last.tokens.length;
    if (this.#drawn.length && !block?.querySelector(".sv-round")) block?.remove();
  }
}
