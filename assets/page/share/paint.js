// What pictures and films of a run are painted with, on a canvas.

import { describe } from "specviz/words/description.js";

export const SANS = '"Source Sans Pro", system-ui, sans-serif';
export const SERIF = '"Source Serif 4", Charter, "Iowan Old Style", Georgia, serif';
const NAMES = /** @type {const} */ ([
  "page", "panel", "ink", "soft", "line", "track", "draft", "accepted", "rejected", "corrected", "bonus",
]);

/** @typedef {Record<typeof NAMES[number], string>} Colours  of the theme that the page has */

/** @returns {Colours} */
export function coloursOfPage() {
  const style = getComputedStyle(document.body);
  const pairs = NAMES.map((name) => [name, style.getPropertyValue(`--sv-${name}`).trim()]);
  return /** @type {Colours} */ (Object.fromEntries(pairs));
}

/**
 * A canvas of its own, and what paints on it. Throws if the browser has none.
 * @param {number} width px
 * @param {number} height px
 */
export function canvasOf(width, height) {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  if (!context) throw new Error("the browser has no canvas");
  return { canvas, context };
}

/**
 * Write a line; what does not fit into `most` pixels is left out. The pixels that it took.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} y of the foot of the letters
 * @param {{ font: string, colour: string, align?: CanvasTextAlign, most?: number }} how
 */
export function write(context, text, x, y, { font, colour, align = "left", most = Infinity }) {
  Object.assign(context, { font, fillStyle: colour, textAlign: align, textBaseline: "alphabetic" });
  let shown = text;
  while (shown.length > 1 && context.measureText(shown).width > most) shown = `${shown.replace(/…$/, "").slice(0, -1).trimEnd()}…`;
  context.fillText(shown, x, y);
  return context.measureText(shown).width;
}

/**
 * The name of the page.
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 * @param {number} x
 * @param {number} y
 * @param {number} size px
 */
export function brand(context, colours, x, y, size) {
  const font = `600 ${size}px ${SANS}`;
  const width = write(context, "spec", x, y, { font, colour: colours.ink });
  write(context, "viz", x + width, y, { font, colour: colours.accepted });
}

/**
 * A box with round corners.
 * @param {CanvasRenderingContext2D} context
 * @param {[number, number, number, number]} box left, top, width, height
 * @param {string} colour
 * @param {number} radius px
 */
export function fillBox(context, [x, y, width, height], colour, radius) {
  context.fillStyle = colour;
  context.beginPath();
  context.roundRect(x, y, Math.max(0, width), height, Math.min(radius, Math.max(0, width) / 2));
  context.fill();
}

/** What a run is, but for its prompt, in one line. @param {Header} header */
export function runLine(header) {
  return describe(header).filter(({ name }) => name !== "prompt").map(({ text }) => text).join(" · ").replace(" · +", " +");
}
