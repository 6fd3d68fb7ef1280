// Both runs' tokens against their clocks, in one drawing.

import { drawLines } from "specviz/charts/lines.js";
import { curves, ends, ticks } from "specviz/charts/plot.js";
import { element } from "specviz/dom/dom.js";
import { fixed } from "specviz/words/words.js";

/** @import { Side } from "specviz/compare/parts.js" */

const HEIGHT = 230; // px
const MARGIN = { left: 44, right: 14, top: 8, bottom: 38 }; // px
const TICK_EVERY = { x: 110, y: 50 }; // px
const RUNS = ["earlier", "latest"]; // what they are to the style sheet

/**
 * The drawing and its key.
 * @param {Side[]} sides
 * @param {number} width px
 * @returns {HTMLElement[]}
 */
export function chart(sides, width) {
  const lines = sides.flatMap(({ name, trace }, run) => curves(trace.rounds).map((points, i) => ({
    points, isThin: true, key: i ? `${RUNS[run]}-alone` : RUNS[run], said: `${name.toLowerCase()}, ${i ? "target alone" : "with drafts"}`,
  })));
  const most = ends(lines.map(({ points }) => points));
  const drawing = element("div"), figure = element("figure", "sv-curves"), key = element("p", "sv-curves-key");
  const labelled = (/** @type {number[]} */ values) => values.map((value) => /** @type {[number, string]} */ ([value, String(value)]));
  drawing.style.height = `${HEIGHT}px`;
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-label", `Tokens against clock. ${lines.map(({ points, said }) => {
    const { x, y } = points[points.length - 1];
    return `${said}: ${y} in ${fixed(x, 2)} s`;
  }).join("; ")}.`);
  drawLines(drawing, { width, height: HEIGHT }, {
    x: [0, most.x], y: [0, most.y], lines, margin: MARGIN,
    ticksX: labelled(ticks(most.x, width / TICK_EVERY.x)), ticksY: labelled(ticks(most.y, HEIGHT / TICK_EVERY.y)),
  });
  figure.append(drawing, element("small", "", "Tokens written against each lane’s own clock, in seconds"));
  for (const { key: run, said } of lines) {
    const item = element("span"), sample = element("i");
    sample.dataset.key = run;
    item.append(sample, said);
    key.append(item);
  }
  return [figure, key];
}
