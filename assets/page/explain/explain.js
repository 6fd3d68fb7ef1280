// A dialog in which a visitor goes through one round step by step.

import { closest, closing, element, find } from "specviz/dom/dom.js";
import { milliseconds, textBefore, times } from "specviz/explain/numbers.js";
import { textLine } from "specviz/explain/pictures.js";
import { stepsOf } from "specviz/explain/steps.js";
import { ALONE, labelOf, WITH_DRAFTS, twoOf } from "specviz/facts/lanes.js";
import { secondsOf } from "specviz/facts/uncertainty.js";
import { tokensOf } from "specviz/race/token.js";
import { codeIn } from "specviz/words/code.js";
import { begunBy } from "specviz/words/words.js";
import { fileStem, saveBlob } from "specviz/run/saving.js";
import { instructiveRound } from "specviz/run/slow-motion.js";
import { figureOfRound } from "specviz/explain/round-figure.js";

const READING = 60; // ms for a character of a step while the steps play
const MIN_STEP = 3500; // ms for a step while they play

const FRAME = `
  <header><h2 id="sx-title"></h2><p class="sx-lanes" role="group" aria-label="Lane"></p>
    <p class="sx-rounds"><button type="button" data-go="back">‹</button>
      <button type="button" data-go="on">›</button></p>
    <button type="button" class="sx-save"
      title="A figure of this round, for slides and papers">Save as SVG</button>
    <button type="button" class="sv-close" aria-label="Close">×</button></header>
  <ol class="sx-chapters" aria-label="Steps"></ol>
  <div class="sx-words"><small class="sx-part"></small><p class="sx-sentence" aria-live="polite"></p></div>
  <div class="sx-body" tabindex="0" role="group" aria-label="Picture of this step"></div>
  <div class="sx-foot"><p class="sx-clock"></p><p class="sx-moves">
    <button type="button" data-by="0" aria-pressed="false">Play</button>
    <button type="button" data-by="-1">Back</button><button
      type="button" data-by="1" class="sv-button">Next</button></p></div>`;

export class Explain {
  #page;
  #lane = WITH_DRAFTS; // the lane with drafts whose rounds are explained
  #dialog = element("dialog", "sv-explain", { "aria-labelledby": "sx-title" });
  /** @type {Trace | null} */
  #trace = null; // the trace of the round; the page may show another by now
  #round = /** @type {Round | null} */ (null);
  #isCode = false; // whether some of its tokens are code
  #steps = /** @type {Step[]} */ ([]);
  #stepIndex = 0; // of the shown step
  #timer = 0; // until the next step while the steps play
  #resume = false; // whether the race was playing

  /** @param {Needs<"root" | "shownRun" | "timeline" | "view">} page */
  constructor(page) {
    this.#page = page;
    this.#furnish();
    page.root.append(this.#dialog);
  }

  /**
   * Open with the round of a token, or with the round at a paused playhead; else with one that has a rejected
   * guess, and so all steps.
   * @param {Element | null} [token]
   */
  open(token = document.activeElement?.closest(".t[data-round]")) {
    const { root, shownRun: { trace }, timeline, view } = this.#page;
    if (this.#dialog.open || root.dataset.guess || trace?.header.source) return;
    const lane = token?.closest("[data-lane]")?.getAttribute("data-lane") ?? ALONE;
    this.#lane = lane === ALONE ? view.chosen : lane;
    this.#trace = trace && twoOf(trace, this.#lane);
    find(this.#dialog, `[data-cross=${WITH_DRAFTS}]`).textContent = labelOf(this.#lane);
    const round = this.#roundOf(token ?? null);
    if (!round) return;
    this.#resume = timeline.isPlaying;
    if (this.#resume) timeline.pause();
    this.#dialog.showModal();
    this.#show(round);
    find(this.#dialog, "[data-by='1']").focus({ preventScroll: true });
  }

  #furnish() {
    const dialog = this.#dialog;
    dialog.innerHTML = FRAME; // a constant
    dialog.addEventListener("close", () => {
      this.#togglePlay(false);
      this.#round = null;
      if (this.#resume) this.#page.timeline.play();
    });
    dialog.addEventListener("keydown", (event) => this.#key(event));
    dialog.addEventListener("click", (event) => this.#click(event));
    closing(dialog);
    const lanes = [WITH_DRAFTS, ALONE].map((cross) =>
      element("button", "", labelOf(cross), { dataset: { cross } }));
    find(dialog, ".sx-lanes").append(...lanes);
  }

  /** @param {Element | null} token */
  #roundOf(token) {
    const rounds = this.#trace?.rounds ?? [];
    const at = token?.closest("[data-lane]")?.getAttribute("data-lane");
    const lane = at === this.#lane ? WITH_DRAFTS : at;
    const index = Number(token instanceof HTMLElement ? token.dataset.round : NaN);
    const named = rounds.find((other) => other.lane === lane && other.index === index);
    if (named) return named;
    const { steps, isGrowing, isPlaying, position } = this.#page.timeline;
    const { rounds: done, partial } = this.#page.timeline.shown();
    const played = done.filter((other) => other.lane === this.#lane);
    const last = partial[this.#lane]?.round ?? played[played.length - 1];
    const isHeld = !isPlaying && !isGrowing && position > 0 && position < steps.length;
    const laneRounds = rounds.filter((other) => other.lane === WITH_DRAFTS);
    const offered = position > 0 ? laneRounds.slice(0, played.length) : laneRounds;
    const telling = instructiveRound(offered.length ? offered : laneRounds);
    const best = isHeld && last ? last : telling;
    return laneRounds.find((other) => other.index === best?.index) ?? null;
  }

  /** @param {Round} round */
  #show(round) {
    const trace = this.#trace;
    if (!trace) return;
    this.#round = round;
    const code = codeIn(trace.rounds.filter((other) => other.lane === round.lane), trace.header);
    this.#isCode = tokensOf(round).some((token) => code.has(token));
    this.#dialog.classList.toggle("is-code", this.#isCode);
    this.#steps = stepsOf(round, trace);
    find(this.#dialog, ".sx-save").hidden = !round.drafted.length;
    const count = trace.rounds.filter((other) => other.lane === round.lane).length;
    const kind = round.lane === "baseline" ? "Pass" : "Round";
    find(this.#dialog, "#sx-title").textContent = `${kind} ${round.index + 1} of ${count}`;
    for (const button of this.#dialog.querySelectorAll("[data-cross]")) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-cross") === round.lane));
    }
    this.#labelNeighbour("back", -1, `Previous ${kind.toLowerCase()}`);
    this.#labelNeighbour("on", 1, `Next ${kind.toLowerCase()}`);
    const chapters = [...new Set(this.#steps.map(({ chapter }) => chapter))];
    find(this.#dialog, ".sx-chapters").replaceChildren(...chapters.map((chapter) => {
      const button = element("button", "", chapter, { dataset: { chapter } });
      return element("li", "", button);
    }));
    this.#moveTo(0);
  }

  /** @type {(go: "back" | "on", by: -1 | 1, label: string) => void} */
  #labelNeighbour(go, by, label) {
    const button = find(this.#dialog, `[data-go=${go}]`, HTMLButtonElement);
    button.setAttribute("aria-label", label);
    button.setAttribute("aria-disabled", String(!this.#neighbour(by)));
  }

  /** @param {number} index  of a step */
  #moveTo(index) {
    clearTimeout(this.#timer);
    this.#stepIndex = Math.max(0, Math.min(index, this.#steps.length - 1));
    this.#draw(this.#steps[this.#stepIndex]);
    if (this.#isPlaying) this.#waitForNext();
  }

  /** @param {Step} step */
  #draw(step) {
    const dialog = this.#dialog;
    const trace = this.#trace;
    const round = this.#round;
    if (!trace || !round) return;
    for (const button of dialog.querySelectorAll("[data-chapter]")) {
      const isCurrent = button.getAttribute("data-chapter") === step.chapter;
      if (isCurrent) button.setAttribute("aria-current", "step"); else button.removeAttribute("aria-current");
    }
    find(dialog, ".sx-part").textContent = step.part ?? "";
    find(dialog, ".sx-sentence").textContent = step.sentence;
    const before = begunBy(trace.header) + textBefore(round, trace.rounds).map(({ text }) => text).join("");
    const body = find(dialog, ".sx-body");
    dialog.dataset.chapter = step.chapter;
    const line = textLine(before, step.tokens, { at: step.at, isCode: this.#isCode });
    body.replaceChildren(line, ...step.picture());
    if (step.note) body.append(element("p", "sx-note", step.note));
    body.scrollTop = 0;
    showWithin(line);
    find(dialog, ".sx-clock").replaceChildren(element("small", "", "time of this round"),
      times(round, secondsOf(round), step.until), element("small", "", milliseconds(secondsOf(round))));
    this.#labelMoves();
  }

  #labelMoves() {
    find(this.#dialog, "[data-by='1']").textContent = this.#nextLabel();
    find(this.#dialog, "[data-by='-1']").setAttribute("aria-disabled", String(this.#stepIndex === 0));
  }

  /** The label of the button to the next step or round. */
  #nextLabel() {
    const isLast = this.#stepIndex === this.#steps.length - 1;
    if (!isLast) return "Next";
    if (!this.#neighbour(1)) return "Close";
    return this.#round?.lane === "baseline" ? "Next pass" : "Next round";
  }

  /** @param {number} by  steps; after the last step comes the next round */
  #move(by) {
    const next = this.#neighbour(1);
    if (this.#stepIndex + by < this.#steps.length) this.#moveTo(this.#stepIndex + by);
    else if (next) this.#show(next);
    else this.#dialog.close();
  }

  /** @param {number} by rounds of the same lane */
  #neighbour(by) {
    const { lane, index } = this.#round ?? {};
    return this.#trace?.rounds.find((other) => other.lane === lane && other.index === Number(index) + by);
  }

  // Show the round of another lane that wrote the same position of the text.
  /** @param {string | undefined} lane */
  #cross(lane) {
    const trace = this.#trace;
    const round = this.#round;
    if (!trace || !round || round.lane === lane) return;
    const before = textBefore(round, trace.rounds).length;
    const others = trace.rounds.filter((other) => other.lane === lane).sort((a, b) => a.index - b.index);
    let written = 0;
    const counterpart = others.find((other) => {
      written += other.emitted.length;
      return written > before;
    });
    const newest = others[others.length - 1];
    if (newest) this.#show(counterpart ?? newest);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const onButton = event.target instanceof HTMLButtonElement;
    if (by && event.shiftKey) this.#go(by);
    else if (by) this.#move(by);
    else if (event.key === " " && !onButton) this.#togglePlay();
    else if (event.key.toLowerCase() === "e") this.#dialog.close();
    else return;
    event.preventDefault();
  }

  /** @param {number} by rounds */
  #go(by) {
    const round = this.#neighbour(by);
    if (round) this.#show(round);
  }

  #save() {
    const trace = this.#trace;
    const round = this.#round;
    if (!trace || !round) return;
    const figure = new Blob([figureOfRound(round, trace)], { type: "image/svg+xml" });
    saveBlob(figure, `${fileStem(trace.header)}-round-${round.index + 1}.svg`);
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const button = closest(event, "button");
    if (!button) return;
    if (button.classList.contains("sx-save")) this.#save();
    const { by, go, chapter, cross } = button.dataset;
    if (by === "0") this.#togglePlay();
    else if (by) this.#move(Number(by));
    if (go) this.#go(go === "on" ? 1 : -1);
    if (chapter) this.#moveTo(this.#steps.findIndex((step) => step.chapter === chapter));
    if (cross) this.#cross(cross);
  }

  get #isPlaying() {
    return find(this.#dialog, "[data-by='0']").getAttribute("aria-pressed") === "true";
  }

  /** @param {boolean} [play] */
  #togglePlay(play = !this.#isPlaying) {
    clearTimeout(this.#timer);
    const button = find(this.#dialog, "[data-by='0']");
    button.setAttribute("aria-pressed", String(play));
    button.textContent = play ? "Pause" : "Play";
    if (!play) return;
    if (this.#stepIndex === this.#steps.length - 1) this.#moveTo(0); else this.#waitForNext();
  }

  /** Schedule the next step; playing ends at the last step of a round. */
  #waitForNext() {
    if (this.#stepIndex === this.#steps.length - 1) {
      this.#togglePlay(false);
      return;
    }
    const { sentence } = this.#steps[this.#stepIndex];
    const delay = Math.max(MIN_STEP, READING * sentence.length);
    this.#timer = setTimeout(() => this.#moveTo(this.#stepIndex + 1), delay);
  }
}

/** Scroll a long text to the token of the step. @param {HTMLElement} line */
function showWithin(line) {
  const token = line.querySelector(".is-at");
  if (!token || line.scrollHeight <= line.clientHeight) return;
  const { top } = token.getBoundingClientRect();
  line.scrollTop += top - line.getBoundingClientRect().top - line.clientHeight / 2;
}
