// A canvas with the colours and fonts of pictures and films of a run.

import { describe } from "specviz/words/description.js";

export const SANS = '"Source Sans Pro", system-ui, sans-serif';
export const SERIF = '"Source Serif 4", Charter, "Iowan Old Style", Georgia, serif';
export const MONO = '"IBM Plex Mono", ui-monospace, "SF Mono", Menlo, Consolas, monospace';
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

/** A canvas in the colours of the page; all lengths are px. Throws if the browser has none. */
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
   * Write a line, without words that do not fit into `maxWidth`. Returns its width.
   * @param {string} text
   * @param {number} x
   * @param {number} y  of the baseline
   * @param {{ font: string, colour?: keyof Colours, align?: CanvasTextAlign, maxWidth?: number }} style
   */
  write(text, x, y, { font, colour = "soft", align = "left", maxWidth = Infinity }) {
    const { context } = this;
    Object.assign(context, {
      font,
      fillStyle: this.colours[colour],
      textAlign: align,
      textBaseline: "alphabetic",
    });
    const fitting = fitted(text, (part) => context.measureText(part).width <= maxWidth);
    context.fillText(fitting, x, y);
    return context.measureText(fitting).width;
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

/**
 * A text, or as many of its words as fit; if not even one fits, the beginning of the first.
 * @type {(text: string, fits: (part: string) => boolean) => string}
 */
export function fitted(text, fits) {
  if (fits(text)) return text;
  const words = text.split(" ");
  const beginning = (/** @type {number} */ count) =>
    `${words.slice(0, count).join(" ").replace(/[\s·,;:+]+$/, "")}…`;
  let wordCount = 0; // words that fit
  let tooMany = words.length;
  while (tooMany - wordCount > 1) {
    const count = Math.floor((wordCount + tooMany) / 2);
    if (fits(beginning(count))) wordCount = count; else tooMany = count;
  }
  if (wordCount > 0) return beginning(wordCount);
  const letters = [...words[0]];
  while (letters.length > 1 && !fits(`${letters.join("")}…`)) letters.pop();
  return `${letters.join("")}…`;
}

/**
 * A text in lines, broken between its parts, or between words if a part is longer than a line.
 * @type {(text: string, fits: (line: string) => boolean) => string[]}
 */
export function inLines(text, fits) {
  const parts = text.split(/(?<= · )/);
  const pieces = parts.flatMap((part) => (fits(part.trimEnd()) ? [part] : part.split(/(?<= )/)));
  const lines = [""];
  for (const piece of pieces) {
    const last = lines.length - 1;
    if (lines[last] && !fits(`${lines[last]}${piece}`.trimEnd())) lines.push(piece);
    else lines[last] += piece;
  }
  return lines.map((line) => line.trimEnd());
}

/** The description of a run in one line, without its prompt. @param {Header} header */
export function runLine(header) {
  const items = describe(header).filter(({ name }) => name !== "prompt");
  return items.map(({ text }) => text).join(" · ").replace(" · +", " +");
}
