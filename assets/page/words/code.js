// The tokens of an answer that are code, which every view sets as code.

import { read, START } from "specviz/words/markdown.js";
import { begunBy } from "specviz/words/words.js";

const WRITTEN = ["accepted", "corrected", "bonus", "untold"];

/**
 * The tokens of a lane that are code: in a code block, with its fences, or inline. A rejected guess is
 * read at its position.
 * @param {Round[]} rounds  of one lane, in their order
 * @param {Header} header
 * @returns {Set<Token>}
 */
export function codeIn(rounds, header) {
  const code = new Set();
  if (begunBy(header)) return code; // the continuation of a prompt is not read as Markdown
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
