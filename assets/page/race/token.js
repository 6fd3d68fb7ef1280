// The tokens of a round as a lane draws them. Model text only ever becomes text nodes.

import { element } from "specviz/dom/dom.js";
import { ALONE } from "specviz/facts/lanes.js";
import { blockOf, isSpecial, read } from "specviz/words/markdown.js";

/**
 * The drafted tokens of a round in order, followed by the target's token.
 * @param {Round} round
 */
export function tokensOf(round) {
  return [...round.drafted, ...round.last ? [round.last] : []];
}

/**
 * Whether a token of a lane with drafts comes from a round without guesses.
 * @type {(token: ShownToken, round: Round) => boolean}
 */
export const isUnguessed = (token, round) =>
  round.lane !== ALONE && token.outcome === "bonus" && !round.drafted.length;

/**
 * The drafted tokens of an unfinished round: some judged, the others still waiting.
 * @type {(step: PlayStep) => ShownToken[]}
 */
export function tokensSoFar({ round, seen: visibleCount, judged }) {
  return round.drafted.slice(0, visibleCount).map((token, i) =>
    (i < judged ? token : { ...token, outcome: "pending" }));
}

/** @param {ShownToken} token */
export const isWritten = (token) => ["accepted", "corrected", "bonus", "untold"].includes(token.outcome);

/** Whether a watched server rejected a token without reporting which. @param {ShownToken} token */
export const isUnseen = (token) => token.id === undefined && !isWritten(token);

/**
 * The state of a text between two tokens.
 * @typedef {object} TextState
 * @property {number} breaks  line breaks that it ends in; more than two count as two
 * @property {boolean} isDue  whether the next word begins a row, since the text ends in a line break
 * @property {Reading | null} reading  as Markdown; null for plain text
 */

/**
 * The part of a token in one row. A token with a line break has several.
 * @typedef {object} Fragment
 * @property {HTMLElement} node
 * @property {boolean} opensRow  whether a row begins with it
 * @property {boolean} isSpaced  whether there is a blank line before that row
 * @property {Block} block  the role of its row in a code block; empty if this fragment does not decide it
 */

/**
 * The fragments of a token, one for each row, and the state of the text after it. A token that is not part
 * of the text leaves the state unchanged.
 * @param {ShownToken} token
 * @param {Round} round
 * @param {number} index of the token in its lane
 * @param {TextState} before
 * @returns {{ fragments: Fragment[], after: TextState }}
 */
export function drawnToken(token, round, index, before) {
  const isKept = isWritten(token);
  const isRead = isKept || token.outcome === "pending";
  if (isSpecial(token.text) || !token.text) { // a special token is not text: only its card shows it
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
    // In prose a second line break shares the row of the first, since an empty row would waste space. In
    // code it is a row.
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

// The node of a token, or of its rest in another row, which does not count as a token.
/** @type {(token: ShownToken, round: Round, index: number, isFirst: boolean) => HTMLElement} */
function tokenNode(token, round, index, isFirst) {
  const node = element("span", `t ${token.outcome}`);
  node.classList.toggle("own", isUnguessed(token, round));
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
 * A token's text after its leading blanks, in pieces; each line break is its own piece.
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
 * The letters after a text up to the next blank: the rest of its last word.
 * @param {ShownToken[]} tokens  that follow it
 */
export const restOfWord = (tokens) => {
  const end = tokens.findIndex(({ text }) => isSpecial(text)); // a special token is drawn as a mark
  const words = end < 0 ? tokens : tokens.slice(0, end);
  const following = words.map(({ text }) => text).join("");
  return /^\S*/.exec(following)?.[0] ?? "";
};
