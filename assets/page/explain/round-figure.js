// One round as a figure for slides and papers: an SVG file, in the colours of the page.

import { ruleOf } from "specviz/facts/lanes.js";
import { shape } from "specviz/dom/dom.js";
import { milliseconds, textBefore } from "specviz/explain/numbers.js";
import { secondsOf } from "specviz/facts/uncertainty.js";
import { tokensOf } from "specviz/race/token.js";
import { coloursOfPage, inLines, MONO, Painting, runLine, SANS, SERIF } from "specviz/share/paint.js";
import { codeIn } from "specviz/words/code.js";
import { chance, oddsAndDraw } from "specviz/words/reasons.js";
import { begunBy, plural, visible } from "specviz/words/words.js";

const EDGE = 36;
const LABELS = 118;
const GAP = 26;
const MIN_COLUMN = 96;
const MIN_WIDTH = 760; // px
const TOKENS = 196; // px: top of the tokens
const BOX = 42; // px: height of a token
const ROW = 28; // px: height of a line below the tokens
const TOKEN_SIZE = { prose: 25, code: 21 }; // px
const CONTEXT_SIZE = { prose: 22, code: 19 }; // px
const SMALL_SIZE = 14; // px
const SMALL_LINE = 19; // px
const MARGIN = 1.25; // of a measured width: another computer may draw letters as wide as DejaVu's

const NOT_XML = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g; // a token may be any byte

/** The label of each verdict, with its mark. @type {Record<string, string>} */
const VERDICTS = {
  accepted: "accepted ✓",
  rejected: "rejected ×",
  ignored: "not judged",
  corrected: "corrected ↳",
  bonus: "bonus ★",
};

const MAX_COLUMNS = 16; // tokens of a round that is shown whole
const FIRST = 4; // shown tokens at the beginning of a longer round
const AROUND = 2; // and on each side of its last verdict

/**
 * A token with its position in px; omitted: the number of tokens of its outcome that the column sums up.
 * @typedef {{ token: Token, omitted: number, left: number, width: number }} Column
 */

/**
 * The typefaces of the text of a round: sizes in px.
 * @typedef {{ family: string, token: number, context: number }} Face
 */

/** @typedef {{ node: Element, colours: Colours, face: Face }} Sheet */

/**
 * The figure of a round in which something was drafted, as the text of an SVG file.
 * @param {Round} round
 * @param {Trace} trace
 */
export function figureOfRound(round, trace) {
  const lastToken = round.emitted[round.emitted.length - 1];
  const last = lastToken && lastToken.outcome !== "accepted" ? [lastToken] : [];
  const face = faceOf(round, trace);
  const columns = columnsOf([...shortened(round.drafted), ...last.map(single)], last.length, face);
  const end = columns[columns.length - 1];
  const rows = rowsOf(trace.header.settings);
  const width = Math.max(MIN_WIDTH, end.left + end.width + EDGE);
  const foot = TOKENS + BOX + 22 + rows.length * ROW;
  const small = ruler(`${SMALL_SIZE}px ${SANS}`);
  const about = inLines(runLine(trace.header), (line) => small(line) <= width - 2 * EDGE);
  const down = SMALL_LINE * (about.length - 1); // px that everything below the title moves down
  const whole = sheetOf(width, foot + 118 + down, face);
  title(whole, round, about, width);
  const sheet = { ...whole, node: draw(whole, "g", { transform: `translate(0 ${down})` }) };
  heading(sheet, round, trace, width);
  const drafted = columns.slice(0, columns.length - last.length);
  brace(sheet, drafted, TOKENS - 16, "drafted ahead");
  for (const column of columns) tokenBox(sheet, column);
  rows.forEach(([label, of], i) => {
    const y = TOKENS + BOX + 30 + i * ROW;
    write(sheet, label, EDGE, y, { colour: "soft" });
    for (const { token, omitted, left, width: wide } of columns) {
      if (omitted) continue;
      write(sheet, of(token), left + wide / 2, y, { anchor: "middle", colour: colourOf(label, token) });
    }
  });
  brace(sheet, columns, foot + 14, "one pass of the target judges all of them", true);
  footing(sheet, round, foot + 84, width);
  return new XMLSerializer().serializeToString(whole.node);
}

/** @type {(round: Round, trace: Trace) => Face} */
function faceOf(round, { rounds, header }) {
  const code = codeIn(rounds.filter(({ lane }) => lane === round.lane), header);
  const isCode = tokensOf(round).some((token) => code.has(token));
  const kind = isCode ? "code" : "prose";
  return { family: isCode ? MONO : SERIF, token: TOKEN_SIZE[kind], context: CONTEXT_SIZE[kind] };
}

/** A column for one token. @param {Token} token */
const single = (token) => ({ token, omitted: 0 });

/**
 * The columns of the drafted tokens; of many, the first ones and those around the last verdict, with columns
 * for the omitted ones between them.
 * @param {Token[]} drafted
 * @returns {Pick<Column, "token" | "omitted">[]}
 */
function shortened(drafted) {
  if (drafted.length <= MAX_COLUMNS) return drafted.map(single);
  const ignored = drafted.findIndex(({ outcome }) => outcome === "ignored");
  const judged = ignored < 0 ? drafted.length : ignored;
  const around = Math.max(FIRST, judged - AROUND);
  const behind = Math.min(drafted.length, Math.max(FIRST, judged + AROUND));
  return [
    ...drafted.slice(0, FIRST).map(single),
    ...omission(drafted.slice(FIRST, around)),
    ...drafted.slice(around, behind).map(single),
    ...omission(drafted.slice(behind)),
  ];
}

/** One column for tokens of one outcome. @type {(tokens: Token[]) => Pick<Column, "token" | "omitted">[]} */
function omission(tokens) {
  const [token] = tokens;
  if (!token) return [];
  return [{ token: { ...token, text: `… ${tokens.length} more …` }, omitted: tokens.length }];
}

// The columns of the tokens, with a gap before the target's token. targetCount: 1 if there is one, else 0.
/** @type {(tokens: Pick<Column, "token" | "omitted">[], targetCount: number, face: Face) => Column[]} */
function columnsOf(tokens, targetCount, face) {
  const widthOf = ruler(`${face.token}px ${face.family}`);
  let left = EDGE + LABELS;
  return tokens.map(({ token, omitted }, i) => {
    if (targetCount && i === tokens.length - 1) left += GAP;
    const width = Math.max(MIN_COLUMN, Math.ceil(widthOf(visible(token.text))) + 26);
    const column = { token, omitted, left, width };
    left += column.width + 8;
    return column;
  });
}

/** Make a function that measures the width of a text in pixels. @param {string} font */
function ruler(font) {
  const { context } = new Painting();
  context.font = font;
  return (/** @type {string} */ text) => MARGIN * context.measureText(text).width;
}

// The last words of a text that fit into a width, in px.
/** @type {(text: string, maxWidth: number, face: Face) => string} */
function tailOf(text, maxWidth, face) {
  const width = ruler(`${face.context}px ${face.family}`);
  let tail = text.replace(/\s+/g, " ").trim().slice(-200);
  while (width(`… ${tail}`) > maxWidth && tail.length > 1) tail = tail.slice(1).replace(/^\S*\s+(?=\S)/, "");
  return tail.length < text.trim().length ? `… ${tail}` : tail;
}

// The beginning of a text that fits into a width, in px.
/** @type {(text: string, maxWidth: number, face: Face) => string} */
function headOf(text, maxWidth, face) {
  const width = ruler(`${face.context}px ${face.family}`);
  if (width(text) <= maxWidth) return text;
  let head = text;
  while (width(`${head} …`) > maxWidth && head.length > 1) head = head.slice(0, -1);
  return `${head.trimEnd()} …`;
}

// The lines below the tokens: a label, and a function that gives the words for a token.
/** @type {(settings: Settings) => [string, (token: Token) => string][]} */
function rowsOf(settings) {
  const judged = (/** @type {Token} */ { outcome }) => outcome === "accepted" || outcome === "rejected";
  const isGuess = (/** @type {Token} */ token) => judged(token) || token.outcome === "ignored";
  /** @type {[string, (token: Token) => string][]} */
  const rows = [
    ["draft q", (token) => (isGuess(token) ? chance(token.soft_q ?? token.q) : "")],
    ["target p", (token) => (token.outcome === "ignored" ? "" : chance(token.soft_p ?? token.p))],
  ];
  if (settings.temperature === 0) {
    rows.push(["first choice", (token) => {
      const first = judged(token) ? token.top_p?.[0] : undefined;
      return first ? visible(first.text) : "";
    }]);
  } else if (ruleOf(settings) === "token") {
    rows.push(["min(1, p/q)", (token) => (judged(token) ? oddsAndDraw(token).odds : "")],
      ["draw u", (token) => (judged(token) ? oddsAndDraw(token).draw : "")]);
  }
  return [...rows, ["verdict", ({ outcome }) => VERDICTS[outcome]]];
}

/**
 * @param {string} label of a line
 * @param {Token} token
 */
function colourOf(label, { outcome }) {
  if (label !== "verdict") return "ink";
  return outcome === "ignored" ? "soft" : /** @type {keyof Colours} */ (outcome);
}

/** In px. @type {(width: number, height: number, face: Face) => Sheet} */
function sheetOf(width, height, face) {
  const node = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  const sheet = { node, colours: coloursOfPage(), face };
  draw(sheet, "rect", { width, height, fill: sheet.colours.page });
  return sheet;
}

/**
 * @type {(sheet: Sheet, name: string, attributes: Record<string, string | number>) => SVGElement}
 */
function draw({ node }, name, attributes) {
  const child = shape(name, attributes);
  node.append(child);
  return child;
}

/**
 * The style of a line of text.
 * @typedef {object} Style
 * @property {number} [size] px
 * @property {number} [weight]
 * @property {string} [family]
 * @property {keyof Colours} [colour]
 * @property {string} [anchor]
 */

/**
 * Write a line of text. It only ever becomes a text node, since a model wrote some of it.
 * @param {Sheet} sheet
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {Style} [style]
 */
function write(sheet, text, x, y, style = {}) {
  const { size = 16, weight = 400, family = SANS, colour = "ink", anchor = "start" } = style;
  const node = draw(sheet, "text", {
    x,
    y,
    "font-size": size,
    "font-weight": weight,
    "font-family": family,
    fill: sheet.colours[colour],
    "text-anchor": anchor,
    "xml:space": "preserve",
  });
  node.textContent = text.replace(NOT_XML, "\ufffd");
  return node;
}

/** @type {(sheet: Sheet, round: Round, about: string[], width: number) => void} */
function title(sheet, round, about, width) {
  const accepted = round.drafted.filter(({ outcome }) => outcome === "accepted").length;
  const drafted = plural(round.drafted.length, "token");
  const summary = `${drafted} drafted, ${accepted} accepted, ${round.emitted.length} written`;
  write(sheet, summary, EDGE, 50, { size: 25, weight: 600 });
  const name = write(sheet, "spec", width - EDGE, 48, { size: 20, weight: 600, anchor: "end" });
  const viz = shape("tspan", { fill: sheet.colours.accepted });
  viz.textContent = "viz";
  name.append(viz);
  about.forEach((line, i) => {
    write(sheet, line, EDGE, 78 + SMALL_LINE * i, { size: SMALL_SIZE, colour: "soft" });
  });
}

// The end of the text before the round.
/** @type {(sheet: Sheet, round: Round, trace: Trace, width: number) => void} */
function heading(sheet, round, { header, rounds }, width) {
  const before = begunBy(header) + textBefore(round, rounds).map(({ text }) => text).join("");
  const { family, context: size } = sheet.face;
  const tail = tailOf(before, width - 2 * EDGE, sheet.face);
  write(sheet, tail, EDGE, 126, { size, family, colour: "soft" });
}

// A brace over or under some columns, with its text.
/** @type {(sheet: Sheet, columns: Column[], y: number, text: string, isBelow?: boolean) => void} */
function brace(sheet, columns, y, text, isBelow = false) {
  const first = columns[0];
  const last = columns[columns.length - 1];
  const left = first.left;
  const right = last.left + last.width;
  const tip = isBelow ? -7 : 7;
  draw(sheet, "path", {
    d: `M${left} ${y + tip}V${y}H${right}V${y + tip}`,
    fill: "none",
    stroke: sheet.colours.soft,
    "stroke-width": 1.5,
  });
  write(sheet, text, left, isBelow ? y + 22 : y - 10, { size: 15, colour: "soft" });
}

// A token with the underline of its outcome, which can be recognised without colours too.
/** @type {(sheet: Sheet, column: Column) => void} */
function tokenBox(sheet, { token, left, width }) {
  const { outcome, text } = token;
  const stroke = sheet.colours[outcome === "ignored" ? "soft" : /** @type {keyof Colours} */ (outcome)];
  const bottom = TOKENS + BOX;
  if (outcome !== "ignored") {
    const box = { x: left, y: TOKENS, width, height: BOX, rx: 4 };
    draw(sheet, "rect", { ...box, fill: stroke, "fill-opacity": 0.13 });
  }
  const line = (/** @type {number} */ y, dash = "") => {
    const path = { d: `M${left} ${y}h${width}`, stroke, "stroke-width": 2.5 };
    draw(sheet, "path", dash ? { ...path, "stroke-dasharray": dash } : path);
  };
  if (outcome === "ignored") line(bottom, "2 4");
  else if (outcome !== "rejected") line(bottom);
  if (outcome === "corrected") line(bottom + 5);
  write(sheet, visible(text), left + width / 2, bottom - 13,
    {
      size: sheet.face.token,
      family: sheet.face.family,
      anchor: "middle",
      colour: outcome === "ignored" ? "soft" : "ink",
    });
  if (outcome === "rejected") line(bottom - 20);
}

// The written tokens of the round, and its time.
/** @type {(sheet: Sheet, round: Round, y: number, width: number) => void} */
function footing(sheet, round, y, width) {
  const written = round.emitted.map(({ text }) => text.replaceAll("\n", "¶")).join("").trim();
  write(sheet, "written", EDGE, y, { colour: "soft" });
  const fitting = headOf(written, width - 2 * EDGE - LABELS, sheet.face);
  write(sheet, fitting, EDGE + LABELS, y, { size: sheet.face.context, family: sheet.face.family });
  const all = milliseconds(secondsOf(round));
  const drafting = milliseconds(round.draft_seconds);
  const pass = milliseconds(round.verify_seconds);
  const times = `${all}: drafting ${drafting}, one target pass ${pass}`;
  write(sheet, times, EDGE + LABELS, y + 24, { size: 15, colour: "soft" });
}
