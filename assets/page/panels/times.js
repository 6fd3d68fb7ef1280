// Bars of the times of rounds on one scale, in the colours of their parts.

import { element } from "specviz/dom/dom.js";
import { fixed } from "specviz/words/words.js";

/** @typedef {"draft" | "verify" | "overhead"} Part */
/** @type {Part[]} */
const PARTS = ["draft", "verify", "overhead"];

/**
 * The colours of the parts of a round's time.
 * @param {(part: Part) => string} [say]
 */
export function timesKey(say = (part) => part) {
  const keys = PARTS.map((part) => element("span", "", element("i", part), say(part)));
  return element("p", "sv-times-key", ...keys);
}

/**
 * Bars of times on one scale.
 * @param {[label: string, parts: Record<Part, number>][]} bars  seconds
 */
export function timeBars(bars) {
  const longest = Math.max(...bars.map(([, parts]) => total(parts))) || 1;
  return element("dl", "sv-times", ...bars.flatMap(([label, parts]) => {
    const pieces = PARTS.map((part) =>
      element("i", part, { style: { width: `${(100 * parts[part]) / longest}%` } }));
    const bar = element("span", "sv-times-bar", ...pieces);
    const seconds = element("b", "", milliseconds(total(parts)));
    return [element("dt", "", label), element("dd", "", bar, seconds)];
  }));
}

/** @param {Record<Part, number>} parts */
const total = ({ draft, verify, overhead }) => draft + verify + overhead;

/** @param {number} seconds */
export const milliseconds = (seconds) => `${fixed(1000 * seconds, 2)} ms`;
