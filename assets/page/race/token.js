// The tokens of a round as a lane shows them. Model text only ever becomes text nodes.

import { element } from "specviz/dom/dom.js";
import { ALONE } from "specviz/facts/lanes.js";
import { isSpecial } from "specviz/words/markdown.js";

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
 * @param {ShownToken} token
 * @param {Round} round
 * @param {number} index of the token in its lane
 * @param {boolean} atBreak whether the text before ends in a line break
 * @param {Piece[]} [told] its text in pieces, if it is Markdown
 */
export function tokenNode(token, round, index, atBreak, told) {
  const node = element("span", `t ${token.outcome}${isOwn(token, round) ? " own" : ""}`);
  node.classList.toggle("unseen", isUnseen(token));
  node.dataset.round = String(round.index);
  node.dataset.index = String(index);
  if (token.outcome !== "pending") node.dataset.outcome = token.outcome;
  node.tabIndex = -1;
  if (isSpecial(token.text)) { // a template's sign is no text: the card tells which it is
    node.append(element("span", "w end"));
    return node;
  }
  const lead = token.text.match(/^[ \t]+(?=\S)/)?.[0] ?? "";
  if (lead) node.append(lead);
  node.classList.toggle("code", Boolean(told?.some(({ kind }) => kind === "code")));
  for (const { text: piece, kind } of piecesOf(token.text, lead.length, told)) {
    const isBreak = piece === "\n";
    const part = element("span", isBreak ? "w nl" : piece.trim() ? "w" : "w blank", piece);
    if (kind) part.classList.add(`md-${kind}`);
    // Every line break shows its mark. It breaks no line if it was rejected, nor if one stands
    // before it already: an empty line would only cost room.
    if (isBreak && (atBreak || !isWritten(token))) part.classList.add("flat");
    if (isWritten(token)) atBreak = isBreak;
    node.append(part);
  }
  if (!token.text) node.append(element("span", "w none"));
  return node;
}

/**
 * A token's text behind its first blanks, in pieces: line breaks stand alone.
 * @param {string} text
 * @param {number} lead how many blanks
 * @param {Piece[]} [told]
 * @returns {Piece[]}
 */
function piecesOf(text, lead, told) {
  if (!told) return (text.slice(lead).match(/\n|[^\n]+/g) ?? []).map((piece) => ({ text: piece, kind: "" }));
  let left = lead;
  return told.flatMap((piece) => {
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
  return /^\S*/.exec(tokens.slice(0, end < 0 ? undefined : end).map(({ text }) => text).join(""))?.[0] ?? "";
};
