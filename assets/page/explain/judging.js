// Drawings of one verdict: the odds and the draw on a line, and p laid over q.

import { verdictKind } from "specviz/facts/vocabulary.js";
import { element } from "specviz/dom/dom.js";
import { inBoth } from "specviz/explain/numbers.js";
import { track, word } from "specviz/explain/pictures.js";
import { chance, oddsAndDraw } from "specviz/words/reasons.js";
import { number } from "specviz/words/rules.js";

/** @import { Share, Shares } from "specviz/explain/numbers.js" */

/**
 * What is compared, on a line from 0 to 1: u with min(1, p / q), by block verification with the
 * threshold, and by typical acceptance p with the threshold.
 * @param {Token} token
 * @param {string} [rule]
 */
export function verdict(token, rule = "token") {
  if (rule !== "token") return comparedBy(token, rule);
  const { p = 0, q = 1, u = 0 } = token;
  const { odds, draw } = oddsAndDraw(token);
  const keep = Math.min(1, p / q), isKept = token.outcome === "accepted";
  const box = element("div", `sx-verdict ${isKept ? "is-accepted" : "is-rejected"}`);
  const line = element("div", "sx-line");
  line.setAttribute("role", "img");
  line.setAttribute("aria-label", `A line from 0 to 1: accepted below ${odds}. The draw u is ${draw}: ${
    isKept ? "accepted" : "rejected"}.`);
  line.append(track([["accepted", keep], ["rejected", 1 - keep]], 1),
    pin("keep", keep, "min(1, p/q)", odds), pin("draw", u, "u", draw),
    element("small", "is-0", "0"), element("small", "is-1", "1"));
  box.append(fraction(p, q), line, element("b", "sx-word-of-verdict", isKept ? "accepted" : "rejected"));
  return box;
}

/**
 * @param {Token} token
 * @param {string} rule that has a threshold
 */
function comparedBy({ p = 0, u = 0, threshold = 0, weight, outcome }, rule) {
  const isKept = outcome === "accepted", isBlock = verdictKind(rule).together;
  const [name, value] = isBlock ? ["u", u] : ["p", p];
  const words = isKept ? "accepted" : "rejected";
  const box = element("div", `sx-verdict ${isKept ? "is-accepted" : "is-rejected"}`);
  const line = element("div", "sx-line");
  line.setAttribute("role", "img");
  line.setAttribute("aria-label", `A line from 0 to 1: the threshold is ${number(threshold)}, ${name} is ${
    number(value)}: ${words}.`);
  const parts = /** @type {[string, number][]} */ (isBlock ? [["accepted", threshold], ["rejected", 1 - threshold]]
    : [["rejected", threshold], ["accepted", 1 - threshold]]);
  line.append(track(parts, 1), pin("keep", threshold, "threshold", number(threshold)),
    pin("draw", Math.min(1, value), name, number(value)), element("small", "is-0", "0"), element("small", "is-1", "1"));
  box.append(element("p", "sx-fraction", weight === undefined ? `p ${chance(p)}` : `weight ${number(weight)}`), line,
    element("b", "sx-word-of-verdict", words));
  return box;
}

/**
 * @param {number} p
 * @param {number} q
 */
function fraction(p, q) {
  const box = element("p", "sx-fraction");
  const parts = element("span");
  parts.append(element("span", "", `p ${chance(p)}`), element("span", "", `q ${chance(q)}`));
  box.append(parts);
  return box;
}

/**
 * A mark on the line; its label stays inside of it.
 * @param {string} name
 * @param {number} value from 0 to 1
 * @param {string} label
 * @param {string} number
 */
function pin(name, value, label, number) {
  const node = element("span", `sx-pin is-${name}`);
  node.style.setProperty("--at", String(value));
  const text = element("span", "", `${label} = `);
  text.append(element("b", "", number));
  node.append(text);
  return node;
}

/**
 * p laid over q, token by token: what both give, what only q gives, what only p gives.
 * @param {Shares} shares
 * @param {number} chosen id of the token that is spoken of
 * @param {boolean} [isLeft] whether what only p gives is what matters
 */
export function overlay({ rows, rest }, chosen, isLeft = false) {
  const whole = Math.max(...rows.map(({ p, q }) => Math.max(p, q)));
  const table = element("table", isLeft ? "sx-overlay is-left" : "sx-overlay");
  table.append(line("th", null, element("span", "sx-key"), "target p", "draft q"));
  table.querySelector(".sx-key")?.append(...KEYS.map(([name, text]) => key(name, text)));
  for (const row of rows) {
    const node = line("td", row.text, track(pieces(row), whole), chance(row.p), chance(row.q));
    node.classList.toggle("is-chosen", row.id === chosen);
    table.append(node);
  }
  const [onlyQ, onlyP] = [rest.q - rest.both, rest.p - rest.both].map(chance);
  const both = `${chance(rest.both)} in both, ${onlyQ} only in q, ${onlyP} only in p`;
  const others = line("td", null, element("small", "", both), chance(rest.p), chance(rest.q));
  others.className = "is-rest";
  others.cells[0].textContent = "all others";
  table.append(others);
  return table;
}

/** @type {[string, string][]} */
const KEYS = [["both", "in both"], ["more-q", "only in q: rejected"], ["more-p", "only in p: made up for"]];

/**
 * @param {string} name
 * @param {string} text
 */
function key(name, text) {
  const node = element("span");
  node.append(element("i", name), text);
  return node;
}

/**
 * @param {Share} row
 * @returns {[string, number][]}
 */
const pieces = (row) =>
  [["both", inBoth(row)], ["more-q", row.q - inBoth(row)], ["more-p", row.p - inBoth(row)]];

/**
 * @param {"th" | "td"} kind
 * @param {string | null} text of a token
 * @param {HTMLElement} drawing
 * @param {...string} numbers
 */
function line(kind, text, drawing, ...numbers) {
  const row = element("tr");
  const drawn = element(kind);
  drawn.append(drawing);
  const head = element(text === null ? "td" : kind);
  if (text !== null) head.append(word(text));
  row.append(head, drawn, ...numbers.map((number) => element(kind, "", number)));
  return row;
}
