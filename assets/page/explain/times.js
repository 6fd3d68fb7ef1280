// Drawings of a round's time, to scale.

import { element } from "specviz/dom/dom.js";
import { secondsOf } from "specviz/explain/numbers.js";
import { chip } from "specviz/explain/pictures.js";
import { fixed, plural, visible } from "specviz/words/words.js";

/** @param {number} seconds */
export function milliseconds(seconds) {
  const value = 1000 * seconds;
  return `${fixed(value, value < 0.1 ? 3 : value < 100 ? 2 : 0)}\u00a0ms`;
}

/**
 * The time of a round to scale: narrow steps of the draft and one wide pass.
 * @param {Round} round
 * @param {number} whole seconds that fill the width
 * @param {"draft" | "verify" | "overhead"} [until] the last part that is over
 */
export function times({ drafted, draft_seconds: draft, verify_seconds: verify, overhead_seconds: overhead },
  whole, until = "overhead") {
  /** @type {[string, number][]} */
  const parts = [...drafted.map(() => /** @type {[string, number]} */ (["draft", draft / drafted.length])),
    ["verify", verify], ["overhead", overhead]];
  const order = ["draft", "verify", "overhead"];
  return element("span", "sx-times", ...parts.map(([name, seconds], i) =>
    element("i", name + (order.indexOf(name) > order.indexOf(until) ? " is-ahead" : ""), {
      style: { "--i": i, width: `${(100 * seconds) / whole}%` },
    })));
}

/**
 * Both clocks on one scale: the round, and the target alone for as many tokens.
 * @param {Round} round
 * @param {Balance} balance
 * @param {Marked[]} written in the round
 */
export function clocks(round, { tokens, seconds, passes, alone }, written) {
  const whole = Math.max(seconds, alone ?? 0), isAlone = round.lane === "baseline";
  const words = element("p", "", ...written.flatMap((token) => [chip(token), " "]));
  const own = clock(isAlone ? "target alone" : "with drafts", times(round, whole), seconds, tokens, words);
  if (alone === null || isAlone) return element("dl", "sx-clocks", ...own);
  const wide = (/** @type {number} */ part) => `${(100 * part) / whole}%`;
  const pieces = passes.length ? passes.map((pass) => ({ seconds: secondsOf(pass), text: pass.emitted[0]?.text }))
    : Array.from({ length: tokens }, () => ({ seconds: alone / tokens, text: undefined }));
  const bar = element("span", "sx-times", ...pieces.map((piece) => element("i", "alone", { style: { width: wide(piece.seconds) } },
    ...piece.text === undefined ? [] : [element("span", "", visible(piece.text))])));
  if (seconds < alone) bar.append(element("u", "", { style: { left: wide(seconds) } })); // the end of the round
  return element("dl", "sx-clocks", ...own, ...clock("target alone", bar, alone, tokens));
}

/**
 * @param {string} name
 * @param {HTMLElement} bar
 * @param {number} seconds
 * @param {number} tokens
 * @param {...HTMLElement} below
 */
const clock = (name, bar, seconds, tokens, ...below) => [element("dt", "", name), element("dd", "", bar,
  element("b", "", milliseconds(seconds), element("small", "", ` ${plural(tokens, "token")}`)), ...below)];
