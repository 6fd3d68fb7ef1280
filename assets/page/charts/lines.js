// Line charts in SVG, redrawn in each frame that changes them: lines, filled areas, a grid of a few ticks.
// Their words are HTML above them, set like the page's own.

import { element, shape } from "specviz/dom/dom.js";
import { twoOf } from "specviz/facts/lanes.js";
import { fastestLane, series } from "specviz/facts/metrics.js";

const NEAR = 0.7; // px; a point nearer to the previous one would be invisible

/**
 * @typedef {object} Line
 * @property {Point[]} points
 * @property {string} key  of the lane: selects colour and dash
 * @property {boolean} [isLater]  whether it is not reached yet, and faint
 * @property {boolean} [isThin]
 * @property {boolean} [hasHead]  a dot at its end
 */

/**
 * A text at a point of the chart.
 * @typedef {{ at: Point, text: string, className?: string, by?: [number, number] }} Label  by: px
 */

/**
 * @typedef {object} LineChart
 * @property {[number, number]} x
 * @property {[number, number]} y
 * @property {[number, string][]} ticksX
 * @property {[number, string][]} ticksY
 * @property {Line[]} lines
 * @property {{ points: Point[], key: string }} [area]
 * @property {Label[]} [labels]
 * @property {Record<"left" | "right" | "top" | "bottom", number>} margin  px
 */

/** In px. @typedef {{ width: number, height: number }} Size */

/**
 * Draw into `box`, and return the function that gives the px of a point; null if there is no room.
 * @param {HTMLElement} box
 * @param {Size} size  of the box: reading it from the box would force a layout of the whole page
 * @param {LineChart} chart
 */
export function drawLines(box, { width, height }, chart) {
  if (!width || !height) return null;
  const { x: [x0, x1], y: [y0, y1], margin } = chart;
  const toPixels = (/** @type {Point} */ { x, y }) => ({
    x: margin.left + ((x - x0) / (x1 - x0 || 1)) * (width - margin.left - margin.right),
    y: height - margin.bottom - ((y - y0) / (y1 - y0 || 1)) * (height - margin.top - margin.bottom),
  });
  const svg = box.querySelector("svg") ?? box.appendChild(shape("svg", { "aria-hidden": "true" }));
  renew(svg, shapesOf(chart, toPixels, width));
  renew(box, wordsOf(chart, toPixels, height));
  return toPixels;
}

/** @typedef {(point: Point) => Point} ToPixels */

// Axes, the area between two lines, and the lines with their heads.
/** @type {(chart: LineChart, toPixels: ToPixels, width: number) => Part[]} */
function shapesOf({ x: [x0], ticksY, lines, area, margin }, toPixels, width) {
  /** @type {Part[]} */
  const shapes = ticksY.map(([value]) => {
    const y = Math.round(toPixels({ x: x0, y: value }).y) + 0.5;
    return { tag: "path", class: "sv-axis", d: `M${margin.left} ${y}H${width - margin.right}` };
  });
  if (area && area.points.length > 2) {
    const d = `${path(area.points.map(toPixels))}Z`;
    shapes.push({ tag: "path", class: "sv-area", "data-key": area.key, d });
  }
  for (const { points, key, isLater, isThin, hasHead } of lines) {
    if (!points.length) continue;
    let name = "sv-line";
    if (isLater) name += " is-later";
    if (isThin) name += " is-thin";
    shapes.push({ tag: "path", class: name, "data-key": key, d: path(points.map(toPixels)) });
    if (!hasHead) continue;
    const { x: cx, y: cy } = toPixels(points[points.length - 1]);
    shapes.push({ tag: "circle", class: "sv-dot", "data-key": key, cx, cy, r: 4.5 });
  }
  return shapes;
}

// The words at the axes and in the chart.
/** @type {(chart: LineChart, toPixels: ToPixels, height: number) => Part[]} */
function wordsOf({ x: [x0], y: [y0], ticksX, ticksY, labels = [], margin }, toPixels, height) {
  const besideY = (/** @type {number} */ value) =>
    ({ x: margin.left - 9, y: toPixels({ x: x0, y: value }).y });
  const belowX = (/** @type {number} */ value) =>
    ({ x: toPixels({ x: value, y: y0 }).x, y: height - margin.bottom + 5 });
  return [
    ...ticksY.map(([value, text]) => put(text, "sv-tick is-y", besideY(value))),
    ...ticksX.map(([value, text]) => put(text, "sv-tick is-x", belowX(value))),
    ...labels.map(({ at, text, className = "", by = [0, 0] }) => {
      const { x, y } = toPixels(at);
      return put(text, `sv-label ${className}`, { x: x + by[0], y: y + by[1] });
    }),
  ];
}

/**
 * A node of a chart: its name, its attributes and its text.
 * @typedef {Record<string, string | number> & { tag: string }} Part
 */

/** The drawn nodes of each parent. @type {WeakMap<Element, { node: Element, part: Part }[]>} */
const drawn = new WeakMap();

// Replace the drawn parts. Only what differs is set: making new nodes for every frame would cause pauses for
// garbage collection.
/** @type {(parent: Element, wanted: Part[]) => void} */
function renew(parent, wanted) {
  const present = drawn.get(parent) ?? [];
  for (const { node } of present.slice(wanted.length)) node.remove();
  drawn.set(parent, wanted.map((part, i) => {
    const old = present[i];
    const node = old?.part.tag === part.tag ? old.node : nodeOf(part);
    if (!old) parent.append(node);
    else if (node !== old.node) old.node.replaceWith(node);
    const before = /** @type {Partial<Part>} */ (node === old?.node ? old.part : {});
    for (const name of Object.keys(before)) if (!(name in part)) node.removeAttribute(name);
    for (const [name, value] of Object.entries(part)) {
      if (name === "tag" || value === before[name]) continue;
      if (name === "text") node.textContent = String(value);
      else if (name === "at" && node instanceof HTMLElement) node.style.transform = String(value);
      else node.setAttribute(name, String(value));
    }
    return { node, part };
  }));
}

/** @param {Part} part */
const nodeOf = ({ tag }) => (tag === "span" ? element("span") : shape(tag, {}));

/** @param {Point[]} points */
function path(points) {
  let last = points[0];
  let commands = `M${last.x.toFixed(1)} ${last.y.toFixed(1)}`;
  points.forEach((point, i) => {
    const isNear = Math.abs(point.x - last.x) < NEAR && Math.abs(point.y - last.y) < NEAR;
    if (i === 0 || (isNear && i < points.length - 1)) return;
    commands += `L${point.x.toFixed(1)} ${point.y.toFixed(1)}`;
    last = point;
  });
  return commands;
}

/** A text at a point in px. @type {(text: string, className: string, at: Point) => Part} */
const put = (text, className, at) => ({ tag: "span", class: className, text, at: shift(at) });

/** @param {Point} at  px */
const shift = ({ x, y }) => `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;

/**
 * @param {HTMLElement} node
 * @param {Point} at  px
 */
export function move(node, at) {
  node.style.transform = shift(at);
}

/** @typedef {{ x: number, y: number }} Point */

/**
 * A run as a race of two: its fastest lane, under the name "speculative", and the target alone.
 * @param {Trace} trace
 * @returns {Trace}
 */
export const raceOfTwo = (trace) => twoOf(trace, fastestLane(trace.rounds, trace.header));

/**
 * Tokens against seconds: of draft and target, then of the target alone.
 * @type {(rounds: Round[]) => Point[][]}
 */
export function curves(rounds) {
  return series(rounds).tokens.map(({ x, y }) => x.map((at, i) => ({ x: Number(at), y: Number(y[i]) })));
}

/**
 * The ends of lines: the greatest x and y of all of them, neither of them zero.
 * @type {(lines: Point[][]) => Point}
 */
export function ends(lines) {
  const all = lines.flat();
  return {
    x: all.reduce((max, { x }) => Math.max(max, x), 0) || 1,
    y: all.reduce((max, { y }) => Math.max(max, y), 0) || 1,
  };
}

/**
 * Round numbers from 0 up to `max`, about `count` of them.
 * @type {(max: number, count: number) => number[]}
 */
export function ticks(max, count) {
  const rough = max / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((times) => times * power >= rough) ?? 10);
  const length = Math.floor(max / step + 1e-9) + 1;
  return Array.from({ length }, (_, i) => Number((i * step).toPrecision(6)));
}

/**
 * The same with their labels.
 * @type {(max: number, count: number, labelOf?: (value: number) => string) => [number, string][]}
 */
export const namedTicks = (max, count, labelOf = String) =>
  ticks(max, count).map((value) => [value, labelOf(value)]);
