// The tokens of a round as a lane shows them. Model text only ever becomes text nodes.

import { element } from "specviz/dom/dom.js";
import { ALONE } from "specviz/facts/lanes.js";
import { blockOf, isSpecial, read } from "specviz/words/markdown.js";

/**
 * The drafted tokens of a round in order, then the one that the target added.
 * @param {Round} round
 */
export function tokensOf(round) {
  return [...round.drafted, ...round.last ? [round.last] : []];
}

/**
 * Whether the target wrote a token of the lane with drafts without any guess before it.
 * @type {(token: ShownToken, round: Round) => boolean}
 */
export const isOwn = (token, round) =>
  round.lane !== ALONE && token.outcome === "bonus" && !round.drafted.length;

/**
 * The drafted tokens of an unfinished round: some judged, the others still waiting.
 * @type {(event: PlayEvent) => ShownToken[]}
 */
export function tokensSoFar({ round, seen, judged }) {
  return round.drafted.slice(0, seen).map((token, i) =>
    (i < judged ? token : { ...token, outcome: "pending" }));
}

/** @param {ShownToken} token */
export const isWritten = (token) => ["accepted", "corrected", "bonus", "untold"].includes(token.outcome);

/** Whether a watched server rejected a token without telling which. @param {ShownToken} token */
export const isUnseen = (token) => token.id === undefined && !isWritten(token);

/**
 * The state of a text between two tokens.
 * @typedef {object} TextState
 * @property {number} breaks  line breaks that it ends in; more than two count as two
 * @property {boolean} isDue  whether the next word begins a row: the last break has not been followed yet
 * @property {Reading | null} reading  as Markdown; null if it is none
 */

/**
 * The part of a token in one row. A token with a line break has several.
 * @typedef {object} Fragment
 * @property {HTMLElement} node
 * @property {boolean} opensRow  whether a row begins with it
 * @property {boolean} isSpaced  whether a blank line stands before that row
 * @property {Block} block  what its row is to a block of code; empty where this fragment does not tell
 */

/**
 * A token as its row shows it, or its rows, and where the text then stands. What was not kept leaves the
 * text where it stood.
 * @param {ShownToken} token
 * @param {Round} round
 * @param {number} index of the token in its lane
 * @param {TextState} before
 * @returns {{ fragments: Fragment[], after: TextState }}
 */
export function drawnToken(token, round, index, before) {
  const isKept = isWritten(token);
  const isRead = isKept || token.outcome === "pending";
  if (isSpecial(token.text) || !token.text) { // a template's sign is no text: the card tells which it is
    const node = tokenNode(token, round, index, true);
    node.append(element("span", token.text ? "w end" : "w none"));
    return { fragments: [{ node, opensRow: false, isSpaced: false, block: "" }], after: before };
  }
  const marked = before.reading && read(token.text, before.reading);
  const isCode = marked?.pieces.some(({ kind }) => kind === "code") ?? false;
  const home = before.reading ? blockOf(before.reading) : "";
  const lead = token.text.match(/^[ \t]+(?=\S)/)?.[0] ?? "";
  const fragments = /** @type {Fragment[]} */ ([]);
  let { breaks, isDue } = before;
  for (const { text, kind, block } of piecesOf(token.text, lead.length, marked?.pieces)) {
    const isBreak = text === "\n";
    // A second break of prose stands beside the first: an empty line would only cost room. In code it
    // is a line.
    const opensRow = isDue && !(isBreak && isKept && kind !== "code");
    if (opensRow || !fragments.length) {
      const node = tokenNode(token, round, index, !fragments.length);
      node.classList.toggle("code", isCode);
      if (lead && !fragments.length) node.append(lead);
      fragments.push({ node, opensRow, isSpaced: opensRow && breaks > 1, block: opensRow ? home : "" });
    }
    const fragment = fragments[fragments.length - 1];
    if (isRead && block) fragment.block = block;
    const part = element("span", "w", text);
    if (isBreak) part.classList.add("nl");
    else if (!text.trim()) part.classList.add("blank");
    if (kind) part.classList.add(`md-${kind}`);
    fragment.node.append(part);
    if (opensRow) isDue = false;
    if (!isKept) continue;
    if (isBreak) isDue = true;
    breaks = isBreak ? Math.min(2, breaks + 1) : 0;
  }
  return { fragments, after: { breaks, isDue, reading: isRead && marked ? marked.after : before.reading } };
}

// The node of a token, or of what goes on of it in another row, which is no token by itself.
/** @type {(token: ShownToken, round: Round, index: number, isFirst: boolean) => HTMLElement} */
function tokenNode(token, round, index, isFirst) {
  const node = element("span", `t ${token.outcome}`);
  node.classList.toggle("own", isOwn(token, round));
  node.classList.toggle("unseen", isUnseen(token));
  node.dataset.round = String(round.index);
  if (!isFirst) {
    node.dataset.of = String(index);
    return node;
  }
  node.dataset.index = String(index);
  if (token.outcome !== "pending") node.dataset.outcome = token.outcome;
  node.tabIndex = -1;
  return node;
}

/**
 * A token's text behind its first blanks, in pieces: line breaks stand alone.
 * @param {string} text
 * @param {number} lead how many blanks
 * @param {Piece[]} [pieces]
 * @returns {Piece[]}
 */
function piecesOf(text, lead, pieces) {
  if (!pieces) {
    const lines = text.slice(lead).match(/\n|[^\n]+/g) ?? [];
    return lines.map((piece) => ({ text: piece, kind: "", block: "" }));
  }
  let left = lead;
  return pieces.flatMap((piece) => {
    const rest = piece.text.slice(left);
    left = Math.max(0, left - piece.text.length);
    return rest ? [{ ...piece, text: rest }] : [];
  });
}

/**
 * The letters that go on from a text up to the next blank.
 * @param {ShownToken[]} tokens  that follow it
 */
export const restOfWord = (tokens) => {
  const end = tokens.findIndex(({ text }) => isSpecial(text)); // drawn as a mark
  const words = end < 0 ? tokens : tokens.slice(0, end);
  const following = words.map(({ text }) => text).join("");
  return /^\S*/.exec(following)?.[0] ?? "";
};
