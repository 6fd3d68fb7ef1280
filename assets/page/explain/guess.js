// How a round's guesses came about, in a sentence: by where they come from.

import { drafterKind } from "specviz/facts/vocabulary.js";

/**
 * @param {Header} header
 * @param {string} count how many guesses, in words
 * @param {boolean} isGreedy
 */
export function guessed({ settings, draft }, count, isGreedy) {
  const { guessed: drawn, guessed_greedy: greedy, who } = drafterKind(settings.drafter);
  const told = (isGreedy && greedy) || drawn;
  if (told) return told.replace("{count}", count);
  if (draft?.shared && isGreedy) {
    return "The draft has other tokens than the target. It writes its likeliest text, which is cut into the target’s "
      + `tokens: ${count}.`;
  }
  const among = draft?.shared ? "the tokens that the target has too" : "all tokens";
  const how = isGreedy ? "takes its first choice" : `has chances q for ${among}, draws one`;
  return `${who} ${count}, one after the other: each time it ${how}, and goes on from it.`;
}

/**
 * Why a round of the lane with drafts has none.
 * @param {Header} header
 */
export const unguessed = ({ settings }) => `${drafterKind(settings.drafter).unguessed} `;
