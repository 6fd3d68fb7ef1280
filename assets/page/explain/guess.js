// How a round's guesses came about, in a sentence: by where they come from.

/** @type {Record<string, string>} */
const GUESSERS = {
  "early-exit": "The target’s own first layers guess",
  head: "The head, a layer that begins at the target’s hidden states, guesses",
};

/**
 * @param {Header} header
 * @param {string} count how many guesses, in words
 * @param {boolean} isGreedy
 */
export function guessed({ settings, draft }, count, isGreedy) {
  if (settings.drafter === "ngram") {
    return `The end of the text stood in it before: the ${count} that followed there are copied as guesses. No model `
      + "is asked, so q is 1 for each.";
  }
  if (settings.drafter === "suffix") {
    return `The longest end of the text that was seen before is looked up, and what followed it each time is counted: ${
      isGreedy ? "the most frequent token is the guess" : "q is each token’s share, and one is drawn from it"}. So come ${
      count}, one after the other; how many was settled before.`;
  }
  if (draft?.shared && isGreedy) {
    return "The draft has other tokens than the target. It writes its likeliest text, which is cut into the target’s "
      + `tokens: ${count}.`;
  }
  const who = GUESSERS[settings.drafter] ?? "The draft guesses";
  const among = draft?.shared ? "the tokens that the target has too" : "all tokens";
  const how = isGreedy ? "takes its first choice" : `has chances q for ${among}, draws one`;
  return `${who} ${count}, one after the other: each time it ${how}, and goes on from it.`;
}

/**
 * Why a round of the lane with drafts has none.
 * @param {Header} header
 */
export function unguessed({ settings }) {
  if (settings.drafter === "ngram") {
    return "The end of the text has not stood in it before, so there was nothing to copy. ";
  }
  if (settings.drafter === "suffix") return "Nothing that was seen before was likely enough to hold. ";
  return "Nothing was drafted in this round. ";
}
