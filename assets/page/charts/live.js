// The charts of the landing: tokens against time, with the gap between the lanes filled and labelled, and
// three small ones: acceptance, tokens per pass, tokens per second. Their axes are fixed for a finished run;
// those of a live run grow in steps.

import { drawLines, move, namedTicks } from "specviz/charts/lines.js";
import { element, find } from "specviz/dom/dom.js";
import { ALONE, draftedLanes, hasBaseline, lanesOf, WITH_DRAFTS } from "specviz/facts/lanes.js";
import { series } from "specviz/facts/metrics.js";
import { isOver } from "specviz/facts/trace.js";
import { duration, fixed, perSecond } from "specviz/words/words.js";

const MINI = { left: 34, right: 92, top: 8, bottom: 24 };
const SPEED = { ...MINI, right: 118 };
const USUAL_MINI = 112; // px; a higher chart has larger letters
const LARGEST_LETTERS = 1.4; // times the usual ones
const NARROW = 190; // px; a narrower chart has its figures above the lines
const NARROW_MINI = { left: 26, right: 26, top: 34, bottom: 24 };
const BESIDE_CHART = 12; // px left and right of a chart that still count as its ends
/** Figures at the ends of lines: their names, charts and words. */
const HEADS = [
  ["alpha", "alpha", "of judged"],
  ["tau", "tau", ""],
  ["speed", "speed", ""],
  ["speed-alone", "speed", "alone"],
];
const AIR = 1.15; // the length of a live run's axis relative to its data
const STEPS = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];
/** @type {Record<string, string>} lanes in words */
const NAMES = { [ALONE]: "target alone", [WITH_DRAFTS]: "with drafts" };
const LABEL = 22; // px between two labels, at least
/** @typedef {import("specviz/charts/lines.js").Label} Label */
/** @typedef {[left: number, up: number, right: number, down: number]} Box */

const LARGE = { left: 38, right: 14, top: 26, bottom: 26 }; // px
const ALIKE = 0.1; // the share by which lanes' lengths may differ if their gap has a ratio
const ROOM = 0.22; // of the clock, the room for a name
/** The minimum room for a small and a large ratio in the gap: px, and a share of the chart's width. */
const RATIO = { small: { px: 84, share: 0.22 }, large: { px: 140, share: 0.34 } };
const LARGE_CHART = 400; // px; a wider chart has larger letters
const DOT = 7; // px: half of a dot, with some air
const LETTER = 8.4; // px: a letter of a label, at most
/**
 * A position of a label relative to a dot. box: its extent from the dot to the left, up, right and down, in
 * px, for a width of the text.
 * @typedef {{ className: string, by: [number, number], box: (width: number) => Box }} LabelPlace
 */
/** For a time at the end of its line, the best first. @type {LabelPlace[]} */
const TIME_PLACES = [
  { className: "is-above", by: [0, -10], box: (width) => [-width / 2, -27, width / 2, -9] },
  { className: "is-left", by: [-12, 0], box: (width) => [-12 - width, -9, -12, 9] },
  { className: "is-beside", by: [12, 0], box: (width) => [12, -9, 12 + width, 9] },
  { className: "is-below", by: [0, 19], box: (width) => [-width / 2, 10, width / 2, 28] },
  { className: "is-left", by: [-10, 19], box: (width) => [-10 - width, 10, -10, 28] },
  { className: "is-left", by: [-10, -18], box: (width) => [-10 - width, -27, -10, -9] },
  { className: "is-left", by: [-10, 31], box: (width) => [-10 - width, 22, -10, 40] },
];
/** For a name at the head of a growing line. @type {LabelPlace[]} */
const NAME_PLACES = [
  { className: "is-beside", by: [12, 0], box: (width) => [12, -9, 12 + width, 9] },
  { className: "is-left", by: [-12, -12], box: (width) => [-12 - width, -21, -12, -3] },
  { className: "is-beside", by: [10, 16], box: (width) => [10, 7, 10 + width, 25] },
  { className: "is-left", by: [-12, 14], box: (width) => [-12 - width, 5, -12, 23] },
  ...TIME_PLACES,
];
/** For a name along the left one of two lines. @type {LabelPlace[]} */
const LEFT_OF_LINE = [{ className: "is-left", by: [-12, -4], box: (width) => [-12 - width, -13, -12, 5] }];
/** For a name along the right one. @type {LabelPlace[]} */
const RIGHT_OF_LINE = [{ className: "is-beside", by: [12, 12], box: (width) => [12, 3, 12 + width, 21] }];

/**
 * @typedef {object} Live
 * @property {Round[]} rounds  shown, of all lanes
 * @property {Trace} trace
 * @property {LaneName} chosen  the lane that the figures are about
 * @property {Metrics} metrics  of the shown rounds of that lane
 * @property {string} ratio  the headline, or "?"
 */

export class LiveCharts {
  /**
   * The last drawing of each chart.
   * @type {Record<string, { chart: LineChart, toPixels: (point: Point) => Point }>}
   */
  #placed = {};
  #crosses = /** @type {Record<string, HTMLElement>} */ ({});
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
      this.#crosses[name] = element("div", "sv-cross", { hidden: true });
      this.#boxes[name].append(this.#crosses[name]);
    }
    for (const [name, chart, words] of HEADS) {
      const value = element("b", "", { dataset: chart === name ? { metric: name } : {} });
      const small = element("small", "", words);
      this.#heads[name] = element("p", "", { dataset: { head: name } }, value, " ", small);
      this.#boxes[chart].append(this.#heads[name]);
    }
    const sized = new ResizeObserver(() => {
      for (const [name, box] of Object.entries(this.#boxes)) {
        this.#sizes[name] = { width: box.clientWidth, height: box.clientHeight };
      }
      this.#draw();
    });
    for (const box of Object.values(this.#boxes)) sized.observe(box);
  }

  /** Another run is shown. */
  begin() {
    this.#reach = {};
    this.#placed = {};
    this.cross(null);
  }

  /**
   * The value of a chart's axis at a position in the window: seconds of the clock, or a round from 1 on. Null
   * outside the chart.
   * @type {(name: string, clientX: number) => { axis: "clock" | "round", value: number } | null}
   */
  pointedAt(name, clientX) {
    const placed = this.#placed[name];
    if (!placed) return null;
    const { margin, x: [x0, x1] } = placed.chart;
    const { left, width } = this.#boxes[name].getBoundingClientRect();
    const reach = width - margin.left - margin.right;
    const at = clientX - left - margin.left;
    if (at < -BESIDE_CHART || at > reach + BESIDE_CHART) return null;
    const share = Math.max(0, Math.min(at / Math.max(1, reach), 1));
    return { axis: axisOf(name), value: x0 + share * (x1 - x0) };
  }

  /**
   * Draw a line at a moment through all charts, with a dot on each of their lines; null for none.
   * @param {{ clock: number, round: number } | null} moment
   */
  cross(moment) {
    for (const [name, node] of Object.entries(this.#crosses)) {
      const placed = this.#placed[name];
      node.hidden = moment === null || !placed;
      if (moment === null || !placed) continue;
      const { chart, toPixels } = placed;
      const x = moment[axisOf(name)];
      const at = toPixels({ x: Math.min(x, chart.x[1]), y: chart.y[0] });
      move(node, { x: at.x, y: 0 });
      node.style.bottom = `${chart.margin.bottom}px`;
      node.style.top = `${chart.margin.top - 6}px`;
      const dots = longestLines(chart.lines).flatMap(({ key, points }) => {
        const point = pointAt(points, x);
        if (!point) return [];
        const dot = element("i", "sv-cross-dot", { dataset: { key } });
        move(dot, { x: 0, y: toPixels(point).y - chart.margin.top + 6 });
        return [dot];
      });
      node.replaceChildren(...dots);
    }
  }

  /** No run is shown. */
  clear() {
    this.#shown = null;
    for (const name of Object.keys(this.#boxes)) this.#say(name, ["Nothing is measured yet"]);
    this.setFigures({ alpha: ["", ""], tau: ["", ""], speed: ["", ""], "speed-alone": ["", ""] });
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
    const isWritten = isOver(trace);
    const names = lanesOf(header);
    const points = series(rounds, names);
    const allPoints = isWritten ? this.#wholeOf(trace, names) : points;
    const isPartial = isWritten && rounds.length < trace.rounds.length;
    const keyed = keysOf(header);
    const of = (/** @type {string} */ chart, /** @type {number} */ i) => pointsOf(points[chart][i]);
    /** @type {Drawn["lines"]} */
    const lines = (chart, lanes, headed, isThin = true) => lanes.flatMap((name, i) => {
      const key = keyed(name);
      const now = { points: of(chart, i), key, isThin, hasHead: headed.includes(name) };
      if (!isPartial) return [now];
      const later = { points: pointsOf(allPoints[chart][i]), key, isThin, isLater: true };
      return [later, now];
    });
    const reach = {
      clock: this.#end("clock", furthest(allPoints.tokens, "x"), isWritten, live),
      tokens: isWritten ? furthest(allPoints.tokens, "y") : header.settings.max_new_tokens,
      rounds: this.#end("rounds", Math.max(2, furthest(allPoints.tau, "x")), isWritten, live),
      // The gamma of a watched server is not known.
      tau: Math.max(gammaOf(header) + 1, Math.ceil(furthest(allPoints.tau, "y"))),
      speed: this.#end("speed", furthest(allPoints.speed, "y"), false, live),
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

  // The end of an axis: the end of a finished run, or a round number beyond a live one, kept until
  // it is passed.
  /** @type {(name: string, value: number, isExact: boolean, live: Live) => number} */
  #end(name, value, isExact, { trace }) {
    if (isExact) return value || 1;
    const reach = this.#reach[name] ?? 0;
    if (value > reach || !reach) this.#reach[name] = stepAbove((value || 1) * (isOver(trace) ? 1 : AIR));
    return this.#reach[name];
  }

  /**
   * @type {(live: Live, names: LaneName[], drawn: Drawn, reach: Record<string, number>) => void}
   */
  #drawTokens({ rounds, trace, chosen, ratio, metrics }, names, { of, lines }, { clock, tokens }) {
    const drafted = of("tokens", names.indexOf(chosen));
    const alone = hasBaseline(trace.header) ? of("tokens", names.indexOf(ALONE)) : [];
    const isWhole = isOver(trace) && rounds.length === trace.rounds.length;
    const isAhead = (metrics.speedup ?? 1) >= 1;
    const gap = gapOf(drafted, alone, isWhole);
    const name = draftedLanes(trace.header).length > 1 ? chosen : "with drafts";
    const seconds = (/** @type {number} */ value) => {
      if (!value) return "0";
      return clock < 1 ? `${Math.round(1000 * value)} ms` : `${value} s`;
    };
    const size = this.#sizes.tokens;
    const gapKey = isAhead ? keysOf(trace.header)(chosen) : "alone";
    this.#put("tokens", {
      x: [0, clock],
      y: [0, tokens],
      ticksX: namedTicks(clock, 3, seconds),
      ticksY: namedTicks(tokens, 2),
      margin: LARGE,
      lines: lines("tokens", names, names, false),
      area: gap ? { points: gap, key: gapKey } : undefined,
      labels: alone.length
        ? labelsOf({ drafted, alone, isWhole, ratio, clock, tokens, name, isAhead, size })
        : [],
    });
    this.#say("tokens", names.map((lane, i) => {
      const { x, y } = lastOf(of("tokens", i));
      return `${NAMES[lane] ?? lane}: ${y} tokens in ${duration(x, clock)}`;
    }));
  }

  /**
   * @type {(live: Live, names: LaneName[], drawn: Drawn, reach: Record<string, number>) => void}
   */
  #drawMinis({ trace, chosen, metrics }, names, { of, lines }, { clock, rounds, tau: most, speed }) {
    const drafted = draftedLanes(trace.header);
    const lane = drafted.indexOf(chosen);
    /** @type {[number, string][]} */
    const ticksX = [[1, "1"], [rounds, `round ${Math.round(rounds)}`]];
    const x = /** @type {[number, number]} */ ([1, Math.max(2, rounds)]);
    const alpha = {
      x,
      y: /** @type {[number, number]} */ ([0, 1]),
      ticksX,
      ticksY: /** @type {[number, string][]} */ ([[0, "0"], [1, "1"]]),
      lines: lines("rates", drafted, [chosen]),
      margin: MINI,
    };
    this.#mini("alpha", alpha, of("rates", lane));
    const formula = drafted.length === 1 ? [{ points: of("tau", 1), key: "formula", isThin: true }] : [];
    const tau = {
      x,
      y: /** @type {[number, number]} */ ([1, most]),
      ticksX,
      ticksY: /** @type {[number, string][]} */ ([[1, "1"], [most, String(most)]]),
      lines: [...formula, ...lines("tau", drafted, [chosen])],
      margin: MINI,
    };
    this.#mini("tau", tau, of("tau", lane));
    const end = clock < 1 ? `${Math.round(1000 * clock)} ms` : `${Number(clock.toFixed(2))} s`;
    const rates = {
      x: /** @type {[number, number]} */ ([0, clock]),
      y: /** @type {[number, number]} */ ([0, speed]),
      ticksX: /** @type {[number, string][]} */ ([[0, "0"], [clock, end]]),
      ticksY: /** @type {[number, string][]} */ ([[0, "0"], [speed, short(speed)]]),
      lines: lines("speed", names, [chosen, ALONE]),
      margin: SPEED,
    };
    this.#mini("speed", rates, of("speed", names.indexOf(chosen)), of("speed", names.indexOf(ALONE)));
    const rate = perSecond(metrics.tokens_per_second[chosen]);
    const alone = perSecond(metrics.tokens_per_second[ALONE]);
    this.#say("alpha", [`${fixed(metrics.alpha, 2)} of the judged guesses accepted`]);
    const predicted = fixed(metrics.tau_predicted, 2);
    this.#say("tau", [`${fixed(metrics.tau, 2)} tokens per pass, ${predicted} by the formula`]);
    this.#say("speed", [`${rate} tokens per second with drafts, ${alone} alone`]);
  }

  /**
   * Draw a chart into its box, and return the function that gives the px of a point.
   * @type {(name: string, chart: LineChart) => ReturnType<typeof drawLines>}
   */
  #put(name, chart) {
    const toPixels = drawLines(this.#boxes[name], this.#sizes[name], chart);
    if (toPixels) this.#placed[name] = { chart, toPixels };
    return toPixels;
  }

  /**
   * @param {string} name
   * @param {LineChart} wide
   * @param {Point[]} line  the line with the figure at its end
   * @param {Point[]} [other]
   */
  #mini(name, wide, line, other = []) {
    const { width, height } = this.#sizes[name];
    const isNarrow = width < NARROW;
    this.#boxes[name].classList.toggle("is-narrow", isNarrow);
    const letters = Math.max(1, Math.min(height / USUAL_MINI, LARGEST_LETTERS));
    const margin = { ...wide.margin, left: letters * wide.margin.left, right: letters * wide.margin.right };
    const chart = { ...wide, margin: isNarrow ? NARROW_MINI : margin };
    const toPixels = this.#put(name, chart);
    if (!toPixels) return;
    if (isNarrow) {
      this.#headsAbove(name, other.length > 0);
      return;
    }
    const edge = width - chart.margin.right;
    const axis = height - MINI.bottom;
    const endOf = (/** @type {Point[]} */ points) => {
      if (!points.length) return null;
      const { x, y } = toPixels(lastOf(points));
      return { x, y: Math.min(y, axis - LABEL / 2) }; // a figure is above the axis
    };
    const at = endOf(line);
    const beside = endOf(other);
    // Next to its dot a figure would cover the lines of other lanes, or its own if that continues.
    const drafted = this.#shown ? draftedLanes(this.#shown.trace.header) : [];
    const isSeveralLines = drafted.length > 1 && name !== "speed";
    const goesOn = chart.lines.some(({ isLater }) => isLater);
    for (const end of [at, beside]) if (end && (isSeveralLines || goesOn)) end.x = edge;
    // Two figures at the same height would overlap: they move apart.
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
      const isLow = point !== null && point.y > axis - 1.6 * LABEL;
      head.classList.toggle("is-up", wide.margin === MINI && isLow);
      if (point) move(head, { x: Math.min(point.x, edge) + 11, y: point.y });
    };
    // Before its first round a line has no end: its figure is a dash next to the chart.
    put(name, at ?? { x: edge, y: (chart.margin.top + axis) / 2 });
    put(`${name}-alone`, beside);
  }

  /**
   * Put the figures of a narrow chart above it, side by side.
   * @type {(name: string, isOther: boolean) => void}
   */
  #headsAbove(name, isOther) {
    const head = this.#heads[name];
    head.hidden = false;
    head.classList.remove("is-up");
    move(head, { x: 0, y: 12 });
    const beside = this.#heads[`${name}-alone`];
    if (!beside) return;
    beside.hidden = !isOther;
    move(beside, { x: 58, y: 14 });
  }

  /**
   * Set the figures at the ends of the lines.
   * @param {Record<"alpha" | "tau" | "speed" | "speed-alone", [string, string]>} figures  value and words
   */
  setFigures(figures) {
    for (const [name, [value, words]] of Object.entries(figures)) {
      const [figure, sentence] = this.#heads[name].children;
      if (figure.textContent !== value) figure.textContent = value;
      if (sentence.textContent !== words) sentence.textContent = words;
    }
  }

  /** @type {(name: string, parts: string[]) => void} */
  #say(name, parts) {
    this.#boxes[name].setAttribute("aria-label", `${parts.join("; ")}.`);
  }
}

/**
 * of: the points of a lane in a chart. lines: the lines of lanes, with their parts that are not reached yet.
 * headed: the lanes with a dot at their end.
 * @typedef {object} Drawn
 * @property {(chart: string, i: number) => Point[]} of
 * @property {(chart: string, lanes: LaneName[], headed: LaneName[], isThin?: boolean) => Line[]} lines
 */

/** The unit of a chart's horizontal axis. @type {(name: string) => "clock" | "round"} */
const axisOf = (name) => (name === "alpha" || name === "tau" ? "round" : "clock");

/** The longest line of each lane, without formulas. @param {Line[]} lines */
function longestLines(lines) {
  /** @type {Map<string, Line>} */
  const longest = new Map();
  for (const line of lines) {
    const longestSoFar = longest.get(line.key);
    const isLonger = !longestSoFar || line.points.length > longestSoFar.points.length;
    if (line.key !== "formula" && isLonger) longest.set(line.key, line);
  }
  return [...longest.values()];
}

/** The last point of a line up to x. @type {(points: Point[], x: number) => Point | undefined} */
function pointAt(points, x) {
  const after = points.findIndex((point) => point.x > x);
  return after < 0 ? points[points.length - 1] : points[after - 1];
}

/** @type {(points: Points | undefined) => Point[]} */
function pointsOf(points) {
  if (!points) return [];
  return points.x.flatMap((x, i) => (points.y[i] === null ? [] : [{ x: Number(x), y: Number(points.y[i]) }]));
}

/** @type {(lines: Points[], axis: "x" | "y") => number} */
function furthest(lines, axis) {
  const values = lines.flatMap((line) => line[axis]);
  return values.reduce((/** @type {number} */ max, value) => Math.max(max, Number(value)), 0);
}

/** The next round number, or the value itself. @param {number} value */
function stepAbove(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return Number(((STEPS.find((step) => step * power >= value * 0.999) ?? 10) * power).toPrecision(3));
}

/** @param {number} value */
const short = (value) => (value >= 10000 ? `${value / 1000}k` : String(value));

/** @param {Header} header */
const gammaOf = ({ lanes }) => Math.max(1, ...Object.values(lanes).map(({ gamma }) => gamma));

/** The key of a lane, which selects its colour and dash. @param {Header} header */
function keysOf(header) {
  const drafted = draftedLanes(header);
  return (/** @type {LaneName} */ name) => (name === ALONE ? "alone" : String(drafted.indexOf(name) % 8));
}

// The labels of the large chart: the names of its lines, the times at their ends, and the ratio in the gap
// between them.

/** @param {Point[]} points */
const lastOf = (points) => points[points.length - 1] ?? { x: 0, y: 0 };

// The area between two lines: up to the later of their clocks, and in a finished run up to the tokens that
// both have written.
/** @type {(drafted: Point[], alone: Point[], isWhole: boolean) => Point[] | null} */
function gapOf(drafted, alone, isWhole) {
  if (drafted.length < 2 || alone.length < 2) return null;
  const [a, b] = [lastOf(drafted), lastOf(alone)];
  const low = Math.min(a.y, b.y);
  const below = (/** @type {Point[]} */ line) => line.filter(({ y }) => y <= low);
  if (isWhole) return [...below(drafted), ...below(alone).reverse()];
  const now = Math.max(a.x, b.x);
  const till = (/** @type {Point[]} */ line) => [...line, { x: now, y: lastOf(line).y }];
  return [...till(drafted), ...till(alone).reverse()];
}

/**
 * The arguments of `labelsOf` and its parts. name: of the lane with drafts. ratio: the headline, or "?".
 * clock, tokens: the ends of the axes.
 * @typedef {object} Labelled
 * @property {Point[]} drafted
 * @property {Point[]} alone
 * @property {boolean} isWhole
 * @property {string} ratio
 * @property {number} clock
 * @property {number} tokens
 * @property {string} name
 * @property {boolean} isAhead
 * @property {Size} size
 */

/**
 * The names at the heads of the lines while they grow; in a finished run the names along them, the times at
 * their ends and the ratio in the gap.
 * @type {(parts: Labelled) => Label[]}
 */
export function labelsOf(parts) {
  const sheet = sheetOf(parts);
  if (!parts.isWhole) return namesAtHeads(parts, sheet);
  const { drafted, alone, clock } = parts;
  const a = lastOf(drafted);
  const b = lastOf(alone);
  const atEnd = { places: TIME_PLACES, isNeeded: true };
  const labels = [
    sheet.put(a, { ...atEnd, text: duration(a.x, clock), className: "is-drafted" }),
    sheet.put(b, { ...atEnd, text: duration(b.x, clock), className: "is-alone" }),
  ].filter((label) => label !== null);
  // If the ends differ too much, the chart does not show a ratio.
  if (Math.abs(a.y - b.y) > ALIKE * Math.max(a.y, b.y)) return labels;
  labels.push(...ratioInGap(parts));
  const [left, right] = linesByPlace(parts);
  if (along(left.line, 0.52).x < ROOM * clock) return labels; // a name would be outside the chart
  const names = [
    sheet.put(along(left.line, 0.52), { ...left, places: LEFT_OF_LINE }),
    sheet.put(along(right.line, 0.5), { ...right, places: RIGHT_OF_LINE }),
  ];
  return [...labels, ...names.filter((label) => label !== null)];
}

/** @type {(parts: Labelled, sheet: Sheet) => Label[]} */
function namesAtHeads({ drafted, alone, tokens, name }, sheet) {
  const a = lastOf(drafted);
  const b = lastOf(alone);
  if (Math.abs(a.y - b.y) < 0.06 * tokens) return [];
  const labels = [
    sheet.put(a, { text: name, className: "is-drafted", places: NAME_PLACES }),
    sheet.put(b, { text: "alone", className: "is-alone", places: NAME_PLACES }),
  ];
  return labels.filter((label) => label !== null);
}

/**
 * A label that needs a position. places: candidates, the best first. isNeeded: whether it may overlap rather
 * than be left out.
 * @typedef {{ text: string, className?: string, places: LabelPlace[], isNeeded?: boolean }} Wanted
 */
/** @typedef {ReturnType<typeof sheetOf>} Sheet */

/**
 * The chart as a sheet on which labels are placed one by one: none covers the dot at the end of a line or
 * another label, or leaves the chart.
 * @param {Labelled} parts
 */
function sheetOf({ drafted, alone, clock, tokens, size }) {
  const wide = perSecondOf(size, clock);
  const high = (size.height - LARGE.top - LARGE.bottom) / tokens; // px per token
  const onSheet = (/** @type {Point} */ { x, y }) =>
    ({ x: LARGE.left + x * wide, y: size.height - LARGE.bottom - y * high });
  const occupied = [drafted, alone].map((line) => dotBox(onSheet(lastOf(line))));
  return {
    /** @type {(at: Point, label: Wanted) => Label | null} */
    put(at, { text, className, places, isNeeded = false }) {
      const place = freePlace(onSheet(at), { text, places, isNeeded }, occupied, size.width);
      return place && { at, text, className: `${className} ${place.className}`, by: place.by };
    },
  };
}

/**
 * The ratio in the middle of the gap at three quarters of its height, if it fits.
 * @type {(parts: Labelled) => Label[]}
 */
function ratioInGap({ drafted, alone, ratio, clock, isAhead, size }) {
  const wide = perSecondOf(size, clock);
  const y = 0.78 * Math.min(lastOf(drafted).y, lastOf(alone).y);
  const clockAt = (/** @type {Point[]} */ line) => (line.find((point) => point.y >= y) ?? lastOf(line)).x;
  const begin = clockAt(drafted);
  const end = clockAt(alone);
  const room = Math.abs(begin - end) * wide; // px
  const fits = (/** @type {{ px: number, share: number }} */ { px, share }) =>
    room > Math.max(px, share * clock * wide);
  if (ratio === "?" || !fits(RATIO.small)) return [];
  const small = fits(RATIO.large) ? "" : " is-small";
  const lost = isAhead ? "" : " is-lost";
  return [{ at: { x: (begin + end) / 2, y }, text: `${ratio}×`, className: `is-ratio${small}${lost}` }];
}

/**
 * Both lines with their names, the left one first.
 * @param {Labelled} parts
 */
function linesByPlace({ drafted, alone, name, isAhead }) {
  const withDrafts = { line: drafted, text: name, className: "is-drafted" };
  const baseline = { line: alone, text: "alone", className: "is-alone" };
  return isAhead ? [withDrafts, baseline] : [baseline, withDrafts];
}

/** @type {(size: Size, clock: number) => number} px per second */
const perSecondOf = (size, clock) => (size.width - LARGE.left - LARGE.right) / clock;

/** @type {(line: Point[], share: number) => Point} */
const along = (line, share) => line[Math.floor((line.length - 1) * share)];

/** @param {Point} dot  px @returns {Box} */
const dotBox = ({ x, y }) => [x - DOT, y - DOT, x + DOT, y + DOT];

/**
 * The first free position of a label at a dot, within the chart; null if there is none.
 * @param {Point} dot  px
 * @param {Wanted} label
 * @param {Box[]} occupied  px; boxes that no label may cover; the label's own box is added
 * @param {number} width  px, of the chart
 */
function freePlace({ x, y }, { text, places, isNeeded }, occupied, width) {
  const letter = LETTER * Math.max(1, width / LARGE_CHART);
  const boxes = places.map((place) => {
    const [left, up, right, down] = place.box(letter * text.length);
    return { place, box: /** @type {Box} */ ([x + left, y + up, x + right, y + down]) };
  });
  const within = boxes.filter(({ box }) => box[0] >= 0 && box[2] <= width);
  const isFree = (/** @type {Box} */ box) =>
    occupied.every(([l, u, r, d]) => box[2] <= l || box[0] >= r || box[3] <= u || box[1] >= d);
  let best = within.find(({ box }) => isFree(box));
  if (!best && isNeeded) best = within[0] ?? boxes[0];
  if (!best) return null;
  occupied.push(best.box);
  return best.place;
}

/**
 * Positions for the times at the ends of two lines: they cover no dot and no other time.
 * @param {Point[]} dots  px
 * @param {string[]} texts
 * @param {number} width  px, of the chart
 */
export function timePlaces(dots, texts, width) {
  const occupied = dots.map(dotBox);
  return dots.map((dot, i) => {
    const place = freePlace(dot, { text: texts[i], places: TIME_PLACES, isNeeded: true }, occupied, width);
    return place ?? TIME_PLACES[0];
  });
}
