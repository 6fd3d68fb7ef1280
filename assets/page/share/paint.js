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

/** A canvas of its own, in the colours of the page; all lengths are px. Throws if the browser has none. */
export class Painting {
  canvas = document.createElement("canvas");
  colours = coloursOfPage();

  constructor(width = 1, height = 1) {
    Object.assign(this.canvas, { width, height });
    const context = this.canvas.getContext("2d");
    if (!context) throw new Error("the browser has no canvas");
    this.context = context;
  }

  /** @param {keyof Colours} colour */
  fill(colour, left = 0, top = 0, width = this.canvas.width, height = this.canvas.height) {
    this.context.fillStyle = this.colours[colour];
    this.context.fillRect(left, top, width, height);
  }

  /**
   * Write a line; what does not fit into `most` is left out. The width that it took.
   * @param {string} text
   * @param {number} x
   * @param {number} y of the foot of the letters
   * @param {{ font: string, colour?: keyof Colours, align?: CanvasTextAlign, most?: number }} how
   */
  write(text, x, y, { font, colour = "soft", align = "left", most = Infinity }) {
    const { context } = this;
    Object.assign(context, {
      font,
      fillStyle: this.colours[colour],
      textAlign: align,
      textBaseline: "alphabetic",
    });
    let shown = text;
    while (shown.length > 1 && context.measureText(shown).width > most) {
      shown = `${shown.replace(/…$/, "").slice(0, -1).trimEnd()}…`;
    }
    context.fillText(shown, x, y);
    return context.measureText(shown).width;
  }

  /** The name of the page. @type {(x: number, y: number, size: number) => void} */
  brand(x, y, size) {
    const font = `600 ${size}px ${SANS}`;
    const width = this.write("spec", x, y, { font, colour: "ink" });
    this.write("viz", x + width, y, { font, colour: "accepted" });
  }

  /**
   * A box with round corners.
   * @param {[left: number, top: number, width: number, height: number]} box
   * @param {keyof Colours} colour
   * @param {number} radius
   */
  box([x, y, width, height], colour, radius) {
    const { context } = this;
    const wide = Math.max(0, width);
    context.fillStyle = this.colours[colour];
    context.beginPath();
    context.roundRect(x, y, wide, height, Math.min(radius, wide / 2));
    context.fill();
  }
}

/** What a run is, but for its prompt, in one line. @param {Header} header */
export function runLine(header) {
  const items = describe(header).filter(({ name }) => name !== "prompt");
  return items.map(({ text }) => text).join(" · ").replace(" · +", " +");
}
