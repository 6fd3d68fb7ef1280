// Both runs' tokens against their clocks, in one drawing.

import { element } from "specviz/dom/dom.js";
import { curves, ends, ticks } from "specviz/charts/plot.js";
import { fixed } from "specviz/words/words.js";

/** @import { Point } from "specviz/charts/plot.js" */
/** @import { Side } from "specviz/compare/parts.js" */

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 230; // px
const LEFT = 44, RIGHT = 14, TOP = 8, BOTTOM = 38; // px around the lines
const TICK_EVERY = { x: 110, y: 50 }; // px

/**
 * The drawing and its key.
 * @param {Side[]} sides
 * @param {number} width px
 * @returns {HTMLElement[]}
 */
export function chart(sides, width) {
  const lines = sides.flatMap(({ name, trace }) => curves(trace.rounds).map((points, i) => ({
    points, run: name.toLowerCase(), lane: i ? "target alone" : "draft + target",
  })));
  const most = ends(lines.map(({ points }) => points));
  const place = {
    x: (/** @type {number} */ seconds) => LEFT + (seconds / most.x) * (width - LEFT - RIGHT),
    y: (/** @type {number} */ tokens) => HEIGHT - BOTTOM - (tokens / most.y) * (HEIGHT - TOP - BOTTOM),
  };
  const drawing = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  drawing.setAttribute("aria-label", said(lines));
  drawing.append(...axes(most, place, width), ...lines.map(({ points, run, lane }) =>
    svg("path", { class: `${run} ${lane === "target alone" ? "alone" : "ours"}`, d: stepped(points, place) })));
  const figure = element("div", "sv-curves"), key = element("p", "sv-curves-key");
  figure.append(drawing);
  for (const { run, lane } of lines) {
    const item = element("span");
    item.append(element("i", `${run} ${lane === "target alone" ? "alone" : "ours"}`), `${run}, ${lane}`);
    key.append(item);
  }
  return [figure, key];
}

/**
 * @param {string} name
 * @param {Record<string, string | number>} attributes
 * @param {string} [text]
 */
function svg(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  if (text !== undefined) node.textContent = text;
  return node;
}

/** @typedef {Record<"x" | "y", (value: number) => number>} Place */

/**
 * @param {Point} most
 * @param {Place} place
 * @param {number} width px
 */
function axes(most, place, width) {
  const across = ticks(most.x, width / TICK_EVERY.x), up = ticks(most.y, HEIGHT / TICK_EVERY.y);
  const foot = HEIGHT - BOTTOM;
  return [
    ...up.map((value) => svg("line", { x1: LEFT, x2: width - RIGHT, y1: place.y(value), y2: place.y(value) })),
    ...up.map((value) => svg("text", { x: LEFT - 8, y: place.y(value) + 4, "text-anchor": "end" }, String(value))),
    ...across.map((value) =>
      svg("text", { x: place.x(value), y: foot + 17, "text-anchor": "middle" }, String(value))),
    svg("text", { x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, "clock, s"),
    svg("text", { x: LEFT, y: HEIGHT - 4 }, "tokens written"),
  ];
}

/**
 * Tokens are there at the end of their round.
 * @param {Point[]} points
 * @param {Place} place
 */
function stepped(points, place) {
  return points.map(({ x, y }, i) =>
    (i ? `H${place.x(x).toFixed(1)}V${place.y(y).toFixed(1)}` : `M${place.x(x)} ${place.y(y)}`)).join("");
}

/** @param {{ points: Point[], run: string, lane: string }[]} lines */
function said(lines) {
  const parts = lines.map(({ points, run, lane }) => {
    const { x, y } = points[points.length - 1];
    return `${run}, ${lane}: ${y} in ${fixed(x, 2)} s`;
  });
  return `Tokens against clock. ${parts.join("; ")}.`;
}
