// Where the tokens of a lane stand in a film, and when each of them comes.

import { SERIF } from "specviz/share/paint.js";
import { eventsOf } from "specviz/run/timeline.js";

export const FONT = 25; // px
export const FACE = `${FONT}px ${SERIF}`;
export const LINE = 42; // px from line to line

/**
 * A token on its place. seen: when it is on the screen; judged: when its verdict is; both in seconds
 * on the lane's clock.
 * @typedef {object} Placed
 * @property {string} text
 * @property {Outcome | "given"} outcome
 * @property {number} x px
 * @property {number} line from 0
 * @property {number} width px
 * @property {number} seen
 * @property {number} judged
 */

/** @typedef {Omit<Placed, "x" | "line" | "width">} Piece */

/**
 * The tokens that a lane shows, in the order of the text: ignored ones would only come and go.
 * @param {Round[]} rounds of one lane
 * @param {string} prompt
 * @returns {Piece[]}
 */
function piecesOf(rounds, prompt) {
  /** @type {Piece[]} */
  const pieces = [{ text: prompt, outcome: "given", seen: 0, judged: 0 }];
  for (const round of rounds) {
    const times = eventsOf(round);
    round.drafted.forEach(({ text, outcome }, i) => {
      if (outcome !== "ignored") pieces.push({ text, outcome, seen: times[i].time, judged: round.clock });
    });
    for (const { text, outcome } of round.emitted) {
      if (outcome !== "accepted") pieces.push({ text, outcome, seen: round.clock, judged: round.clock });
    }
  }
  return pieces;
}

/**
 * Break a lane's text into lines. Lines break before blanks, so that no word is torn.
 * @param {CanvasRenderingContext2D} context
 * @param {Round[]} rounds of one lane
 * @param {string} prompt
 * @param {number} width px
 * @returns {Placed[]}
 */
export function layOut(context, rounds, prompt, width) {
  context.font = FACE;
  const placed = /** @type {Placed[]} */ ([]);
  let x = 0, line = 0;
  for (const word of wordsOf(piecesOf(rounds, prompt))) {
    const widths = word.map(({ text }) => context.measureText(text).width);
    const total = widths.reduce((sum, one) => sum + one, 0);
    if (x > 0 && x + total > width) { x = 0; line += 1; }
    word.forEach((piece, i) => {
      if (x > 0 && x + widths[i] > width) { x = 0; line += 1; } // a word that is longer than a line
      placed.push({ ...piece, x, line, width: widths[i] });
      x += widths[i];
      if (piece.text.endsWith("¶")) { x = 0; line += 1; }
    });
  }
  return placed;
}

/**
 * Pieces that stand together. A token may hold several words, and a word several tokens.
 * @param {Piece[]} pieces
 */
function wordsOf(pieces) {
  const words = /** @type {Piece[][]} */ ([]);
  for (const piece of pieces) {
    for (const part of piece.text.match(/\n+|[^\S\n]*[^\s]+|[^\S\n]+/g) ?? []) {
      const isBreak = part.startsWith("\n");
      const last = words[words.length - 1];
      const joins = last && !/^\s/.test(part) && !last[last.length - 1].text.endsWith("¶");
      const shown = { ...piece, text: isBreak ? "¶" : part };
      if (joins) last.push(shown); else words.push([shown]);
    }
  }
  return words;
}
