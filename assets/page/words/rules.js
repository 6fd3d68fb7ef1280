// The verdicts in words: what each rule says of a token, and what the others would have done.

import { chance, reason } from "specviz/words/reasons.js";
import { fixed, visible } from "specviz/words/words.js";

/** @import { Place } from "specviz/words/reasons.js" */

// Of typical acceptance, as specviz/core/theory.py has them.
const EPSILON = 0.09;
const DELTA = 0.3;

/** @type {Record<string, string>} */
export const RULE_NAMES = {
  token: "token by token", block: "block", "exact-match": "exact match", typical: "typical",
};

/** What is said of a token whose place the target's server did not list but drew for. */
export const SERVER_DREW = "The server told p of the guesses and drew by itself: all of p, β and what was left of p are not "
  + "known here. The text follows p exactly all the same.";

/**
 * Whether the target's server drew by itself, so that of its distribution only single chances are known.
 * @param {ShownToken} token
 */
export const isDrawn = (token) => token.p != null && token.soft_p == null && !token.top_p?.length;

export const CHANGES_THE_TEXT = "Typical acceptance changes the text: it does not follow the target’s distribution.";

/**
 * The lanes of a race of named lanes whose text follows another distribution than the target's.
 * @param {Pick<Header, "lanes">} header
 */
export const changedLanes = ({ lanes }) =>
  Object.entries(lanes ?? {}).filter(([, own]) => own.drafter !== "none" && ruleOf(own) === "typical").map(([name]) => name);

/**
 * The rule that judges the drafts of a run: where both models are greedy, all four keep the same.
 * @param {Settings} settings
 */
export const ruleOf = ({ temperature, verdict }) => (temperature === 0 ? "token" : verdict ?? "token");

/**
 * Why a token got its verdict, by the rule of its run.
 * @param {ShownToken} token
 * @param {Place} at
 * @param {string} rule
 */
export function reasonBy(rule, token, at) {
  const judged = token.outcome !== "pending" && at.round.drafted.length > 0;
  return (judged ? TELLINGS[rule]?.[token.outcome]?.(token, at) : undefined) ?? reason(token, at);
}

/** What was left to draw a correction from, by rule. @type {Record<string, string>} */
export const LEFT = {
  token: "left: max(0, p − q)", block: "left: max(0, w p − q)", "exact-match": "p without the refused one",
};

/** What is said of the other rules beside a round's first verdict. @type {Record<string, string>} */
export const NOTES = {
  block: "The guesses are judged together, but shown one after the other: kept are all up to the last one whose draw "
    + "is below its threshold. So the text follows p, and never fewer are kept on average than one by one.",
  "exact-match": "The target’s own draws are what is written, so the text follows p. Fewer guesses hold than with the "
    + "ratio p / q, which may keep a guess that the target would not have drawn this time.",
  typical: "Kept means “likely enough” here: nothing makes up for guesses that the draft makes too often. The text does "
    + "not follow the target’s distribution.",
};

/** @param {{ text: string }} token */
const quoted = (token) => `“${visible(token.text)}”`;

/** @typedef {(token: ShownToken, at: Place) => string | undefined} Telling */

/** @type {Record<string, Partial<Record<ShownToken["outcome"], Telling>>>} */
const TELLINGS = {
  block: {
    accepted: (token, at) => {
      const passed = (token.u ?? 0) < (token.threshold ?? 0);
      return `${tested(token)}${passed ? ": below it, so this guess and all before it are kept."
        : `: not below it, but the guess at place ${lastPassed(at) + 1} passed, and a block keeps all before that one.`}`;
    },
    rejected: (token, { round }) => {
      const own = round.emitted[round.emitted.length - 1];
      const then = own?.outcome === "corrected" ? ` The target then drew ${quoted(own)} from what was left.` : "";
      return `${tested(token)}: not below it, and no later guess passed, so it was rejected.${then}`;
    },
    ignored: (token, { round }) => (round.drafted.some(({ outcome }) => outcome === "rejected")
      ? `${tested(token)}: not below it. Nothing is kept behind the last guess that passes.` : undefined),
    corrected: (token, { round }) => {
      const at = round.drafted.findIndex(({ outcome }) => outcome === "rejected");
      const weight = at > 0 ? round.drafted[at - 1].weight ?? 1 : 1;
      return `${quoted(round.drafted[at])} was rejected here, so the target drew again, only from what the weight ${
        number(weight)} times p has more than q: ${quoted(token)} had ${chance(token.p)} of p and ${
        chance(token.q)} of q.`;
    },
  },
  "exact-match": {
    accepted: (token) => `The target drew its own token here, from p. It was ${quoted(token)} as well, which had ${
      chance(token.p)}, so the guess is kept.`,
    rejected: (token, { round }) => {
      const own = round.emitted[round.emitted.length - 1];
      return `The target drew its own token here, from p. It was ${own ? quoted(own) : "another"}, not ${quoted(token)
      }, which had ${chance(token.p)}, so the guess was rejected.`;
    },
    corrected: (token) => `This is the target’s own draw at this place, from p: ${quoted(token)} had ${
      chance(token.p)}. The guess was another, so the draw is written instead.`,
  },
  typical: {
    accepted: (token) => `The target gives ${quoted(token)} ${chance(token.p)}, more than the threshold ${
      chance(token.threshold)}, so it is kept, however often the draft guesses it. No draw decides, and the text `
      + "does not follow p.",
    rejected: (token) => `The target gives ${quoted(token)} ${chance(token.p)}, no more than the threshold ${
      chance(token.threshold)}, so it was rejected. The target then drew a token from p.`,
    corrected: (token, { round }) => {
      const refused = round.drafted.find(({ outcome }) => outcome === "rejected");
      return `${refused ? quoted(refused) : "A guess"} was rejected here, so the target drew from its own chances p: ${
        quoted(token)} had ${chance(token.p)}.`;
    },
  },
};

/** @param {ShownToken} token of a block */
const tested = (token) => `The guesses of a round are judged together. Up to ${quoted(token)} their weight is ${
  number(token.weight)}, which makes the threshold ${number(token.threshold)}; the draw was ${number(token.u)}`;

/** @param {Place} at */
const lastPassed = ({ round }) => round.drafted.reduce((last, { u, threshold }, i) =>
  (u !== undefined && threshold !== undefined && u < threshold ? i : last), -1);

/**
 * Three decimals, or the leading digit of what would be 0.000.
 * @param {number} [value]
 */
export const number = (value) => (value !== undefined && value > 0 && value < 0.001 ? value.toExponential(1) : fixed(value, 3));

/**
 * What one rule does with a draft at its place: in a word, and why.
 * @typedef {{ rule: string, word: "keeps" | "rejects" | "may keep" | "not known", why: string }} Answer
 */

/**
 * What each rule would have done with a judged draft of a sampled run, from the numbers that the
 * run recorded. The run's own rule stands first.
 * @param {Token} token
 * @param {Place} at
 * @param {string} own the run's rule
 * @returns {Answer[]}
 */
export function answers(token, at, own) {
  /** @type {Record<string, (token: Token, at: Place) => { word: Answer["word"], why: string }>} */
  const all = { token: byRatio, block: byBlock, "exact-match": byOwnDraw, typical: byThreshold };
  const did = token.outcome === "accepted" ? /** @type {const} */ ("keeps") : /** @type {const} */ ("rejects");
  const others = Object.keys(all).filter((rule) => rule !== own).map((rule) => {
    // A threshold is that of the run's own rule.
    return { rule, ...all[rule]({ ...token, weight: undefined, threshold: undefined }, at) };
  });
  return [{ rule: own, word: did, why: ownWhy(token, own) }, ...others];
}

/**
 * @param {Token} token
 * @param {string} own
 */
function ownWhy({ p = 0, q = 1, u, threshold }, own) {
  switch (own) {
    case "block": return `threshold ${number(threshold)}, u = ${number(u)}`;
    case "typical": return `threshold ${number(threshold)}, p = ${number(p)}`;
    case "exact-match": return `the target’s own draw; p = ${number(p)}`;
    default: return `p/q = ${number(Math.min(1, p / q))}, u = ${number(u)}`;
  }
}

/** @param {Token} token */
function byRatio({ p = 0, q = 1, u }) {
  const odds = Math.min(1, p / q);
  if (odds === 1) return say("keeps", "p is not below q");
  if (u === undefined) return say(p ? "may keep" : "rejects", `with probability p/q = ${number(odds)}`);
  const isKept = u < odds;
  return say(isKept ? "keeps" : "rejects", `p/q = ${number(odds)}, u = ${number(u)}`);
}

/**
 * @param {Token} token
 * @param {Place} at
 */
function byBlock({ u }, { round, place }) {
  const weight = round.drafted.slice(0, place + 1)
    .reduce((product, { p, q }) => Math.min(1, product * ((p ?? NaN) / (q || NaN))), 1);
  const said = `weight ${number(weight)}`;
  const isLast = place === round.drafted.length - 1;
  const threshold = isLast || weight === 1 || weight === 0 ? weight : undefined;
  if (Number.isNaN(weight)) return say("not known", "a guess before it has no numbers");
  if (threshold === 1) return say("keeps", said);
  if (threshold !== undefined && u !== undefined) {
    return say(u < threshold ? "keeps" : "rejects", `threshold ${number(threshold)}, u = ${number(u)}`);
  }
  return say("not known", `${said}; the threshold needs all chances of the next place`);
}

/** @param {Token} token */
function byOwnDraw({ p = 0 }) {
  if (p === 0) return say("rejects", "p = 0");
  return say("may keep", `if the target draws it too: p = ${number(p)}`);
}

/** @param {Token} token */
function byThreshold({ p = 0, top_p = [] }) {
  if (p > EPSILON) return say("keeps", `p is above ${EPSILON}`);
  const rest = Math.max(0, 1 - top_p.reduce((sum, { probability }) => sum + probability, 0));
  // With all that is not listed as one token, the entropy is no more than it is.
  const entropy = [...top_p.map(({ probability }) => probability), rest]
    .reduce((sum, x) => sum - (x > 0 ? x * Math.log(x) : 0), 0);
  const most = Math.min(EPSILON, DELTA * Math.exp(-entropy));
  if (p > most) return say("keeps", `the threshold is at most ${number(most)}`);
  if (p === 0 || rest < 1e-6) return say("rejects", `p = ${number(p)}, threshold ${number(most)}`);
  return say("not known", `the threshold is at most ${number(most)}, by the five chances that are listed`);
}

/**
 * @param {Answer["word"]} word
 * @param {string} why
 * @returns {{ word: Answer["word"], why: string }}
 */
const say = (word, why) => ({ word, why });
