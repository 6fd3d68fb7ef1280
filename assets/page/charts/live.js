// The charts of the landing: tokens against time, with the gap between the lanes filled and named,
// and three small ones "so far": acceptance, tokens per pass, tokens per second. Their axes stand
// still while a run lasts; those of a live run grow in steps.

import { drawLines, move, namedTicks } from "specviz/charts/lines.js";
import { element, find } from "specviz/dom/dom.js";
import { ALONE, draftedLanes, hasBaseline, lanesOf, OURS } from "specviz/facts/lanes.js";
import { series } from "specviz/facts/metrics.js";
import { isOver } from "specviz/facts/trace.js";
import { duration, fixed, perSecond } from "specviz/words/words.js";

const MINI = { left: 34, right: 92, top: 8, bottom: 24 };
const SPEED = { ...MINI, right: 118 };
/** Figures at the ends of lines: their names, their charts, and what is said beside them. */
const HEADS = [
  ["alpha", "alpha", "of judged"],
  ["tau", "tau", ""],
  ["speed", "speed", ""],
  ["speed-alone", "speed", "alone"],
];
const AIR = 1.15; // how much further than what is there the axis of a live run goes
const STEPS = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];
/** @type {Record<string, string>} lanes in words */
const NAMES = { [ALONE]: "target alone", [OURS]: "with drafts" };
const LABEL = 22; // px between two labels, at least
/** @typedef {import("specviz/charts/lines.js").Label} Label */
/** @typedef {[left: number, up: number, right: number, down: number]} Box */

const LARGE = { left: 38, right: 14, top: 26, bottom: 26 }; // px
const ALIKE = 0.1; // the share by which lanes' lengths may differ for their gap to have a name
const ROOM = 0.22; // of the clock, that a name takes
/**
 * The least room in which the name of a gap fits, small and large: px, or a share of a large chart's
 * width.
 */
const RATIO = { small: { px: 84, share: 0.22 }, large: { px: 140, share: 0.34 } };
const LARGE_CHART = 400; // px: the letters of a wider one grow with it
const DOT = 7; // px: half of a dot, with some air
const LETTER = 8.4; // px: a digit of a time at the end of a line, at most
/**
 * Where a time can stand at the end of its line, the best place first. box: how far it reaches from the dot
 * to the left, up, right and down, in px, for a text of a width.
 * @type {{ className: string, by: [number, number], box: (width: number) => Box }[]}
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
  }

  /** No run is shown. */
  clear() {
    this.#shown = null;
    for (const name of Object.keys(this.#boxes)) this.#say(name, ["Nothing is measured yet"]);
    this.tell({ alpha: ["", ""], tau: ["", ""], speed: ["", ""], "speed-alone": ["", ""] });
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
    const whole = isWritten ? this.#wholeOf(trace, names) : points;
    const isPartial = isWritten && rounds.length < trace.rounds.length;
    const keyed = keysOf(header);
    const of = (/** @type {string} */ chart, /** @type {number} */ i) => pointsOf(points[chart][i]);
    /** @type {Drawn["lines"]} */
    const lines = (chart, lanes, headed, isThin = true) => lanes.flatMap((name, i) => {
      const key = keyed(name);
      const now = { points: of(chart, i), key, isThin, hasHead: headed.includes(name) };
      if (!isPartial) return [now];
      return [{ points: pointsOf(whole[chart][i]), key, isThin, isLater: true }, now];
    });
    const reach = {
      clock: this.#end("clock", furthest(whole.tokens, "x"), isWritten, live),
      tokens: isWritten ? furthest(whole.tokens, "y") : header.settings.max_new_tokens,
      rounds: this.#end("rounds", Math.max(2, furthest(whole.tau, "x")), isWritten, live),
      // The gamma of a watched server is not known.
      tau: Math.max(gammaOf(header) + 1, Math.ceil(furthest(whole.tau, "y"))),
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
    if (value > known || !known) this.#reach[name] = stepAbove((value || 1) * (isOver(trace) ? 1 : AIR));
    return this.#reach[name];
  }

  /**
   * @type {(live: Live, names: LaneName[], drawn: Drawn, reach: Record<string, number>) => void}
   */
  #drawTokens({ rounds, trace, chosen, ratio, metrics }, names, { of, lines }, { clock, tokens }) {
    const ours = of("tokens", names.indexOf(chosen));
    const alone = hasBaseline(trace.header) ? of("tokens", names.indexOf(ALONE)) : [];
    const isWhole = isOver(trace) && rounds.length === trace.rounds.length;
    const isAhead = (metrics.speedup ?? 1) >= 1;
    const gap = gapOf(ours, alone, isWhole);
    const name = draftedLanes(trace.header).length > 1 ? chosen : "with drafts";
    const seconds = (/** @type {number} */ value) => {
      if (!value) return "0";
      return clock < 1 ? `${Math.round(1000 * value)} ms` : `${value} s`;
    };
    const size = this.#sizes.tokens;
    const gapKey = isAhead ? keysOf(trace.header)(chosen) : "alone";
    drawLines(this.#boxes.tokens, size, {
      x: [0, clock],
      y: [0, tokens],
      ticksX: namedTicks(clock, 3, seconds),
      ticksY: namedTicks(tokens, 2),
      margin: LARGE,
      lines: lines("tokens", names, names, false),
      area: gap ? { points: gap, key: gapKey } : undefined,
      labels: alone.length
        ? labelsOf({ ours, alone, isWhole, ratio, clock, tokens, name, isAhead, size })
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
    const ours = perSecond(metrics.tokens_per_second[chosen]);
    const alone = perSecond(metrics.tokens_per_second[ALONE]);
    this.#say("alpha", [`${fixed(metrics.alpha, 2)} of the judged guesses accepted`]);
    const predicted = fixed(metrics.tau_predicted, 2);
    this.#say("tau", [`${fixed(metrics.tau, 2)} tokens per pass, ${predicted} by the formula`]);
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
    const drafted = this.#shown ? draftedLanes(this.#shown.trace.header) : [];
    const isSeveralLines = drafted.length > 1 && name !== "speed";
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
      const isLow = point !== null && point.y > axis - 1.6 * LABEL;
      head.classList.toggle("is-up", chart.margin === MINI && isLow);
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

/** @type {(lines: Points[], axis: "x" | "y") => number} */
function furthest(lines, axis) {
  const values = lines.flatMap((line) => line[axis]);
  return values.reduce((/** @type {number} */ most, value) => Math.max(most, Number(value)), 0);
}

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

// What stands in the large chart beside its lines: their names, the times at their ends, and the gap between
// them with the ratio in it.

/** @param {Point[]} points */
const lastOf = (points) => points[points.length - 1] ?? { x: 0, y: 0 };

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
 * What `labelsOf` and its parts need to know. name: of the lane with drafts. ratio: the headline, or "?".
 * clock, tokens: where the axes end.
 * @typedef {object} Labelled
 * @property {Point[]} ours
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
 * Names at the heads of the lines while both are written; in a finished run along them, with the
 * times at their ends and the ratio in the gap.
 * @type {(parts: Labelled) => Label[]}
 */
function labelsOf(parts) {
  if (!parts.isWhole) return namesAtHeads(parts);
  const { ours, alone, clock } = parts;
  const labels = timesAtEnds(parts);
  const [a, b] = [lastOf(ours), lastOf(alone)];
  // Where the ends differ there is no one end that a ratio could be read off.
  if (Math.abs(a.y - b.y) > ALIKE * Math.max(a.y, b.y)) return labels;
  labels.push(...ratioInGap(parts));
  const [left, right] = linesByPlace(parts);
  if (along(left.line, 0.52).x < ROOM * clock) return labels; // a name would stand beside the chart
  labels.push({
    at: along(left.line, 0.52), text: left.text, className: `${left.className} is-left`, by: [-12, -4],
  });
  labels.push({
    at: along(right.line, 0.5), text: right.text, className: `${right.className} is-beside`, by: [12, 12],
  });
  return labels;
}

/** @type {(parts: Labelled) => Label[]} */
function namesAtHeads({ ours, alone, tokens, clock, name }) {
  const [a, b] = [lastOf(ours), lastOf(alone)];
  if (Math.abs(a.y - b.y) < 0.06 * tokens) return [];
  const besideOurs = side(a.x, clock);
  const besideAlone = side(b.x, clock);
  return [
    { at: a, text: name, className: `is-ours ${besideOurs.className}`, by: besideOurs.by },
    { at: b, text: "alone", className: `is-alone ${besideAlone.className}`, by: besideAlone.by },
  ];
}

/** @type {(parts: Labelled) => Label[]} */
function timesAtEnds({ ours, alone, clock, tokens, size }) {
  const [a, b] = [lastOf(ours), lastOf(alone)];
  const wide = perSecondOf(size, clock);
  const high = (size.height - LARGE.top - LARGE.bottom) / tokens; // px per token
  const onSheet = (/** @type {Point} */ { x, y }) =>
    ({ x: LARGE.left + x * wide, y: size.height - LARGE.bottom - y * high });
  const texts = [duration(a.x, clock), duration(b.x, clock)];
  const places = timePlaces([onSheet(a), onSheet(b)], texts, size.width);
  return [
    { at: a, text: texts[0], className: `is-ours ${places[0].className}`, by: places[0].by },
    { at: b, text: texts[1], className: `is-alone ${places[1].className}`, by: places[1].by },
  ];
}

/**
 * The ratio in the middle of the gap at three quarters of its height, if it fits in between.
 * @type {(parts: Labelled) => Label[]}
 */
function ratioInGap({ ours, alone, ratio, clock, isAhead, size }) {
  const wide = perSecondOf(size, clock);
  const y = 0.78 * Math.min(lastOf(ours).y, lastOf(alone).y);
  const clockAt = (/** @type {Point[]} */ line) => (line.find((point) => point.y >= y) ?? lastOf(line)).x;
  const begin = clockAt(ours);
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
function linesByPlace({ ours, alone, name, isAhead }) {
  const drafted = { line: ours, text: name, className: "is-ours" };
  const baseline = { line: alone, text: "alone", className: "is-alone" };
  return isAhead ? [drafted, baseline] : [baseline, drafted];
}

/** @type {(size: Size, clock: number) => number} px per second */
const perSecondOf = (size, clock) => (size.width - LARGE.left - LARGE.right) / clock;

/** @type {(line: Point[], share: number) => Point} */
const along = (line, share) => line[Math.floor((line.length - 1) * share)];

/**
 * A place for the time at the end of each of two lines: over no dot, and over no other time.
 * @param {Point[]} dots  px
 * @param {string[]} texts
 * @param {number} width  px, of the chart
 */
export function timePlaces(dots, texts, width) {
  /** @type {Box[]} */
  const taken = dots.map(({ x, y }) => [x - DOT, y - DOT, x + DOT, y + DOT]);
  const letter = LETTER * Math.max(1, width / LARGE_CHART);
  return dots.map(({ x, y }, i) => {
    const boxOf = (/** @type {typeof TIME_PLACES[number]} */ place) => {
      const [left, up, right, down] = place.box(letter * texts[i].length);
      return /** @type {Box} */ ([x + left, y + up, x + right, y + down]);
    };
    const isFree = (/** @type {Box} */ [left, up, right, down]) =>
      left >= 0 && right <= width + LARGE.right
      && taken.every(([l, u, r, d]) => right <= l || left >= r || down <= u || up >= d);
    const place = TIME_PLACES.find((candidate) => isFree(boxOf(candidate))) ?? TIME_PLACES[0];
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
