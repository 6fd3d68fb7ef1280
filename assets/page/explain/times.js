// A round's time, to scale, and its last step: what the round brought, what it cost, and what the
// target alone had by then.

import { element } from "specviz/dom/dom.js";
import { balanceOf } from "specviz/explain/numbers.js";
import { chip, marked } from "specviz/explain/pictures.js";
import { secondsOf } from "specviz/facts/uncertainty.js";
import { fixed, plural, visible } from "specviz/words/words.js";

const NOT_FASTER = "More tokens in a round are not always faster: each guess costs time, accepted or not.";

/** @param {number} seconds */
export function milliseconds(seconds) {
  const value = 1000 * seconds;
  return `${fixed(value, value < 0.1 ? 3 : value < 100 ? 2 : 0)}\u00a0ms`;
}

/**
 * The time of a round to scale: narrow steps of the draft and one wide pass.
 * @param {Round} round
 * @param {number} whole seconds that fill the width
 * @param {"draft" | "verify" | "overhead"} [until] the last part that is over
 */
export function times({ drafted, draft_seconds: draft, verify_seconds: verify, overhead_seconds: overhead },
  whole, until = "overhead") {
  /** @type {[string, number][]} */
  const parts = [...drafted.map(() => /** @type {[string, number]} */ (["draft", draft / drafted.length])),
    ["verify", verify], ["overhead", overhead]];
  const order = ["draft", "verify", "overhead"];
  return element("span", "sx-times", ...parts.map(([name, seconds], i) =>
    element("i", name + (order.indexOf(name) > order.indexOf(until) ? " is-ahead" : ""), {
      style: { "--i": i, width: `${(100 * seconds) / whole}%` },
    })));
}

/**
 * Both clocks on one scale: the round, and the target alone for as many tokens.
 * @param {Round} round
 * @param {Balance} balance
 * @param {Marked[]} written in the round
 */
function clocks(round, { tokens, seconds, passes, alone }, written) {
  const whole = Math.max(seconds, alone ?? 0), isAlone = round.lane === "baseline";
  const words = element("p", "", ...written.flatMap((token) => [chip(token), " "]));
  const own = clock(isAlone ? "target alone" : "with drafts", times(round, whole), seconds, tokens, words);
  if (alone === null || isAlone) return element("dl", "sx-clocks", ...own);
  const wide = (/** @type {number} */ part) => `${(100 * part) / whole}%`;
  const pieces = passes.length ? passes.map((pass) => ({ seconds: secondsOf(pass), text: pass.emitted[0]?.text }))
    : Array.from({ length: tokens }, () => ({ seconds: alone / tokens, text: undefined }));
  const bar = element("span", "sx-times", ...pieces.map((piece) => element("i", "alone", { style: { width: wide(piece.seconds) } },
    ...piece.text === undefined ? [] : [element("span", "", visible(piece.text))])));
  if (seconds < alone) bar.append(element("u", "", { style: { left: wide(seconds) } })); // the end of the round
  return element("dl", "sx-clocks", ...own, ...clock("target alone", bar, alone, tokens));
}

/**
 * @param {string} name
 * @param {HTMLElement} bar
 * @param {number} seconds
 * @param {number} tokens
 * @param {...HTMLElement} below
 */
const clock = (name, bar, seconds, tokens, ...below) => [element("dt", "", name), element("dd", "", bar,
  element("b", "", milliseconds(seconds), element("small", "", ` ${plural(tokens, "token")}`)), ...below)];

/** The last step of every round. @type {(round: Round, trace: Trace, tokens: Token[]) => Step} */
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

/** @type {(round: Round, balance: Balance) => string} */
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
 * @type {(passes: Round[], seconds: number) => number}
 */
function byThen(passes, seconds) {
  let left = seconds;
  return passes.filter((pass) => (left -= secondsOf(pass)) >= 0).length;
}
