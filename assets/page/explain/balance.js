// The last step of a round: what it brought, what it cost, and what the target alone had by then.

import { balanceOf, secondsOf } from "specviz/explain/numbers.js";
import { marked } from "specviz/explain/pictures.js";
import { clocks, milliseconds } from "specviz/explain/times.js";
import { fixed, plural } from "specviz/words/words.js";

const NOT_FASTER = "More tokens in a round are not always faster: each guess costs time, accepted or not.";

/**
 * The last step of every round.
 * @param {Round} round
 * @param {Trace} trace
 * @param {Token[]} tokens
 * @returns {Step}
 */
export function balance(round, trace, tokens) {
  const sums = balanceOf(round, trace);
  const { drafted } = round;
  const count = (/** @type {Outcome} */ kind) => drafted.filter(({ outcome: one }) => one === kind).length;
  const accepted = count("accepted"), judged = accepted + count("rejected");
  const rates = `α counts judged guesses only, here ${accepted} of ${judged}; accepted over drafted is ${accepted} of ${
    drafted.length}.`;
  return {
    chapter: "Balance", sentence: balanceSentence(round, sums),
    note: drafted.length ? `${rates} ${NOT_FASTER}` : undefined,
    tokens: marked(round, tokens), until: "overhead",
    picture: () => [clocks(round, sums, marked(round, round.emitted))],
  };
}

/**
 * @param {Round} round
 * @param {Balance} balance
 */
function balanceSentence({ lane, drafted }, { tokens, seconds, first, passes, alone }) {
  const ours = `${plural(tokens, "token")} in ${milliseconds(seconds)}`;
  if (lane === "baseline") return `${ours}: the target alone always pays one whole pass for one token.`;
  if (alone === null) return `${ours}. The target alone has not written anything yet.`;
  if (!drafted.length) return `${ours}: without guesses a round is one pass, as in the other lane.`;
  const ratio = alone / seconds;
  const result = ratio >= 1 ? `this round was ${fixed(ratio, 2)} times as fast`
    : `this round was slower, ${fixed(ratio, 2)} times the speed`;
  if (!passes.length) {
    return `${ours}. On average the target alone takes ${milliseconds(alone)} for as many: ${result}.`;
  }
  const which = tokens === 1 ? `its token ${first}` : `its tokens ${first} to ${first + tokens - 1}`;
  return `${ours}. The target alone took ${milliseconds(alone)} for ${which}: ${result}. `
    + `In the time of this round it had written ${
      plural(byThen(passes, seconds), "token")}.`;
}

/**
 * How many passes were over after this time.
 * @param {Round[]} passes
 * @param {number} seconds
 */
function byThen(passes, seconds) {
  let left = seconds;
  return passes.filter((pass) => (left -= secondsOf(pass)) >= 0).length;
}
