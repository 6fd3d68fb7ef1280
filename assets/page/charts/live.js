// The charts of the landing: tokens against time, with the gap between the lanes filled and named,
// and three small ones "so far": acceptance, tokens per pass, tokens per second. Their axes stand
// still while a run lasts; those of a live run grow in steps.

import { drawLines, move, namedTicks } from "specviz/charts/lines.js";
import { gapOf, labelsOf, LARGE, lastOf } from "specviz/charts/live-labels.js";
import { element, find } from "specviz/dom/dom.js";
import { ALONE, draftedLanes, hasBaseline, lanesOf, OURS } from "specviz/facts/lanes.js";
import { series } from "specviz/facts/metrics.js";
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
      const now = { points: of(chart, i), key, isThin, hasHead: headed.includes(name) };
      if (!isPartial) return [now];
      return [{ points: pointsOf(whole[chart][i]), key, isThin, isLater: true }, now];
    });
    const reach = {
      clock: this.#end("clock", furthest(whole.tokens, "x"), isOver, live),
      tokens: isOver ? furthest(whole.tokens, "y") : header.settings.max_new_tokens,
      rounds: this.#end("rounds", Math.max(2, furthest(whole.tau, "x")), isOver, live),
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
