// Drawings of one verdict: the odds and the draw on a line, and p laid over q.

import { verdictKind } from "specviz/facts/vocabulary.js";
import { element } from "specviz/dom/dom.js";
import { inBoth } from "specviz/explain/numbers.js";
import { track, word } from "specviz/explain/pictures.js";
import { chance, oddsAndDraw } from "specviz/words/reasons.js";
import { number } from "specviz/words/rules.js";

/**
 * What is compared, on a line from 0 to 1: u with min(1, p / q), by block verification with the
 * threshold, and by typical acceptance p with the threshold.
 * @param {Token} token
 * @param {string} [rule]
 */
export function verdict(token, rule = "token") {
  const { p = 0, q = 1, u = 0, threshold = 0, weight, outcome } = token, isKept = outcome === "accepted";
  const isByDraw = rule === "token" || verdictKind(rule).together; // u is below what is accepted, p above it
  const { odds, draw } = oddsAndDraw(token);
  const keep = rule === "token" ? Math.min(1, p / q) : threshold, value = isByDraw ? u : Math.min(1, p);
  const [limit, bound] = rule === "token" ? ["min(1, p/q)", odds] : ["threshold", number(threshold)];
  const [name, said] = rule === "token" ? ["u", draw] : isByDraw ? ["u", number(u)] : ["p", number(p)];
  const below = isByDraw ? "accepted" : "rejected", above = isByDraw ? "rejected" : "accepted", told = isKept ? "accepted" : "rejected";
  const label = `A line from 0 to 1: ${limit} is ${bound}, ${name} is ${said}: ${told}.`;
  return element("div", `sx-verdict is-${told}`,
    rule === "token" ? element("p", "sx-fraction", element("span", "", element("span", "", `p ${chance(p)}`), element("span", "", `q ${chance(q)}`)))
      : element("p", "sx-fraction", weight === undefined ? `p ${chance(p)}` : `weight ${number(weight)}`),
    element("div", "sx-line", { role: "img", "aria-label": label }, track([[below, keep], [above, 1 - keep]], 1),
      pin("keep", keep, limit, bound), pin("draw", value, name, said), element("small", "is-0", "0"), element("small", "is-1", "1")),
    element("b", "sx-word-of-verdict", told));
}

/**
 * A mark on the line; its label stays inside of it.
 * @param {string} name
 * @param {number} value from 0 to 1
 * @param {string} label
 * @param {string} number
 */
const pin = (name, value, label, number) => element("span", `sx-pin is-${name}`, { style: { "--at": value } },
  element("span", "", `${label} = `, element("b", "", number)));

/**
 * p laid over q, token by token: what both give, what only q gives, what only p gives.
 * @param {Shares} shares
 * @param {number} chosen id of the token that is spoken of
 * @param {boolean} [isLeft] whether what only p gives is what matters
 */
export function overlay({ rows, rest }, chosen, isLeft = false) {
  const whole = Math.max(...rows.map(({ p, q }) => Math.max(p, q)));
  const table = element("table", isLeft ? "sx-overlay is-left" : "sx-overlay");
  const key = KEYS.map(([name, text]) => element("span", "", element("i", name), text));
  table.append(line("th", null, element("span", "sx-key", ...key), "target p", "draft q"));
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
const line = (kind, text, drawing, ...numbers) => element("tr", "",
  text === null ? element("td") : element(kind, "", word(text)), element(kind, "", drawing),
  ...numbers.map((number) => element(kind, "", number)));
