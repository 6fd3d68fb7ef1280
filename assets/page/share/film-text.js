// The text of a lane in the film of a run: its tokens broken into lines, each with its mark and its times.

import { stepsOf } from "specviz/run/timeline.js";
import { MONO, SERIF } from "specviz/share/paint.js";
import { codeIn } from "specviz/words/code.js";
import { isSpecial } from "specviz/words/markdown.js";
import { begunBy } from "specviz/words/words.js";

export const FONT = 25; // px
const PROSE = `${FONT}px ${SERIF}`;
const CODE = `${0.84 * FONT}px ${MONO}`;
export const LINE = 42; // px from line to line

/**
 * A token with its position. seen, judged: when it and when its verdict appear, in seconds of the lane's
 * clock.
 * @typedef {object} Placed
 * @property {string} text
 * @property {keyof import("specviz/share/paint.js").Colours} mark  its colour
 * @property {boolean} isGiven  whether it is from the prompt
 * @property {string} font
 * @property {number} x px
 * @property {number} line from 0
 * @property {number} width px
 * @property {number} seen
 * @property {number} judged
 */

/** @typedef {Omit<Placed, "x" | "line" | "width">} Piece */

// The tokens that a lane shows, in the order of the text, without ignored ones, which would only come and go,
// and without special tokens, which are not text.
/** @type {(rounds: Round[], header: Header) => Piece[]} */
function piecesOf(rounds, header) {
  const code = codeIn(rounds, header);
  /** @type {Piece[]} */
  const pieces = [{ text: begunBy(header), mark: "soft", isGiven: true, font: PROSE, seen: 0, judged: 0 }];
  const add = (/** @type {Token} */ token, /** @type {Round} */ round, /** @type {number} */ seen) => {
    if (isSpecial(token.text)) return;
    const font = code.has(token) ? CODE : PROSE;
    const mark = markOf(token, round);
    pieces.push({ text: token.text, mark, isGiven: false, font, seen, judged: round.clock });
  };
  for (const round of rounds) {
    const times = stepsOf(round);
    round.drafted.forEach((token, i) => {
      if (token.outcome !== "ignored") add(token, round, times[i].time);
    });
    for (const token of round.emitted) {
      if (token.outcome !== "accepted") add(token, round, round.clock);
    }
  }
  return pieces;
}

/**
 * The colour of a token's mark; a token of a round without guesses has no bonus colour.
 * @type {(token: Token, round: Round) => Placed["mark"]}
 */
function markOf({ outcome }, { drafted }) {
  if (outcome === "ignored" || outcome === "untold") return "soft";
  if (outcome === "bonus" && !drafted.length) return "soft";
  return outcome;
}

// Break a lane's text into lines of a width in px. Lines break before blanks, so that no word is split.
/** @type {(context: CanvasRenderingContext2D, rounds: Round[], header: Header, width: number) => Placed[]} */
export function layOut(context, rounds, header, width) {
  const widthOf = (/** @type {Piece} */ { text, font }) => {
    context.font = font;
    return context.measureText(text).width;
  };
  const placed = /** @type {Placed[]} */ ([]);
  let x = 0;
  let line = 0;
  for (const word of wordsOf(piecesOf(rounds, header))) {
    const widths = word.map(widthOf);
    const total = widths.reduce((sum, wordWidth) => sum + wordWidth, 0);
    if (x > 0 && x + total > width) {
      x = 0;
      line += 1;
    }
    word.forEach((piece, i) => {
      if (x > 0 && x + widths[i] > width) { // a word that is longer than a line
        x = 0;
        line += 1;
      }
      placed.push({ ...piece, x, line, width: widths[i] });
      x += widths[i];
      if (piece.text.endsWith("¶")) {
        x = 0;
        line += 1;
      }
    });
  }
  return placed;
}

// Pieces grouped into words. A token may have several words, and a word several tokens.
/** @param {Piece[]} pieces */
function wordsOf(pieces) {
  const words = /** @type {Piece[][]} */ ([]);
  for (const piece of pieces) {
    for (const part of piece.text.match(/\n+|[^\S\n]*[^\s]+|[^\S\n]+/g) ?? []) {
      const isBreak = part.startsWith("\n");
      const last = words[words.length - 1];
      const joins = last && !/^\s/.test(part) && !last[last.length - 1].text.endsWith("¶");
      const wordPiece = { ...piece, text: isBreak ? "¶" : part };
      if (joins) last.push(wordPiece);
      else words.push([wordPiece]);
    }
  }
  return words;
}
