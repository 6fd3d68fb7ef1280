// Everything that follows the playhead.

import { Crosshair } from "specviz/race/crosshair.js";
import { Definitions, listenToLegend } from "specviz/race/definitions.js";
import { LiveCharts } from "specviz/charts/live.js";
import { find, isStill } from "specviz/dom/dom.js";
import { Pending } from "specviz/race/pending.js";
import { LaneGrid } from "specviz/race/lane-grid.js";
import { ALONE, draftedLanes, hasBaseline, ruleOf, twoOf, twoRounds } from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { MOTION, instructiveRound } from "specviz/run/slow-motion.js";
import { Cards, Openers } from "specviz/opening.js";
import { Readout } from "specviz/race/readout.js";
import { Strip } from "specviz/race/strip.js";
import { Transport } from "specviz/race/transport.js";
import { isRatioShown, settled } from "specviz/words/verdict.js";
import { begunBy, helper, spoken } from "specviz/words/words.js";

const SPEAK_EVERY = 2500; // ms between sentences for screen readers
const FRAME = 16; // ms
const HIDDEN_FRAME = 100; // ms
const WORDS_EVERY = 45; // ms during a run: every third frame
const FIGURES_EVERY = 60; // ms in a short run
const FIGURES_SELDOM = 250; // ms in a long run, whose figures change little and take longer
const QUICK = 4; // ms; faster figures are drawn in the same frame as words
const NOT_YET = "Press Run: every number is measured.";
const PENDING = "Your run has not begun yet.";
const ROUNDS_OF_A_WORD = 4; // at most

/** The requested frames, at most one at a time. */
class Frames {
  #draw;
  #isAsked = false;
  #timer = 0; // until the next frame with something to draw

  /** @param {() => void} draw */
  constructor(draw) {
    this.#draw = draw;
  }

  /** @param {number} [wait]  ms until something is due: an empty frame costs much of a full one */
  request(wait = 0) {
    if (this.#isAsked) return;
    clearTimeout(this.#timer);
    if (wait > FRAME && !document.hidden) {
      this.#timer = setTimeout(() => this.request(), wait - FRAME);
      return;
    }
    this.#isAsked = true;
    // A hidden tab gets no frames, but its state must stay right.
    if (document.hidden) setTimeout(this.#draw, HIDDEN_FRAME);
    else requestAnimationFrame(this.#draw);
  }

  /** A frame is being drawn: the next one may be requested. */
  begun() {
    this.#isAsked = false;
  }
}

/**
 * now: ms. wasRunning: whether a run went on in the frame before. pace: ms between two frames with figures.
 * @typedef {{ now: number, isRunning: boolean, wasRunning: boolean, pace: number }} Frame
 */

/**
 * Decides which frames draw words and which draw figures. During a run, some frames pass between two with
 * words. Quick figures are drawn with the words; slow ones alternate with them, since a frame with both would
 * be late.
 */
class DrawingTurns {
  areWordsDue = false;
  figuresTook = 0; // ms
  #areFiguresDue = false;
  #wordsAt = -Infinity; // ms, the time of the last drawing
  #figuresAt = -Infinity;

  /** The parts to draw in this frame. @type {(frame: Frame) => { words: boolean, figures: boolean }} */
  partsOf({ now, isRunning, wasRunning, pace }) {
    if (!isRunning) {
      // After a run, the last words come first, and their figures in the next frame.
      const words = this.areWordsDue;
      return { words, figures: words ? !wasRunning : this.#areFiguresDue };
    }
    const isTimeForFigures = now - this.#figuresAt > pace;
    const isTurnOfFigures = this.#areFiguresDue && isTimeForFigures;
    const isTooSoon = wasRunning && now - this.#wordsAt < WORDS_EVERY;
    const words = this.areWordsDue && !isTooSoon && (this.#areQuick || !isTurnOfFigures);
    return { words, figures: isTurnOfFigures || (words && this.#areQuick && isTimeForFigures) };
  }

  /** @param {number} now */
  noteWords(now) {
    this.areWordsDue = false;
    this.#areFiguresDue = true;
    this.#wordsAt = now;
  }

  /** @param {number} now */
  noteFigures(now) {
    this.#areFiguresDue = false;
    this.#figuresAt = now;
  }

  /** Milliseconds after this frame until the next part is due; null if none is. @param {Frame} frame */
  waitAfter({ now, isRunning, pace }) {
    if (this.areWordsDue) return this.#wordsAt + WORDS_EVERY - now;
    if (!this.#areFiguresDue) return null;
    if (!isRunning) return 0;
    return this.#figuresAt + pace + (this.#areQuick ? WORDS_EVERY : 0) - now; // unless words come before
  }

  get #areQuick() {
    return this.figuresTook < QUICK;
  }
}

/** Milliseconds between two frames with figures. @param {Round[]} rounds  the shown ones */
const paceOfFigures = (rounds) => Math.min(FIGURES_SELDOM, Math.max(FIGURES_EVERY, rounds.length / 4));

export class View {
  #page;
  #say;
  #stale;
  #grid;
  #pickedLane = /** @type {LaneName | null} */ (null); // the lane whose figures a visitor asked for
  /** The lane with drafts that the figures are about: the one asked for, or the fastest. */
  chosen = draftedLanes()[0];
  #readout;
  #strip;
  #charts;
  #cards;
  #definitions;
  #openers;
  #transport;
  #pending;
  #crosshair;
  #frames = new Frames(() => this.#draw());
  #turns = new DrawingTurns();
  #spokenAt = -Infinity; // ms

  /** @param {PageGround & PagePlay & Needs<"view" | "stage" | "repeats" | "reading">} page */
  constructor(page) {
    const { root } = page;
    this.#page = page;
    this.#say = find(root, "[data-say]");
    this.#stale = find(root, "[data-stale]");
    this.#charts = new LiveCharts(root);
    this.#readout = new Readout(root, this.#charts);
    this.#strip = new Strip(page);
    this.#grid = new LaneGrid(root, page.reading.node, (lane) => {
      this.#pickedLane = lane;
      this.requestDraw();
    });
    this.#cards = new Cards(page);
    this.#definitions = new Definitions(root);
    listenToLegend(root);
    this.#openers = new Openers(page);
    this.#transport = new Transport(page);
    this.#pending = new Pending(root, this.#grid);
    const parts = { charts: this.#charts, grid: this.#grid, transport: this.#transport };
    this.#crosshair = new Crosshair(page, parts);
  }

  /**
   * Another trace is shown from now on.
   * @param {Trace} trace
   * @param {string} origin  the words of its badge
   */
  begin(trace, origin) {
    this.#cards.close();
    this.#pending.end();
    this.#crosshair.clear();
    const { root, shownRun } = this.#page;
    root.dataset.source = shownRun.source;
    this.#pickedLane = null;
    this.#grid.arrange(trace.header);
    this.#charts.begin();
    root.toggleAttribute("data-watched", Boolean(trace.header.source));
    root.toggleAttribute("data-one-lane", !hasBaseline(trace.header));
    for (const lane of this.#grid.lanes) lane.reset(begunBy(trace.header));
    find(root, "[data-clause]").textContent = helper(trace.header);
    this.#readout.begin();
    this.#strip.show(trace, origin);
    this.#showMismatch();
  }

  /** Show a requested run without results so far. @param {PendingRun} pending */
  showPending(pending) {
    const { root, shownRun: { trace } } = this.#page;
    if (!root.hasAttribute("data-pending")) {
      this.#cards.close();
      this.#showMismatch();
      this.#readout.clear(PENDING);
      if (trace) this.#openers.show([], trace, this.chosen); // remove the figures of the previous run
    }
    this.#pending.show(pending);
    this.requestDraw();
  }

  /** The requested run will not begin: show the previous run again. */
  restore() {
    const { shownRun: { origin, trace } } = this.#page;
    this.#pending.end();
    this.#grid.clear();
    if (trace) this.begin(trace, origin);
    else this.#readout.clear(NOT_YET);
    this.requestDraw();
  }

  /**
   * Some rounds of the shown trace were replaced: draw all tokens again.
   * @param {Trace} trace
   */
  redrawTokens(trace) {
    this.#cards.close();
    for (const lane of this.#grid.lanes) lane.reset(begunBy(trace.header));
    this.requestDraw();
  }

  /** Show the description of the run once more. */
  describe() {
    const { shownRun: { origin, pending, trace } } = this.#page;
    if (trace && !pending) this.#strip.show(trace, origin);
    this.compareControls();
  }

  /** The controls have changed, or a run has begun or ended. */
  compareControls() {
    this.#strip.compare();
    this.#showMismatch();
    this.#page.repeats.offer();
  }

  // Show a note if the shown run does not match the controls.
  #showMismatch() {
    const { root, shownRun } = this.#page;
    const { text, isFaded } = shownRun.mismatch;
    root.toggleAttribute("data-faded", isFaded);
    this.#stale.hidden = !text;
    if (this.#stale.textContent !== text) this.#stale.textContent = text;
  }

  requestDraw() {
    this.#turns.areWordsDue = true;
    this.#frames.request();
  }

  /** Draw at once, not with the next frame. */
  draw() {
    this.#turns.areWordsDue = true;
    this.#draw();
  }

  /** Draw what is due in this frame. */
  #draw() {
    this.#frames.begun();
    const { root: { dataset }, shownRun: { pending, trace }, timeline } = this.#page;
    const content = timeline.shown();
    const now = performance.now();
    const wasRunning = dataset.state === "running";
    dataset.state = this.#state();
    const isRunning = dataset.state === "running";
    const frame = { now, isRunning, wasRunning, pace: paceOfFigures(content.rounds) };
    const parts = this.#turns.partsOf(frame);
    if (parts.words) {
      this.#turns.noteWords(now);
      this.#drawWords(content, trace);
    }
    if (parts.figures) {
      const begun = performance.now();
      this.#turns.noteFigures(now);
      if (trace && !pending) this.#drawFigures(content.rounds, trace);
      this.#turns.figuresTook = performance.now() - begun;
    }
    const wait = this.#drawMarks(parts, isRunning) ? 0 : this.#turns.waitAfter(frame);
    if (wait !== null) this.#frames.request(wait);
  }

  /**
   * Draw marks if the frame has no figures; during a run they are drawn with words. Returns whether they need
   * another frame.
   * @type {(parts: { words: boolean, figures: boolean }, isRunning: boolean) => boolean}
   */
  #drawMarks(parts, isRunning) {
    if (parts.figures && !parts.words) return !isRunning;
    const run = { isRunning, isOver: this.#page.root.dataset.state === "ended" };
    const hasMore = this.#grid.lanes.map((lane) => lane.markNewest(run));
    return hasMore.includes(true);
  }

  /** @type {(shown: ReturnType<Timeline["shown"]>, trace: Trace | null) => void} */
  #drawWords({ rounds, partial }, trace) {
    const { shownRun: { busy, pending }, shell, stage, timeline } = this.#page;
    document.body.classList.toggle("sv-busy", busy);
    shell.offerStop(busy);
    this.#transport.show(trace);
    if (!trace || pending) return;
    for (const lane of this.#grid.lanes) {
      const isOfLane = (/** @type {Round} */ round) => round.lane === lane.name;
      const laneRounds = rounds.filter(isOfLane);
      const start = laneRounds.length;
      const next = trace.rounds.filter(isOfLane).slice(start, start + ROUNDS_OF_A_WORD);
      lane.show(laneRounds, partial[lane.name], next);
      if (stage.isOn) lane.follow(); // nobody scrolls on the stage
    }
    this.#cards.refresh();
    this.#showPhase(timeline.moment?.phase);
    // Measure once when a visitor first sees a recording play.
    const isMarked = performance.getEntriesByName("specviz-playing").length > 0;
    if (timeline.isPlaying && timeline.position && !isMarked) performance.mark("specviz-playing");
  }

  /** @type {(rounds: Round[], trace: Trace) => void} */
  #drawFigures(rounds, trace) {
    const standings = this.#updateStandings(rounds, trace);
    this.#page.root.dataset.rule = ruleOf(twoOf(trace, this.chosen).header.settings);
    this.#readout.show(rounds, trace, this.chosen, standings);
    this.#transport.showPosition(rounds.length, trace);
    this.#strip.offerComparison();
    this.#grid.markChosen(trace.header, standings, this.chosen);
    this.#openers.show(twoRounds(rounds, this.chosen), twoOf(trace, this.chosen), this.chosen);
    this.#page.repeats.offer();
    this.#crosshair.refresh();
  }

  /**
   * Play the round at the playhead slowly; at either end of a run, the most instructive round.
   * @param {() => void} still  called instead for visitors who want no motion
   */
  slowDown(still) {
    const { root, shownRun: { trace }, timeline } = this.#page;
    const { steps, position } = timeline;
    if (!trace || root.dataset.guess) return;
    const chosenRounds = trace.rounds.filter(({ lane }) => lane === this.chosen);
    const atEnd = position === 0 || position === steps.length;
    const ahead = steps.slice(Math.max(0, position - 1));
    const next = ahead.find(({ round }) => round.lane === this.chosen)?.round;
    const round = (atEnd ? null : next) ?? instructiveRound(chosenRounds);
    if (trace.header.source || isStill()) still();
    else if (round) timeline.playRoundSlowly(round);
  }

  // Show the phase of the round that plays slowly; its pass is a light over all guesses.
  /** @param {string} [phase] */
  #showPhase(phase) {
    const { dataset } = this.#page.root;
    if (dataset.slowPhase === phase) return;
    if (phase) dataset.slowPhase = phase; else delete dataset.slowPhase;
    if (phase !== "check") return;
    for (const lane of this.#grid.lanes) {
      if (lane.name === this.chosen) lane.sweep(MOTION.sweep);
    }
  }

  /** Announce a round to screen readers, not too often. @param {Round[]} rounds  the new ones */
  speak(rounds) {
    const drafted = rounds.filter(({ lane }) => lane !== ALONE);
    const newest = drafted.filter(({ lane }) => lane === this.chosen || rounds.length === 1).pop();
    if (!newest || performance.now() - this.#spokenAt < SPEAK_EVERY) return;
    this.#spokenAt = performance.now();
    this.#say.textContent = spoken(newest);
  }

  /** Announce the round that the playhead has just finished, at once. */
  speakStep() {
    this.#spokenAt = -Infinity;
    const { steps, position } = this.#page.timeline;
    const step = steps[position - 1];
    if (step?.done) this.speak([step.round]);
  }

  /** Close a card, a definition or the details of the run, and return whether one was open. */
  closeCard() {
    return this.#definitions.close() || this.#cards.close() || this.#strip.close();
  }

  /** Close the panel, and return whether one was open. */
  closePanel() {
    return this.#openers.close();
  }

  /**
   * Compute the standings of the lanes with drafts, and choose the lane that the figures are about.
   * @param {Round[]} rounds
   * @param {Trace} trace
   */
  #updateStandings(rounds, trace) {
    const { header } = trace;
    const names = draftedLanes(header);
    const judged = settled(rounds, trace);
    /** @type {Map<LaneName, Standing>} */
    const standings = new Map();
    for (const name of names) {
      const metrics = measure(judged, header, name);
      const ratio = isRatioShown(trace, metrics) ? metrics.speedup : null;
      standings.set(name, { metrics, ratio, isBest: false });
    }
    const speed = (/** @type {LaneName} */ name) => standings.get(name)?.metrics.speedup ?? -1;
    const [best] = [...names].sort((a, b) => speed(b) - speed(a));
    const standing = standings.get(best);
    if (standing && (standing.ratio ?? 0) > 0) standing.isBest = true;
    this.chosen = this.#pickedLane ?? (speed(best) > 0 ? best : names[0]);
    return standings;
  }

  #state() {
    const { shownRun: { busy, failed, pending, trace }, timeline } = this.#page;
    const { isPlaying, isFollowing, isGrowing, position, steps } = timeline;
    if (pending) return "running";
    if (failed) return "error";
    if (isPlaying || (busy && (isFollowing || !isGrowing))) return "running";
    if (!steps.length) return trace?.end && !busy ? "ended" : "idle";
    return position === steps.length && !isGrowing ? "ended" : "paused";
  }
}
