// A crosshair over the four charts, the timeline and the lanes: whoever points at a moment in one of them
// sees the same moment in all, and what was true then.

import { closest, element } from "specviz/dom/dom.js";
import { ALONE, hasBaseline } from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { tokensOf } from "specviz/race/token.js";
import { duration, fixed, perSecond, plural, visible } from "specviz/words/words.js";

const GAP = 14; // px between the pointer and what is said
const EDGE = 8; // px between that and the window
const MAX_TOKENS = 12; // of a round that are named

/** A place in the window, in px. @typedef {{ x: number, y: number }} Point */

export class Crosshair {
  #page;
  #charts;
  #grid;
  #transport;
  #note = element("div", "sv-moment", { hidden: true });
  /** Seconds on the run's clock at which somebody points; null while nobody does. @type {number | null} */
  #time = null;
  #pointer = /** @type {PointerEvent | null} */ (null); // the last that has moved, until it was answered
  #isInLane = false; // whether a token is pointed at: its card tells

  /**
   * @param {Needs<"root" | "session" | "timeline" | "view">} page
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
    // What a finger has touched stays until it touches something else.
    root.addEventListener("pointerleave", ({ pointerType }) => {
      if (pointerType === "mouse") this.clear();
    });
  }

  /** Nobody points any more, or another run is shown. */
  clear() {
    this.#pointer = null;
    if (this.#time === null) return;
    this.#time = null;
    this.#note.hidden = true;
    this.#charts.cross(null);
    this.#transport.cross(null);
    for (const lane of this.#grid.lanes) lane.point(null);
  }

  /** Follow a change of what is drawn: axes may end elsewhere. */
  refresh() {
    if (this.#time !== null) this.#show(this.#time);
  }

  /** @param {PointerEvent} event */
  #hear(event) {
    const isAnswerDue = this.#pointer !== null;
    this.#pointer = event;
    if (!isAnswerDue) requestAnimationFrame(() => this.#answer());
  }

  #answer() {
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

  /** The rounds that may be pointed at: of a finished run all, also those behind the playhead. */
  get #rounds() {
    const { session: { trace }, timeline } = this.#page;
    return trace?.end ? trace.rounds : timeline.shown().rounds;
  }

  /** The moment at which an event points; null where it points at none. @param {PointerEvent} event */
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
    const ours = this.#rounds.filter(({ lane }) => lane === view.chosen);
    const place = Math.max(1, Math.min(Math.round(point.value), ours.length));
    return ours[place - 1]?.clock ?? null;
  }

  /** @param {number} time */
  #show(time) {
    const { session: { trace }, timeline, view } = this.#page;
    if (!trace) return;
    const end = timeline.seconds();
    const moment = Math.max(0, Math.min(time, end));
    const rounds = this.#rounds;
    const ours = rounds.filter(({ lane }) => lane === view.chosen);
    const under = underWay(ours, moment);
    this.#time = moment;
    this.#charts.cross({ clock: moment, round: under ? under.index + 1 : 1 });
    this.#transport.cross(moment);
    const isStill = !timeline.playing && !timeline.live;
    for (const lane of this.#grid.lanes) {
      const own = underWay(rounds.filter((round) => round.lane === lane.name), moment);
      const isDone = own === undefined || moment > own.clock;
      lane.point(isDone ? null : own.index, isStill && !this.#isInLane);
    }
    this.#note.hidden = this.#isInLane;
    if (!this.#isInLane) this.#note.replaceChildren(...this.#momentNodes(trace, ours, moment, end));
  }

  /**
   * The figures at a moment, in words.
   * @type {(trace: Trace, ours: Round[], moment: number, end: number) => HTMLElement[]}
   */
  #momentNodes(trace, ours, moment, end) {
    const { chosen } = this.#page.view;
    const { header } = trace;
    const before = this.#rounds.filter(({ clock }) => clock <= moment);
    const m = measure(before, header, chosen);
    const under = underWay(ours, moment);
    const lines = [];
    const isOver = under !== undefined && moment > under.clock;
    const number = (under?.index ?? 0) + 1;
    const place = isOver ? `After all ${ours.length} rounds` : `Round ${number} of ${ours.length}`;
    lines.push(element("b", "", `${place} · ${duration(moment, end)}`));
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
 * The round of a lane that is under way at a moment, or has just ended; the last one after the lane's end.
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
