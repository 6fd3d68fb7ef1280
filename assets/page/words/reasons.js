// The reason of a token's verdict in one or two plain sentences, from the token's own numbers and the
// verdict rule of its run.

import { verdictKind } from "specviz/facts/vocabulary.js";
import { fixed, visible } from "specviz/words/words.js";

const SPACE = "\u00a0"; // a number stays on one line with its sign

/**
 * The position of a token.
 * @typedef {object} Place
 * @property {Round} round
 * @property {number} position  from 0, among the drafted tokens, followed by the target's token
 * @property {EndReason} [endReason]  why the lane ended, if it has
 */

/**
 * A probability as a percentage; only exact values are shown as 0 or 100 %.
 * @param {number | null} [value]
 */
export function chance(value) {
  if (value == null) return "–";
  const hundred = 100 * value;
  if (value > 0 && hundred < 0.1) return `<${SPACE}0.1${SPACE}%`;
  if (value < 1 && hundred > 99.9) return `>${SPACE}99.9${SPACE}%`;
  const isRound = value === 0 || value >= 1 || (hundred >= 10 && hundred <= 99);
  const figure = isRound ? Math.round(hundred) : hundred.toFixed(1);
  return `${figure}${SPACE}%`;
}

/** @param {{ text: string }} token */
export const quoted = (token) => `“${visible(token.text)}”`;

/**
 * The probability that a draft is accepted: min(1, p / q).
 * @param {Pick<Token, "p" | "q">} token
 */
export const keep = ({ p, q }) => (q && p !== undefined ? Math.min(1, p / q) : null);

/** @type {(token: ShownToken, at: Place) => string} */
export function reason(token, { round, position, endReason }) {
  const isGreedy = token.soft_p !== undefined || token.soft_q !== undefined;
  const targetToken = round.emitted[round.emitted.length - 1];
  switch (token.outcome) {
    case "pending": return guess(token);
    case "accepted": return isGreedy ? agreed(token) : accepted(token);
    case "rejected": return isGreedy ? disagreed(token, targetToken) : rejected(token, targetToken);
    case "ignored": return ignored(token, round, position, endReason);
    case "corrected": return isGreedy ? instead(token, round) : corrected(token, round);
    default: return round.lane === "baseline" ? alone(token) : bonus(token, round);
  }
}

/** The drafter's support of a guess in words: a probability, or a count. @param {ShownToken} token */
function belief(token) {
  const share = token.soft_q ?? token.q ?? 0;
  const { seen: occurrences } = token;
  if (occurrences === undefined) return `The draft was ${chance(share)} sure of ${quoted(token)}`;
  const before = `The text before ${quoted(token)} occurred`;
  if (occurrences === 1) return `${before} once before, followed by this token`;
  const followed = Math.round(share * occurrences);
  const often = followed === occurrences ? "each time" : `${followed} of them`;
  return `${before} ${occurrences} times before, ${often} followed by this token`;
}

/** @param {ShownToken} token */
const guess = (token) => `${belief(token)}. The target has not judged it yet.`;

/** @param {ShownToken} token */
const sure = (token, only = "") => (token.seen === undefined
  ? `${belief(token)}, the target ${only}${chance(token.p)}`
  : `${belief(token)}: q is ${chance(token.q)}, the target’s p is ${only}${chance(token.p)}`);

/** @param {ShownToken} token */
function accepted(token) {
  const { p = 0, q = 0 } = token;
  if (p >= q) return `${sure(token)}: p is at least q, so it is accepted whatever the draw.`;
  return `${sure(token, "only ")}: ${drawn(token)}, so it was accepted.`;
}

/**
 * @param {ShownToken} token
 * @param {Token} [targetToken]  of this round
 */
function rejected(token, targetToken) {
  const after = drawnInstead(targetToken, "max(0, p − q)");
  if (token.p === 0) return `${sure(token)}: the target rules it out, so it was rejected.${after}`;
  return `${sure(token)}: ${drawn(token)}, so it was rejected.${after}`;
}

/**
 * The token after a rejected guess, in words.
 * @param {Token | undefined} targetToken  of this round
 * @param {string} residual  its formula
 */
function drawnInstead(targetToken, residual) {
  if (targetToken?.outcome !== "corrected") return "";
  return ` The target then drew ${quoted(targetToken)} from the residual, ${residual}.`;
}

/** @param {ShownToken} token */
function drawn(token) {
  const { odds, draw } = oddsAndDraw(token);
  return `it is accepted if the random draw u is below p/q = ${odds}; u was ${draw}`;
}

/**
 * The odds and the draw, with two decimals, or with as many as are needed to distinguish the odds from 0
 * and 1, and the draw from all three.
 * @param {Pick<Token, "p" | "q" | "u">} token
 */
export function oddsAndDraw({ p = 0, q = 1, u = 0 }) {
  const odds = p / q;
  const areSame = (/** @type {number} */ places) =>
    [[odds, 0], [odds, 1], [odds, u], [u, 0], [u, 1]].some(([a, b]) =>
      a !== b && a.toFixed(places) === b.toFixed(places));
  let places = 2;
  while (places < 8 && areSame(places)) places += 1;
  return { odds: Math.min(1, odds).toFixed(places), draw: u.toFixed(places) };
}

/** @type {(token: ShownToken, round: Round, position: number, endReason?: EndReason) => string} */
function ignored(token, round, position, endReason) {
  const guessed = belief(token);
  const rejectedAt = round.drafted.findIndex((other) => other.outcome === "rejected");
  if (rejectedAt < 0) {
    const end = `position ${round.emitted.length}${endedBy(endReason)}`;
    return `${guessed}, but the text had ended at ${end}: guesses after the end are never judged.`;
  }
  const rejected = quoted(round.drafted[rejectedAt]);
  return `${guessed}, but ${rejected} at position ${rejectedAt + 1} was rejected: `
    + `position ${position + 1} continues a text that was not written, so the target never judged it.`;
}

/** The end of a text, as the end of a clause. @param {EndReason} [reason] */
function endedBy(reason) {
  if (reason === "eos") return ", with an end-of-text token";
  return reason === "stop" ? ", with a stop string" : "";
}

/** @type {(token: ShownToken, round: Round) => string} */
function corrected(token, round) {
  const rejected = round.drafted.find((other) => other.outcome === "rejected");
  const share = token.top_residual?.find((choice) => choice.id === token.id)?.probability;
  const part = share === undefined ? "" : `, which is ${chance(share)} of the residual`;
  const theTarget = rejected ? `${quoted(rejected)} was rejected here, so the target` : "The target";
  return `${theTarget} drew again, only from tokens that it finds more likely than the draft does: `
    + `${quoted(token)} has p = ${chance(token.p)} and q = ${chance(token.q)}${part}.`;
}

/** @type {(token: ShownToken, round: Round) => string} */
function bonus(token, round) {
  const p = chance(token.soft_p ?? token.p);
  const count = round.drafted.length;
  if (!count) {
    return "Nothing was drafted in this round: one pass of the target wrote one token. "
      + `The target was ${p} sure of it.`;
  }
  const guesses = count === 1 ? "The guess before it was" : `All ${count} guesses before it were`;
  const them = count === 1 ? "it" : "them";
  return `${guesses} accepted, and the pass that judged ${them} also gave this token, for free. `
    + `The target was ${p} sure of it.`;
}

/** @param {ShownToken} token */
function alone(token) {
  const p = chance(token.soft_p ?? token.p);
  return `One pass of the target wrote one token. The target was ${p} sure of ${quoted(token)}.`;
}

// A guess without a model's probability: it was copied, or translated from a draft's own tokens.
/** @param {ShownToken} token */
const isBare = (token) => token.seen === undefined && token.soft_q === 1 && (token.top_q?.length ?? 0) <= 1;

/** @param {ShownToken} token */
const isModels = (token) => token.seen === undefined && !isBare(token);

/** A greedy guess, as a clause. @param {ShownToken} token */
function guessed(token) {
  if (isModels(token)) return `${quoted(token)} is the draft's first choice (${chance(token.soft_q)} sure)`;
  return isBare(token) ? `${quoted(token)} was the guess` : belief(token);
}

/** @param {ShownToken} token */
function agreed(token) {
  const p = chance(token.soft_p);
  if (isModels(token)) return `${guessed(token)} and the target's as well (${p}), so it is accepted.`;
  return `${guessed(token)}, and it is the target's first choice (${p}), so it is accepted.`;
}

/**
 * @param {ShownToken} token
 * @param {Token} [targetToken]  of this round
 */
function disagreed(token, targetToken) {
  const chosen = targetToken?.outcome === "corrected" ? targetToken : null;
  const first = chosen ?? token.top_p?.[0];
  const p = chosen ? chosen.soft_p : token.top_p?.[0]?.probability;
  const whose = isModels(token) ? "the target's" : "the target's first choice";
  const better = first ? `${whose} is ${quoted(first)} (${chance(p)})` : `${whose} is another token`;
  const share = `it gives ${quoted(token)} ${chance(token.soft_p)}`;
  return `${guessed(token)}, but ${better}; ${share}, so the guess was rejected.`;
}

/** @type {(token: ShownToken, round: Round) => string} */
function instead(token, round) {
  const rejected = round.drafted.find((other) => other.outcome === "rejected");
  const before = rejected ? `The draft guessed ${quoted(rejected)}, but ` : "";
  const p = chance(token.soft_p);
  return `${before}${quoted(token)} is the target's first choice (${p} sure), so it is written.`;
}

/** The note on a token that the target's server drew without listing probabilities. */
export const SERVER_DREW = "The server reports p only for the guesses and draws tokens itself, so the rest "
  + "of p, β and the residual are unknown here. The text still follows p exactly.";

/**
 * Whether the target's server drew the token itself, so that only single probabilities are known.
 * @param {ShownToken} token
 */
export const isDrawn = (token) => token.p != null && token.soft_p == null && !token.top_p?.length;

/**
 * The reason of a verdict, by the rule of its run.
 * @param {ShownToken} token
 * @param {Place} at
 * @param {string} rule
 */
export function reasonBy(rule, token, at) {
  const isJudged = token.outcome !== "pending" && at.round.drafted.length > 0;
  const sentenceOf = isJudged ? sentencesOf(rule)[token.outcome] : undefined;
  return sentenceOf?.(token, at) ?? reason(token, at);
}

/**
 * Whether the target first draws its own token, and a guess is compared with it.
 * @param {string} rule
 */
export function drawsFirst(rule) {
  const { chance: hasChance, threshold } = verdictKind(rule);
  return hasChance && threshold === null;
}

/** The sentences about the verdicts of a rule that does not compare p / q. @param {string} rule */
function sentencesOf(rule) {
  const { together, threshold } = verdictKind(rule);
  if (together) return TOGETHER;
  if (threshold === "p") return THRESHOLD;
  return drawsFirst(rule) ? OWN_DRAW : {};
}

/** @typedef {(token: ShownToken, at: Place) => string | undefined} Sentence */

/** @typedef {Partial<Record<ShownToken["outcome"], Sentence>>} Sentences */

/** @type {Sentences} */
const TOGETHER = {
  accepted: (token, at) => {
    const passed = (token.u ?? 0) < (token.threshold ?? 0);
    if (passed) return `${tested(token)}: below it, so this guess and all before it are accepted.`;
    return `${tested(token)}: not below it, but the guess at position ${lastPassed(at) + 1} passed, `
      + "so all guesses before that one are accepted.";
  },
  rejected: (token, { round }) => {
    const after = drawnInstead(round.emitted[round.emitted.length - 1], "max(0, w p − q)");
    return `${tested(token)}: not below it, and no later guess passed, so it was rejected.${after}`;
  },
  ignored: (token, { round }) => {
    if (!round.drafted.some(({ outcome }) => outcome === "rejected")) return undefined;
    return `${tested(token)}: not below it. No guess after the last one that passes is accepted.`;
  },
  corrected: (token, { round }) => {
    const at = round.drafted.findIndex(({ outcome }) => outcome === "rejected");
    const weight = at > 0 ? round.drafted[at - 1].weight ?? 1 : 1;
    return `${quoted(round.drafted[at])} was rejected here, so the target drew again, only from tokens `
      + `for which the weight ${number(weight)} times p exceeds q: `
      + `${quoted(token)} has p = ${chance(token.p)} and q = ${chance(token.q)}.`;
  },
};

/** @type {Sentences} */
const OWN_DRAW = {
  accepted: (token) => "The target drew its own token here, from p. "
    + `It was also ${quoted(token)}, which has p = ${chance(token.p)}, so the guess is accepted.`,
  rejected: (token, { round }) => {
    const draw = round.emitted[round.emitted.length - 1];
    const drew = draw ? quoted(draw) : "another token";
    return "The target drew its own token here, from p. "
      + `It was ${drew}, not ${quoted(token)}, which has p = ${chance(token.p)}, so the guess was rejected.`;
  },
  corrected: (token) => "The target drew this token from p: "
    + `${quoted(token)} has p = ${chance(token.p)}. The guess was different, so the draw is written instead.`,
};

/** @type {Sentences} */
const THRESHOLD = {
  accepted: (token) => `The target gives ${quoted(token)} ${chance(token.p)}, `
    + `more than the threshold of ${chance(token.threshold)}, so it is accepted, `
    + "however often the draft guesses it. There is no random draw, and the text does not follow p.",
  rejected: (token) => `The target gives ${quoted(token)} ${chance(token.p)}, `
    + `no more than the threshold of ${chance(token.threshold)}, so it was rejected. `
    + "The target then drew a token from p.",
  corrected: (token, { round }) => {
    const rejected = round.drafted.find(({ outcome }) => outcome === "rejected");
    const guess = rejected ? quoted(rejected) : "A guess";
    return `${guess} was rejected here, so the target drew from its own probabilities p: `
      + `${quoted(token)} has p = ${chance(token.p)}.`;
  },
};

/** @param {ShownToken} token of a block */
function tested(token) {
  const { weight, threshold, u } = token;
  return "The guesses of a round are judged together. "
    + `Up to ${quoted(token)} their weight is ${number(weight)}, `
    + `so the threshold is ${number(threshold)}; the draw u was ${number(u)}`;
}

/** @param {Place} at */
const lastPassed = ({ round }) => round.drafted.reduce((last, { u, threshold }, i) =>
  (u !== undefined && threshold !== undefined && u < threshold ? i : last), -1);

/** Three decimals, or the leading digit of what would be 0.000. @param {number} [value] */
export function number(value) {
  const isTiny = value !== undefined && value > 0 && value < 0.001;
  return isTiny ? value.toExponential(1) : fixed(value, 3);
}
