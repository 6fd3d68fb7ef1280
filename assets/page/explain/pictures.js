// Drawings of one round for its steps: its text, bars of both models' distributions, the odds and the draw on
// a line, and p laid over q.

import { element } from "specviz/dom/dom.js";
import { verdictKind } from "specviz/facts/vocabulary.js";
import { chance, number, oddsAndDraw } from "specviz/words/reasons.js";
import { visible } from "specviz/words/words.js";

const TAIL = 64; // characters of the text before the round
const SHORT_TAIL = 40; // where there is little room
const CODE_LINES = 3; // before the round, with the line that it continues
const MAX_COLUMNS = 200; // of a line of code
const FINEST = 0.001; // share of the track; a shorter bar would be invisible

/**
 * A token as the text line shows it; without a verdict its outcome is "own".
 * @typedef {{ text: string, outcome: ShownToken["outcome"] | "own" }} Marked
 */

/**
 * Tokens with their marks: the target's token is not a bonus if nothing was drafted.
 * @param {Round} round
 * @param {Token[]} tokens
 * @returns {Marked[]}
 */
export const marked = ({ drafted }, tokens) => tokens.map((token) =>
  (drafted.length ? token : { ...token, outcome: "own" }));

/** A token with the mark of its outcome. @param {Marked} token */
export const chip = ({ text, outcome }) =>
  element("span", `t ${outcome}`, element("span", "w", visible(text)));

/**
 * The end of the text before the round, and the round's tokens. Code keeps its lines.
 * @param {string} before
 * @param {Marked[]} tokens
 * @param {{ at?: number, isCode: boolean }} how  at: the token of the step
 */
export function textLine(before, tokens, { at, isCode }) {
  const line = element("p", "sx-text");
  line.append(element("span", "sv-given", isCode ? lastLines(before) : lastWords(before)));
  tokens.forEach((token, i) => {
    const node = chip(token);
    node.classList.toggle("is-at", i === at);
    node.style.setProperty("--i", String(i));
    const space = /^\s/.test(token.text) ? " " : "\u200b";
    line.append(isCode ? blanksBefore(token.text) : space, node);
    const indent = /\n[^\S\n]*$/.exec(token.text)?.[0];
    if (isCode && indent) line.append(indent);
  });
  return line;
}

/** The blanks before a word, which its chip leaves out. @param {string} text */
const blanksBefore = (text) => /^[^\S\n]+(?=\S)/.exec(text)?.[0] ?? "\u200b";

/** The end of a text of prose. @param {string} text */
function lastWords(text) {
  const flat = text.replace(/\s*\n\s*/g, " ¶ ");
  const maxLength = matchMedia("(max-width: 640px)").matches ? SHORT_TAIL : TAIL;
  const cut = flat.length > maxLength ? `…${flat.slice(flat.indexOf(" ", flat.length - maxLength))}` : flat;
  return cut.trimEnd();
}

/** The last lines of a text of code. @param {string} text */
function lastLines(text) {
  const lines = text.split("\n").filter((line, i, all) => line.trim() !== "" || i === all.length - 1);
  return lines.slice(-CODE_LINES).map((line) => line.slice(0, MAX_COLUMNS)).join("\n");
}

/**
 * Bars of the likeliest tokens with the chosen one marked, which is added if it is not among them.
 * @param {string} title
 * @param {"p" | "q" | "left"} kind
 * @param {Choice[]} choices
 * @param {Pick<Token, "id" | "text"> & { probability?: number }} [chosen]
 */
export function bars(title, kind, choices, chosen) {
  const isListed = chosen?.probability === undefined || choices.some(({ id }) => id === chosen.id);
  const entries = isListed ? choices : [...choices, { ...chosen, probability: chosen.probability ?? 0 }];
  const rows = entries.map(({ id, text, probability }) => {
    const bar = track([["", probability]], 1);
    const share = element("span", "sx-number", chance(probability));
    return element("li", id === chosen?.id ? "is-chosen" : "", word(text), bar, share);
  });
  const heading = element("small", "", { "aria-hidden": true }, title);
  return element("div", `sx-bars is-${kind}`, heading, element("ol", "", { "aria-label": title }, ...rows));
}

/** @param {string} text */
const word = (text) => element("span", "sx-word", visible(text));

// Pieces with their classes and lengths, one after another, on a track of length `scale`.
/** @type {(pieces: [string, number][], scale: number) => HTMLSpanElement} */
const track = (pieces, scale) => element("span", "sx-track", ...pieces
  .filter(([, length]) => length >= scale * FINEST || pieces.length === 1)
  .map(([name, length]) => element("i", name, { style: { width: `${(100 * length) / scale}%` } })));

/**
 * The positions of a round as columns: each guess with its bars of q, and of p after the target's pass.
 * @type {(round: Round, isRead: boolean) => HTMLOListElement}
 */
export function columns({ drafted, emitted }, isRead) {
  const columnList = drafted.map((token, i) => {
    const q = bars("draft q", "q", token.top_q ?? [], { ...token, probability: token.soft_q ?? token.q });
    return column(i, chip({ ...token, outcome: "pending" }), q, isRead ? ofTarget(token) : empty());
  });
  const last = emitted[emitted.length - 1];
  const next = last?.outcome === "bonus" ? ofTarget(last, false) : unused();
  if (isRead) columnList.push(column(drafted.length, element("span", "sx-next", "?"), empty(), next));
  return element("ol", "sx-places", { tabIndex: 0 }, ...columnList); // focusable, so that keys can scroll it
}

/** @type {(position: number, title: HTMLElement, ...parts: HTMLElement[]) => HTMLLIElement} */
const column = (position, title, ...parts) => element("li", "", { style: { "--i": position } },
  element("p", "", element("small", "", String(position + 1)), title), ...parts);

/** @type {(token: Token, isMarked?: boolean) => HTMLDivElement} */
function ofTarget(token, isMarked = true) {
  if (!token.top_p?.length) return unused();
  const chosen = isMarked ? { ...token, probability: token.soft_p ?? token.p } : undefined;
  return bars("target p", "p", token.top_p, chosen);
}

const empty = () => element("div", "sx-bars is-empty");

/** A position whose distribution the pass computed but nobody used. */
const unused = () => element("div", "sx-bars is-p is-unused",
  element("small", "", "target p"), element("p", "", "from the same pass, not used"));

/**
 * The written text, and the text that the ignored guesses continued.
 * @param {Marked[]} tokens of the round
 */
export function twoTexts(tokens) {
  const list = element("dl", "sx-texts");
  const accepted = tokens.filter(({ outcome }) => outcome === "accepted");
  const guessed = tokens.filter(({ outcome }) => outcome === "rejected" || outcome === "ignored");
  const corrected = tokens.filter(({ outcome }) => outcome === "corrected");
  const spacedChip = (/** @type {Marked} */ token) => [/^\s/.test(token.text) ? " " : "\u200b", chip(token)];
  const add = (/** @type {string} */ name, /** @type {Marked[]} */ text) =>
    list.append(element("dt", "", name), element("dd", "", ...text.flatMap(spacedChip)));
  add("the draft’s text", [...accepted, ...guessed]);
  add("written text", [...accepted, ...corrected]);
  return list;
}

/**
 * The comparison of a verdict, on a line from 0 to 1: u with min(1, p / q), in block verification u with the
 * threshold, and in typical acceptance p with the threshold.
 * @type {(token: Token, rule?: string) => HTMLDivElement}
 */
export function verdict(token, rule = "token") {
  const { limit, drawn } = comparedBy(token, rule);
  const isByDraw = drawn.name === "u"; // accepted if u is below the limit, or if p is above it
  const below = isByDraw ? "accepted" : "rejected";
  const above = isByDraw ? "rejected" : "accepted";
  const outcome = token.outcome === "accepted" ? "accepted" : "rejected";
  const marks = `${limit.name} is ${limit.text}, ${drawn.name} is ${drawn.text}`;
  const label = `A line from 0 to 1: ${marks}: ${outcome}.`;
  const scale = element(
    "div",
    "sx-line",
    { role: "img", "aria-label": label },
    track([[below, limit.value], [above, 1 - limit.value]], 1),
    pin("keep", limit.value, limit.name, limit.text),
    pin("draw", drawn.value, drawn.name, drawn.text),
    element("small", "is-0", "0"),
    element("small", "is-1", "1"),
  );
  const end = element("b", "sx-word-of-verdict", outcome);
  return element("div", `sx-verdict is-${outcome}`, fraction(token, rule), scale, end);
}

/**
 * The limit of a verdict, and the number that is compared with it.
 * @typedef {{ name: string, value: number, text: string }} Mark
 * @type {(token: Token, rule: string) => { limit: Mark, drawn: Mark }}
 */
function comparedBy(token, rule) {
  const { p = 0, q = 1, u = 0, threshold = 0 } = token;
  if (rule === "token") {
    const { odds, draw } = oddsAndDraw(token);
    return {
      limit: { name: "min(1, p/q)", value: Math.min(1, p / q), text: odds },
      drawn: { name: "u", value: u, text: draw },
    };
  }
  const limit = { name: "threshold", value: threshold, text: number(threshold) };
  if (verdictKind(rule).together) return { limit, drawn: { name: "u", value: u, text: number(u) } };
  return { limit, drawn: { name: "p", value: Math.min(1, p), text: number(p) } };
}

/** The numbers behind the limit of a verdict. @type {(token: Token, rule: string) => HTMLElement} */
function fraction({ p = 0, q = 1, weight }, rule) {
  if (rule !== "token") {
    return element("p", "sx-fraction", weight === undefined ? `p ${chance(p)}` : `weight ${number(weight)}`);
  }
  const above = element("span", "", `p ${chance(p)}`);
  const below = element("span", "", `q ${chance(q)}`);
  return element("p", "sx-fraction", element("span", "", above, below));
}

// A mark on the line from 0 to 1; its label stays inside of it.
/** @type {(name: string, value: number, label: string, number: string) => HTMLSpanElement} */
const pin = (name, value, label, number) => element("span", `sx-pin is-${name}`, { style: { "--at": value } },
  element("span", "", `${label} = `, element("b", "", number)));

/**
 * p laid over q, token by token: the common part, the part only in q, the part only in p.
 * @param {Shares} shares
 * @param {number} chosen  id of the token of the step
 * @param {boolean} [isLeft]  whether to highlight the part only in p, the residual
 */
export function overlay({ rows, rest }, chosen, isLeft = false) {
  const largest = Math.max(...rows.map(({ p, q }) => Math.max(p, q)));
  const table = element("table", isLeft ? "sx-overlay is-left" : "sx-overlay");
  const key = KEYS.map(([name, text]) => element("span", "", element("i", name), text));
  table.append(line("th", null, element("span", "sx-key", ...key), "target p", "draft q"));
  for (const row of rows) {
    const node = line("td", row.text, track(pieces(row), largest), chance(row.p), chance(row.q));
    node.classList.toggle("is-chosen", row.id === chosen);
    table.append(node);
  }
  const onlyQ = chance(rest.q - rest.both);
  const onlyP = chance(rest.p - rest.both);
  const both = `${chance(rest.both)} in both, ${onlyQ} only in q, ${onlyP} only in p`;
  const others = line("td", null, element("small", "", both), chance(rest.p), chance(rest.q));
  others.className = "is-rest";
  others.cells[0].textContent = "all others";
  table.append(others);
  return table;
}

/** @type {[string, string][]} */
const KEYS = [["both", "in both"], ["more-q", "only in q: rejected"], ["more-p", "only in p: the residual"]];

/** @type {(row: Share) => [string, number][]} */
const pieces = ({ p, q }) => [
  ["both", Math.min(p, q)],
  ["more-q", Math.max(0, q - p)],
  ["more-p", Math.max(0, p - q)],
];

/**
 * @param {"th" | "td"} kind
 * @param {string | null} text of a token
 * @param {HTMLElement} drawing
 * @param {...string} numbers
 */
const line = (kind, text, drawing, ...numbers) => element("tr", "",
  text === null ? element("td") : element(kind, "", word(text)), element(kind, "", drawing),
  ...numbers.map((number) => element(kind, "", number)));
