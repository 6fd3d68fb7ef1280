// The tokens of an answer that are code, so that they are set as code wherever they are shown.

import { read, START } from "specviz/words/markdown.js";
import { begunBy } from "specviz/words/words.js";

const WRITTEN = ["accepted", "corrected", "bonus", "untold"];

/**
 * The tokens of a lane that are code: in a block of it, with its fences, or in a line. A rejected guess is
 * read where it stood.
 * @param {Round[]} rounds  of one lane, in their order
 * @param {Header} header
 * @returns {Set<Token>}
 */
export function codeIn(rounds, header) {
  const code = new Set();
  if (begunBy(header)) return code; // a text that goes on from a prompt is not read as Markdown
  let reading = START;
  for (const { drafted, last } of rounds) {
    for (const token of [...drafted, ...last ? [last] : []]) {
      const { pieces, after } = read(token.text, reading);
      if (pieces.some(({ kind, block }) => kind === "code" || block)) code.add(token);
      if (WRITTEN.includes(token.outcome)) reading = after;
    }
  }
  return code;
}
