// A crosshair over the four charts, the timeline and the lanes: a moment that is pointed at in one of them is
// shown in all, with its figures.

import { closest, element } from "specviz/dom/dom.js";
import { ALONE, hasBaseline } from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { tokensOf } from "specviz/race/token.js";
import { duration, fixed, perSecond, plural, visible } from "specviz/words/words.js";

const GAP = 14; // px between the pointer and the note
const EDGE = 8; // px between the note and the window
const MAX_TOKENS = 12; // listed tokens of a round

/** A place in the window, in px. @typedef {{ x: number, y: number }} Point */

export class Crosshair {
  #page;
  #charts;
  #grid;
  #transport;
  #note = element("div", "sv-moment", { hidden: true });
  /** The moment that is pointed at, in seconds of the run's clock; null if none. @type {number | null} */
  #time = null;
  #pointer = /** @type {PointerEvent | null} */ (null); // the latest event that is not handled yet
  #isInLane = false; // whether a token is pointed at, which has a card

  /**
   * @param {Needs<"root" | "shownRun" | "timeline" | "view">} page
   * @param {object} parts
   * @param {import("specviz/charts/live.js").LiveCharts} parts.charts
   * @param {import("specviz/race/lane-grid.js").LaneGrid} parts.grid
   * @param {import("specviz/race/transport.js").Transport} parts.transport
   */
  constructor(page, { charts, grid, transport }) {
    const { root } = page;
    this.#page = page;
    this.#charts = charts;
    this.#grid = grid;
    this.#transport = transport;
    root.append(this.#note);
    for (const type of ["pointermove", "pointerdown"]) {
      root.addEventListener(type, (event) => this.#hear(/** @type {PointerEvent} */ (event)));
    }
    // After a touch the moment stays until the next touch.
    root.addEventListener("pointerleave", ({ pointerType }) => {
      if (pointerType === "mouse") this.clear();
    });
  }

  /** Hide the crosshair: nothing is pointed at any more, or another run is shown. */
  clear() {
    this.#pointer = null;
    if (this.#time === null) return;
    this.#time = null;
    this.#note.hidden = true;
    this.#charts.cross(null);
    this.#transport.cross(null);
    for (const lane of this.#grid.lanes) lane.point(null);
  }

  /** Redraw it: the axes may have changed. */
  refresh() {
    if (this.#time !== null) this.#show(this.#time);
  }

  /** @param {PointerEvent} event */
  #hear(event) {
    const isScheduled = this.#pointer !== null;
    this.#pointer = event;
    if (!isScheduled) requestAnimationFrame(() => this.#follow());
  }

  #follow() {
    const event = this.#pointer;
    this.#pointer = null;
    if (!event) return;
    const time = this.#timeAt(event);
    if (time === null) {
      this.clear();
      return;
    }
    this.#show(time);
    if (!this.#isInLane) this.#putBeside({ x: event.clientX, y: event.clientY });
  }

  /** The rounds that may be pointed at: all of a finished run, else those up to the playhead. */
  get #rounds() {
    const { shownRun: { trace }, timeline } = this.#page;
    return trace?.end ? trace.rounds : timeline.shown().rounds;
  }

  /** The moment that an event points at; null if it points at none. @param {PointerEvent} event */
  #timeAt(event) {
    const { root, view } = this.#page;
    this.#isInLane = false;
    if (root.dataset.guess || !this.#rounds.length) return null;
    if (closest(event, ".sv-timeline")) return this.#transport.timeAt(event.clientX);
    const token = closest(event, "[data-lane] .t[data-round]");
    if (token) {
      this.#isInLane = true;
      const lane = token.closest("[data-lane]")?.getAttribute("data-lane");
      const index = Number(token.dataset.round);
      return this.#rounds.find((round) => round.lane === lane && round.index === index)?.clock ?? null;
    }
    const figure = closest(event, "[data-line]");
    const point = figure && this.#charts.pointedAt(figure.dataset.line ?? "", event.clientX);
    if (!point) return null;
    if (point.axis === "clock") return point.value;
    const chosenRounds = this.#rounds.filter(({ lane }) => lane === view.chosen);
    const roundNumber = Math.max(1, Math.min(Math.round(point.value), chosenRounds.length));
    return chosenRounds[roundNumber - 1]?.clock ?? null;
  }

  /** @param {number} time */
  #show(time) {
    const { shownRun: { trace }, timeline, view } = this.#page;
    if (!trace) return;
    const end = timeline.seconds();
    const moment = Math.max(0, Math.min(time, end));
    const rounds = this.#rounds;
    const chosenRounds = rounds.filter(({ lane }) => lane === view.chosen);
    const under = underWay(chosenRounds, moment);
    this.#time = moment;
    this.#charts.cross({ clock: moment, round: under ? under.index + 1 : 1 });
    this.#transport.cross(moment);
    const isStill = !timeline.isPlaying && !timeline.isGrowing;
    for (const lane of this.#grid.lanes) {
      const current = underWay(rounds.filter((round) => round.lane === lane.name), moment);
      const isDone = current === undefined || moment > current.clock;
      lane.point(isDone ? null : current.index, isStill && !this.#isInLane);
    }
    this.#note.hidden = this.#isInLane;
    if (!this.#isInLane) this.#note.replaceChildren(...this.#momentNodes(trace, chosenRounds, moment, end));
  }

  /**
   * The figures at a moment, in words.
   * @type {(trace: Trace, chosenRounds: Round[], moment: number, end: number) => HTMLElement[]}
   */
  #momentNodes(trace, chosenRounds, moment, end) {
    const { chosen } = this.#page.view;
    const { header } = trace;
    const before = this.#rounds.filter(({ clock }) => clock <= moment);
    const m = measure(before, header, chosen);
    const under = underWay(chosenRounds, moment);
    const lines = [];
    const isOver = under !== undefined && moment > under.clock;
    const number = (under?.index ?? 0) + 1;
    const count = chosenRounds.length;
    const progress = isOver ? `After all ${count} rounds` : `Round ${number} of ${count}`;
    lines.push(element("b", "", `${progress} · ${duration(moment, end)}`));
    if (under && !isOver) lines.push(tokensLine(under));
    const isRace = hasBaseline(header);
    const alone = isRace ? `, ${m.tokens[ALONE] ?? 0} alone` : "";
    lines.push(element("span", "", `${plural(m.tokens[chosen] ?? 0, "token")} with drafts${alone}`));
    if (m.alpha !== null || m.tau !== null) {
      lines.push(element("span", "", `α ${fixed(m.alpha, 2)} · τ ${fixed(m.tau, 2)}`));
    }
    const rates = m.tokens_per_second;
    const both = isRace ? ` and ${perSecond(rates[ALONE])} alone` : "";
    lines.push(element("span", "", `${perSecond(rates[chosen])} tokens/s with drafts${both}`));
    return lines;
  }

  /** @param {Point} pointer */
  #putBeside({ x, y }) {
    const { offsetWidth: width, offsetHeight: height } = this.#note;
    const right = x + GAP;
    const left = right + width > innerWidth - EDGE ? x - GAP - width : right;
    const below = y + GAP;
    const top = below + height > innerHeight - EDGE ? y - GAP - height : below;
    this.#note.style.transform = `translate(${Math.max(EDGE, left)}px, ${Math.max(EDGE, top)}px)`;
  }
}

/**
 * The round of a lane that is under way at a moment or has just ended; after the lane's end, its last one.
 * @type {(rounds: Round[], moment: number) => Round | undefined}
 */
export function underWay(rounds, moment) {
  return rounds.find(({ clock }) => clock >= moment) ?? rounds[rounds.length - 1];
}

/** The tokens of a round with their marks. @param {Round} round */
function tokensLine(round) {
  const tokens = tokensOf(round);
  const nodes = tokens.slice(0, MAX_TOKENS).map(({ text, outcome }) =>
    element("span", `t ${outcome}`, element("span", "w", visible(text))));
  const rest = tokens.length > MAX_TOKENS ? ["…"] : [];
  return element("span", "sv-moment-tokens", ...nodes, ...rest);
}
