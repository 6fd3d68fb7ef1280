// Drawings of a round's time, to scale.

import { element } from "specviz/dom/dom.js";
import { secondsOf } from "specviz/explain/numbers.js";
import { chip } from "specviz/explain/pictures.js";
import { fixed, visible } from "specviz/words/words.js";

/** @import { Balance } from "specviz/explain/numbers.js" */
/** @import { Marked } from "specviz/explain/pictures.js" */

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
  const bar = element("span", "sx-times");
  /** @type {[string, number][]} */
  const parts = [...drafted.map(() => /** @type {[string, number]} */ (["draft", draft / drafted.length])),
    ["verify", verify], ["overhead", overhead]];
  const order = ["draft", "verify", "overhead"];
  for (const [i, [name, seconds]] of parts.entries()) {
    const piece = element("i", name);
    piece.style.setProperty("--i", String(i));
    piece.style.width = `${(100 * seconds) / whole}%`;
    piece.classList.toggle("is-ahead", order.indexOf(name) > order.indexOf(until));
    bar.append(piece);
  }
  return bar;
}

/**
 * Both clocks on one scale: the round, and the target alone for as many tokens.
 * @param {Round} round
 * @param {Balance} balance
 * @param {Marked[]} written in the round
 */
export function clocks(round, { tokens, seconds, passes, alone }, written) {
  const whole = Math.max(seconds, alone ?? 0);
  const list = element("dl", "sx-clocks");
  const words = element("p");
  for (const token of written) words.append(chip(token), " ");
  list.append(...clock(round.lane === "baseline" ? "target alone" : "with drafts",
    times(round, whole), seconds, tokens, words));
  if (alone === null || round.lane === "baseline") return list;
  const bar = element("span", "sx-times");
  const single = passes.length ? passes : Array.from({ length: tokens }, () => null);
  for (const pass of single) {
    const piece = element("i", "alone");
    piece.style.width = `${(100 * (pass ? secondsOf(pass) : alone / tokens)) / whole}%`;
    if (pass?.emitted[0]) piece.append(element("span", "", visible(pass.emitted[0].text)));
    bar.append(piece);
  }
  if (seconds < alone) {
    const end = element("u"); // of the round, on the other clock
    end.style.left = `${(100 * seconds) / whole}%`;
    bar.append(end);
  }
  list.append(...clock("target alone", bar, alone, tokens));
  return list;
}

/**
 * @param {string} name
 * @param {HTMLElement} bar
 * @param {number} seconds
 * @param {number} tokens
 * @param {HTMLElement} [below]
 */
function clock(name, bar, seconds, tokens, below) {
  const value = element("dd");
  const number = element("b", "", milliseconds(seconds));
  number.append(element("small", "", ` ${tokens} token${tokens === 1 ? "" : "s"}`));
  value.append(bar, number);
  if (below) value.append(below);
  return [element("dt", "", name), value];
}
