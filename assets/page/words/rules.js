// The verdicts in words: what each rule says of a token.

import { verdictKind } from "specviz/facts/vocabulary.js";
import { chance, quoted, reason } from "specviz/words/reasons.js";
import { fixed } from "specviz/words/words.js";

/** What is said of a token whose place the target's server did not list but drew for. */
export const SERVER_DREW = "The server told p of the guesses and drew by itself: all of p, β and what was left of p are not "
  + "known here. The text follows p exactly all the same.";

/**
 * Whether the target's server drew by itself, so that of its distribution only single chances are known.
 * @param {ShownToken} token
 */
export const isDrawn = (token) => token.p != null && token.soft_p == null && !token.top_p?.length;

/**
 * The lanes of a race of named lanes whose text follows another distribution than the target's.
 * @param {Pick<Header, "lanes">} header
 */
export const changedLanes = ({ lanes }) =>
  Object.entries(lanes ?? {}).filter(([, own]) => own.drafter !== "none" && !verdictKind(ruleOf(own)).exact).map(([name]) => name);

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
  return (judged ? tellings(rule)[token.outcome]?.(token, at) : undefined) ?? reason(token, at);
}

/**
 * Whether the target draws a token of its own first, and a guess is held against it.
 * @param {string} rule
 */
export function drawsFirst(rule) {
  const { chance: hasChance, threshold } = verdictKind(rule);
  return hasChance && threshold === null;
}

/** What is told of a rule's verdicts in the place of p / q. @param {string} rule */
function tellings(rule) {
  const { together, threshold } = verdictKind(rule);
  return together ? TOGETHER : threshold === "p" ? THRESHOLD : drawsFirst(rule) ? OWN_DRAW : {};
}

/** @typedef {(token: ShownToken, at: Place) => string | undefined} Telling */

/** @typedef {Partial<Record<ShownToken["outcome"], Telling>>} Tellings */

/** @type {Tellings} */
const TOGETHER = {
  accepted: (token, at) => {
    const passed = (token.u ?? 0) < (token.threshold ?? 0);
    return `${tested(token)}${passed ? ": below it, so this guess and all before it are accepted."
      : `: not below it, but the guess at place ${lastPassed(at) + 1} passed, and a block accepts all before that one.`}`;
  },
  rejected: (token, { round }) => {
    const own = round.emitted[round.emitted.length - 1];
    const then = own?.outcome === "corrected" ? ` The target then drew ${quoted(own)} from what was left.` : "";
    return `${tested(token)}: not below it, and no later guess passed, so it was rejected.${then}`;
  },
  ignored: (token, { round }) => (round.drafted.some(({ outcome }) => outcome === "rejected")
    ? `${tested(token)}: not below it. Nothing is accepted behind the last guess that passes.` : undefined),
  corrected: (token, { round }) => {
    const at = round.drafted.findIndex(({ outcome }) => outcome === "rejected");
    const weight = at > 0 ? round.drafted[at - 1].weight ?? 1 : 1;
    return `${quoted(round.drafted[at])} was rejected here, so the target drew again, only from what the weight ${
      number(weight)} times p has more than q: ${quoted(token)} had ${chance(token.p)} of p and ${
      chance(token.q)} of q.`;
  },
};

/** @type {Tellings} */
const OWN_DRAW = {
  accepted: (token) => `The target drew its own token here, from p. It was ${quoted(token)} as well, which had ${
    chance(token.p)}, so the guess is accepted.`,
  rejected: (token, { round }) => {
    const own = round.emitted[round.emitted.length - 1];
    return `The target drew its own token here, from p. It was ${own ? quoted(own) : "another"}, not ${quoted(token)
    }, which had ${chance(token.p)}, so the guess was rejected.`;
  },
  corrected: (token) => `This is the target’s own draw at this place, from p: ${quoted(token)} had ${
    chance(token.p)}. The guess was another, so the draw is written instead.`,
};

/** @type {Tellings} */
const THRESHOLD = {
  accepted: (token) => `The target gives ${quoted(token)} ${chance(token.p)}, more than the threshold ${
    chance(token.threshold)}, so it is accepted, however often the draft guesses it. No draw decides, and the text `
    + "does not follow p.",
  rejected: (token) => `The target gives ${quoted(token)} ${chance(token.p)}, no more than the threshold ${
    chance(token.threshold)}, so it was rejected. The target then drew a token from p.`,
  corrected: (token, { round }) => {
    const rejected = round.drafted.find(({ outcome }) => outcome === "rejected");
    return `${rejected ? quoted(rejected) : "A guess"} was rejected here, so the target drew from its own chances p: ${
      quoted(token)} had ${chance(token.p)}.`;
  },
};

/** @param {ShownToken} token of a block */
const tested = (token) => `The guesses of a round are judged together. Up to ${quoted(token)} their weight is ${
  number(token.weight)}, which makes the threshold ${number(token.threshold)}; the draw was ${number(token.u)}`;

/** @param {Place} at */
const lastPassed = ({ round }) => round.drafted.reduce((last, { u, threshold }, i) =>
  (u !== undefined && threshold !== undefined && u < threshold ? i : last), -1);

/** Three decimals, or the leading digit of what would be 0.000. @param {number} [value] */
export const number = (value) => (value !== undefined && value > 0 && value < 0.001 ? value.toExponential(1) : fixed(value, 3));
