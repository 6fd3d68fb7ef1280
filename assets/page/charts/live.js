// The charts of the landing: tokens against time, with the gap between the lanes filled and named,
// and three small ones "so far": acceptance, tokens per pass, tokens per second. Their axes stand
// still while a run lasts; those of a live run grow in steps.

import { drawLines, move, namedTicks } from "specviz/charts/lines.js";
import { element, find } from "specviz/dom/dom.js";
import { ALONE, draftedLanes, hasBaseline, lanesOf, OURS } from "specviz/facts/lanes.js";
import { series } from "specviz/facts/metrics.js";
import { duration, fixed, perSecond } from "specviz/words/words.js";

const MINI = { left: 34, right: 92, top: 8, bottom: 24 };
const SPEED = { ...MINI, right: 118 };
const LARGE = { left: 38, right: 14, top: 26, bottom: 26 }; // px
/** Figures at the ends of lines: their names, their charts, and what is said beside them. */
const HEADS = [["alpha", "alpha", "of judged"], ["tau", "tau", ""], ["speed", "speed", ""], ["speed-alone", "speed", "alone"]];
const AIR = 1.15; // how much further than what is there the axis of a live run goes
const STEPS = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];
const ALIKE = 0.1; // the share by which lanes' lengths may differ for their gap to have a name
const LABEL = 22; // px between two labels, at least
const ROOM = 0.22; // of the clock, that a name takes
/** The least room in which the name of a gap fits, small and large: px, or a share of a large chart's width. */
const RATIO = { small: { px: 84, share: 0.22 }, large: { px: 140, share: 0.34 } };
const LARGE_CHART = 400; // px: the letters of a wider one grow with it
const DOT = 7; // px: half of a dot, with some air
const LETTER = 8.4; // px: a digit of a time at the end of a line, at most
/**
 * Where a time can stand at the end of its line, the best place first. box: how far it reaches from the dot
 * to the left, up, right and down, in px, for a text of a width.
 * @type {{ className: string, by: [number, number], box: (width: number) => [number, number, number, number] }[]}
 */
const TIME_PLACES = [
  { className: "is-above", by: [0, -10], box: (width) => [-width / 2, -27, width / 2, -9] },
  { className: "is-left", by: [-12, 0], box: (width) => [-12 - width, -9, -12, 9] },
  { className: "is-beside", by: [12, 0], box: (width) => [12, -9, 12 + width, 9] },
  { className: "is-below", by: [0, 19], box: (width) => [-width / 2, 10, width / 2, 28] },
];

/**
 * @typedef {object} Live
 * @property {Round[]} rounds  shown, of all lanes
 * @property {Trace} trace
 * @property {LaneName} chosen  the lane that the figures are about
 * @property {Metrics} metrics  of what is shown, of that lane
 * @property {string} ratio  the headline, or "?"
 */

export class LiveCharts {
  #boxes = /** @type {Record<string, HTMLElement>} */ ({});
  #sizes = /** @type {Record<string, Size>} */ ({});
  #heads = /** @type {Record<string, HTMLElement>} */ ({});
  #shown = /** @type {Live | null} */ (null);
  /** @type {{ trace: Trace | null, count: number, points: ReturnType<typeof series> }} */
  #whole = { trace: null, count: 0, points: {} };
  #reach = /** @type {Record<string, number>} */ ({}); // how far the axes of a live run go

  /** @param {HTMLElement} root */
  constructor(root) {
    for (const name of ["tokens", "alpha", "tau", "speed"]) {
      const figure = find(root, `[data-line="${name}"]`);
      this.#boxes[name] = find(figure, "div");
      this.#boxes[name].setAttribute("role", "img");
    }
    for (const [name, chart, words] of HEADS) {
      const value = element("b", "", { dataset: chart === name ? { metric: name } : {} });
      this.#heads[name] = element("p", "", { dataset: { head: name } }, value, " ", element("small", "", words));
      this.#boxes[chart].append(this.#heads[name]);
    }
    const sized = new ResizeObserver(() => {
      for (const [name, { clientWidth: width, clientHeight: height }] of Object.entries(this.#boxes)) this.#sizes[name] = { width, height };
      this.#draw();
    });
    for (const box of Object.values(this.#boxes)) sized.observe(box);
  }

  /** Another run is shown. */
  begin() {
    this.#reach = {};
  }

  /** @param {Live} live */
  show(live) {
    this.#shown = live;
    this.#draw();
  }

  #draw() {
    const live = this.#shown;
    if (!live || !this.#sizes.tokens) return;
    const { trace, rounds, chosen } = live;
    const { header } = trace;
    const isOver = trace.end !== null;
    const names = lanesOf(header);
    const points = series(rounds, names);
    const whole = isOver ? this.#wholeOf(trace, names) : points;
    const isPartial = isOver && rounds.length < trace.rounds.length;
    const keyed = keysOf(header);
    const of = (/** @type {string} */ chart, /** @type {number} */ i) => pointsOf(points[chart][i]);
    /** @type {Drawn["lines"]} */
    const lines = (chart, lanes, headed, isThin = true) => lanes.flatMap((name, i) => {
      const key = keyed(name);
      const later = isPartial ? [{ points: pointsOf(whole[chart][i]), key, isThin, isLater: true }] : [];
      return [...later, { points: of(chart, i), key, isThin, hasHead: headed.includes(name) }];
    });
    const reach = {
      clock: this.#end("clock", furthest(whole.tokens, "x"), isOver, live),
      tokens: isOver ? furthest(whole.tokens, "y") : header.settings.max_new_tokens,
      rounds: this.#end("rounds", Math.max(2, furthest(whole.tau, "x")), isOver, live),
      tau: Math.max(gammaOf(header) + 1, Math.ceil(furthest(whole.tau, "y"))), // a watched server's gamma is not known
      speed: this.#end("speed", furthest(whole.speed, "y"), false, live),
    };
    for (const box of Object.values(this.#boxes)) box.dataset.key = keyed(chosen); // colours the words
    this.#drawTokens(live, names, { of, lines }, reach);
    this.#drawMinis(live, names, { of, lines }, reach);
  }

  /** @type {(trace: Trace, names: LaneName[]) => Record<string, Points[]>} */
  #wholeOf(trace, names) {
    if (this.#whole.trace !== trace || this.#whole.count !== trace.rounds.length) {
      this.#whole = { trace, count: trace.rounds.length, points: series(trace.rounds, names) };
    }
    return this.#whole.points;
  }

  // How far an axis goes: as far as a finished run, or a round number beyond a live one, kept until
  // it is passed.
  /** @type {(name: string, value: number, isExact: boolean, live: Live) => number} */
  #end(name, value, isExact, { trace }) {
    if (isExact) return value || 1;
    const known = this.#reach[name] ?? 0;
    if (value > known || !known) this.#reach[name] = stepAbove((value || 1) * (trace.end === null ? AIR : 1));
    return this.#reach[name];
  }

  /**
   * @type {(live: Live, names: LaneName[], drawn: Drawn, reach: Record<string, number>) => void}
   */
  #drawTokens({ rounds, trace, chosen, ratio, metrics }, names, { of, lines }, { clock, tokens }) {
    const ours = of("tokens", names.indexOf(chosen));
    const alone = hasBaseline(trace.header) ? of("tokens", names.indexOf(ALONE)) : [];
    const isWhole = trace.end !== null && rounds.length === trace.rounds.length;
    const isAhead = (metrics.speedup ?? 1) >= 1;
    const gap = gapOf(ours, alone, isWhole);
    const name = draftedLanes(trace.header).length > 1 ? chosen : "with drafts";
    const seconds = (/** @type {number} */ value) =>
      (clock < 1 ? `${Math.round(1000 * value)}${value ? " ms" : ""}` : `${value}${value ? " s" : ""}`);
    drawLines(this.#boxes.tokens, this.#sizes.tokens, {
      x: [0, clock], y: [0, tokens], ticksX: namedTicks(clock, 3, seconds), ticksY: namedTicks(tokens, 2), margin: LARGE,
      lines: lines("tokens", names, names, false),
      area: gap ? { points: gap, key: isAhead ? keysOf(trace.header)(chosen) : "alone" } : undefined,
      labels: alone.length ? labelsOf({ ours, alone, isWhole, ratio, clock, tokens, name, isAhead, size: this.#sizes.tokens }) : [],
    });
    this.#say("tokens", names.map((lane, i) => {
      const { x, y } = lastOf(of("tokens", i));
      const said = lane === ALONE ? "target alone" : lane === OURS ? "with drafts" : lane;
      return `${said}: ${y} tokens in ${duration(x, clock)}`;
    }));
  }

  /**
   * @type {(live: Live, names: LaneName[], drawn: Drawn, reach: Record<string, number>) => void}
   */
  #drawMinis({ trace, chosen, metrics }, names, { of, lines }, { clock, rounds, tau: most, speed }) {
    const drafted = draftedLanes(trace.header);
    const place = drafted.indexOf(chosen);
    const margin = MINI;
    /** @type {[number, string][]} */
    const ticksX = [[1, "1"], [rounds, `round ${Math.round(rounds)}`]];
    const x = /** @type {[number, number]} */ ([1, Math.max(2, rounds)]);
    this.#mini("alpha", { x, y: [0, 1], ticksX, ticksY: [[0, "0"], [1, "1"]], lines: lines("rates", drafted, [chosen]), margin },
      of("rates", place));
    const formula = drafted.length === 1 ? [{ points: of("tau", 1), key: "formula", isThin: true }] : [];
    this.#mini("tau", {
      x, y: [1, most], ticksX, ticksY: [[1, "1"], [most, String(most)]], margin,
      lines: [...formula, ...lines("tau", drafted, [chosen])],
    }, of("tau", place));
    const end = clock < 1 ? `${Math.round(1000 * clock)} ms` : `${Number(clock.toFixed(2))} s`;
    this.#mini("speed", {
      x: [0, clock], y: [0, speed], ticksX: [[0, "0"], [clock, end]], ticksY: [[0, "0"], [speed, short(speed)]],
      lines: lines("speed", names, [chosen, ALONE]), margin: SPEED,
    }, of("speed", names.indexOf(chosen)), of("speed", names.indexOf(ALONE)));
    const [ours, alone] = [chosen, ALONE].map((name) => perSecond(metrics.tokens_per_second[name]));
    this.#say("alpha", [`${fixed(metrics.alpha, 2)} of the judged guesses accepted`]);
    this.#say("tau", [`${fixed(metrics.tau, 2)} tokens per pass, ${fixed(metrics.tau_predicted, 2)} by the formula`]);
    this.#say("speed", [`${ours} tokens per second with drafts, ${alone} alone`]);
  }

  /**
   * @param {string} name
   * @param {LineChart} chart
   * @param {Point[]} line  whose end has the figure
   * @param {Point[]} [other]
   */
  #mini(name, chart, line, other = []) {
    const place = drawLines(this.#boxes[name], this.#sizes[name], chart);
    if (!place) return;
    const { width, height } = this.#sizes[name];
    const edge = width - chart.margin.right;
    const axis = height - MINI.bottom;
    const endOf = (/** @type {Point[]} */ points) => {
      if (!points.length) return null;
      const { x, y } = place(lastOf(points));
      return { x, y: Math.min(y, axis - LABEL / 2) }; // a figure stands above the axis
    };
    const at = endOf(line);
    const beside = endOf(other);
    // Beside its dot a figure would lie over the lines of other lanes, or over its own where that goes on.
    const isSeveralLines = this.#shown !== null && draftedLanes(this.#shown.trace.header).length > 1 && name !== "speed";
    const goesOn = chart.lines.some(({ isLater }) => isLater);
    for (const end of [at, beside]) if (end && (isSeveralLines || goesOn)) end.x = edge;
    // Two figures at one height would lie over each other: the lower one goes down.
    if (at && beside && Math.abs(at.x - beside.x) < 2 * MINI.right && Math.abs(at.y - beside.y) < LABEL) {
      const by = (LABEL - Math.abs(at.y - beside.y)) / 2;
      const sign = at.y <= beside.y ? -1 : 1;
      at.y += sign * by;
      beside.y -= sign * by;
    }
    const put = (/** @type {string} */ key, /** @type {Point | null} */ point) => {
      const head = this.#heads[key];
      if (!head) return;
      head.hidden = !point;
      head.classList.toggle("is-up", chart.margin === MINI && point !== null && point.y > axis - 1.6 * LABEL);
      if (point) move(head, { x: Math.min(point.x, edge) + 11, y: point.y });
    };
    // Before its first round a line has no end: its figure is a dash beside the chart.
    put(name, at ?? { x: edge, y: (chart.margin.top + axis) / 2 });
    put(`${name}-alone`, beside);
  }

  /**
   * The figures at the ends of the lines.
   * @param {Record<"alpha" | "tau" | "speed" | "speed-alone", [string, string]>} figures  value and words
   */
  tell(figures) {
    for (const [name, [value, words]] of Object.entries(figures)) {
      const [figure, said] = this.#heads[name].children;
      if (figure.textContent !== value) figure.textContent = value;
      if (said.textContent !== words) said.textContent = words;
    }
  }

  /** @type {(name: string, parts: string[]) => void} */
  #say(name, parts) {
    this.#boxes[name].setAttribute("aria-label", `${parts.join("; ")}.`);
  }
}

/**
 * The points of a lane in a chart; and the lines of lanes, also what is not reached yet. headed: the lanes
 * with a dot at their end.
 * @typedef {object} Drawn
 * @property {(chart: string, i: number) => Point[]} of
 * @property {(chart: string, lanes: LaneName[], headed: LaneName[], isThin?: boolean) => Line[]} lines
 */

/** @type {(points: Points | undefined) => Point[]} */
function pointsOf(points) {
  if (!points) return [];
  return points.x.flatMap((x, i) => (points.y[i] === null ? [] : [{ x: Number(x), y: Number(points.y[i]) }]));
}

/** @param {Point[]} points */
const lastOf = (points) => points[points.length - 1] ?? { x: 0, y: 0 };

/** @type {(lines: Points[], axis: "x" | "y") => number} */
const furthest = (lines, axis) => lines.flatMap((line) => line[axis]).reduce((/** @type {number} */ top, value) => Math.max(top, Number(value)), 0);

/** The first round number from a value on. @param {number} value */
function stepAbove(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return Number(((STEPS.find((step) => step * power >= value * 0.999) ?? 10) * power).toPrecision(3));
}

/** @param {number} value */
const short = (value) => (value >= 10000 ? `${value / 1000}k` : String(value));

/** @param {Header} header */
const gammaOf = ({ lanes }) => Math.max(1, ...Object.values(lanes).map(({ gamma }) => gamma));

/** The key of a lane, which chooses its colour and dash. @param {Header} header */
function keysOf(header) {
  const drafted = draftedLanes(header);
  return (/** @type {LaneName} */ name) => (name === ALONE ? "alone" : String(drafted.indexOf(name) % 8));
}

// What lies between two lines: up to the clock that both have reached, and in a finished run up to
// the tokens that both have written.
/** @type {(ours: Point[], alone: Point[], isWhole: boolean) => Point[] | null} */
function gapOf(ours, alone, isWhole) {
  if (ours.length < 2 || alone.length < 2) return null;
  const [a, b] = [lastOf(ours), lastOf(alone)];
  const low = Math.min(a.y, b.y);
  const below = (/** @type {Point[]} */ line) => line.filter(({ y }) => y <= low);
  if (isWhole) return [...below(ours), ...below(alone).reverse()];
  const now = Math.max(a.x, b.x);
  const till = (/** @type {Point[]} */ line) => [...line, { x: now, y: lastOf(line).y }];
  return [...till(ours), ...till(alone).reverse()];
}

/**
 * Names at the heads of the lines while both are written; in a finished run along them, with the
 * times at their ends and the ratio in the gap.
 * @param {{ ours: Point[], alone: Point[], isWhole: boolean, ratio: string, clock: number, tokens: number, name: string, isAhead: boolean, size: Size }} parts
 */
function labelsOf({ ours, alone, isWhole, ratio, clock, tokens, name, isAhead, size }) {
  const [a, b] = [lastOf(ours), lastOf(alone)];
  if (!isWhole) {
    if (Math.abs(a.y - b.y) < 0.06 * tokens) return [];
    const [besideOurs, besideAlone] = [a, b].map(({ x }) => side(x, clock));
    return [{ at: a, text: name, className: `is-ours ${besideOurs.className}`, by: besideOurs.by },
      { at: b, text: "alone", className: `is-alone ${besideAlone.className}`, by: besideAlone.by }];
  }
  const wide = (size.width - LARGE.left - LARGE.right) / clock; // px per second
  const high = (size.height - LARGE.top - LARGE.bottom) / tokens; // px per token
  const onSheet = (/** @type {Point} */ { x, y }) => ({ x: LARGE.left + x * wide, y: size.height - LARGE.bottom - y * high });
  const texts = [duration(a.x, clock), duration(b.x, clock)];
  const places = timePlaces([onSheet(a), onSheet(b)], texts, size.width);
  /** @type {import("specviz/charts/lines.js").Label[]} */
  const found = [a, b].map((at, i) =>
    ({ at, text: texts[i], className: `${i ? "is-alone" : "is-ours"} ${places[i].className}`, by: places[i].by }));
  if (Math.abs(a.y - b.y) > ALIKE * Math.max(a.y, b.y)) return found; // there is no one end that a ratio could be read off
  // The middle of the gap at three quarters of its height, if the ratio fits in between.
  const y = 0.78 * Math.min(a.y, b.y);
  const at = (/** @type {Point[]} */ line) => (line.find((point) => point.y >= y) ?? lastOf(line)).x;
  const room = Math.abs(at(ours) - at(alone)) * wide; // px
  const fits = (/** @type {{ px: number, share: number }} */ { px, share }) => room > Math.max(px, share * clock * wide);
  const fitting = fits(RATIO.large) ? "" : " is-small";
  const isNamed = ratio !== "?" && fits(RATIO.small);
  if (isNamed) found.push({ at: { x: (at(ours) + at(alone)) / 2, y }, text: `${ratio}×`, className: `is-ratio${fitting}${isAhead ? "" : " is-lost"}` });
  const on = (/** @type {Point[]} */ line, /** @type {number} */ share) => line[Math.floor((line.length - 1) * share)];
  const left = isAhead ? { line: ours, text: name, className: "is-ours" } : { line: alone, text: "alone", className: "is-alone" };
  const right = isAhead ? { line: alone, text: "alone", className: "is-alone" } : { line: ours, text: name, className: "is-ours" };
  if (on(left.line, 0.52).x < ROOM * clock) return found; // a name would stand beside the chart
  found.push({ at: on(left.line, 0.52), text: left.text, className: `${left.className} is-left`, by: [-12, -4] });
  found.push({ at: on(right.line, 0.5), text: right.text, className: `${right.className} is-beside`, by: [12, 12] });
  return found;
}

/**
 * A place for the time at the end of each of two lines: over no dot, and over no other time.
 * @param {Point[]} dots  px
 * @param {string[]} texts
 * @param {number} width  px, of the chart
 */
export function timePlaces(dots, texts, width) {
  /** @type {[number, number, number, number][]} */
  const taken = dots.map(({ x, y }) => [x - DOT, y - DOT, x + DOT, y + DOT]);
  const letter = LETTER * Math.max(1, width / LARGE_CHART);
  return dots.map(({ x, y }, i) => {
    const boxOf = (/** @type {typeof TIME_PLACES[number]} */ place) => {
      const [left, up, right, down] = place.box(letter * texts[i].length);
      return /** @type {[number, number, number, number]} */ ([x + left, y + up, x + right, y + down]);
    };
    const isFree = (/** @type {[number, number, number, number]} */ [left, up, right, down]) =>
      left >= 0 && right <= width + LARGE.right
      && taken.every(([l, u, r, d]) => right <= l || left >= r || down <= u || up >= d);
    const place = TIME_PLACES.find((one) => isFree(boxOf(one))) ?? TIME_PLACES[0];
    taken.push(boxOf(place));
    return place;
  });
}

/**
 * A name stands right of its head while there is room, then left of it and above its line.
 * @type {(x: number, clock: number) => { className: string, by: [number, number] }}
 */
const side = (x, clock) =>
  (x > 0.7 * clock ? { className: "is-left", by: [-11, -12] } : { className: "is-beside", by: [11, 0] });
