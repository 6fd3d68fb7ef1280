// Why a token got its verdict: one plain sentence or two, from the token's own numbers, by the rule of
// its run.

import { verdictKind } from "specviz/facts/vocabulary.js";
import { fixed, visible } from "specviz/words/words.js";

const SPACE = "\u00a0"; // a number stays on one line with its sign

/**
 * The place of a token.
 * @typedef {object} Place
 * @property {Round} round
 * @property {number} place  from 0, among the drafted tokens and then the target's own
 * @property {EndReason} [ended]  why the lane ended, if it has
 */

/**
 * A probability as people say it; only what is certain is called 0 or 100 %.
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
 * The probability with which a draft is accepted: min(1, p / q).
 * @param {Pick<Token, "p" | "q">} token
 */
export const keep = ({ p, q }) => (q && p !== undefined ? Math.min(1, p / q) : null);

/** @type {(token: ShownToken, at: Place) => string} */
export function reason(token, { round, place, ended }) {
  const isGreedy = token.soft_p !== undefined || token.soft_q !== undefined;
  const own = round.emitted[round.emitted.length - 1];
  switch (token.outcome) {
    case "pending": return guess(token);
    case "accepted": return isGreedy ? agreed(token) : accepted(token);
    case "rejected": return isGreedy ? disagreed(token, own) : rejected(token, own);
    case "ignored": return ignored(token, round, place, ended);
    case "corrected": return isGreedy ? instead(token, round) : corrected(token, round);
    default: return round.lane === "baseline" ? alone(token) : bonus(token, round);
  }
}

/** The support of a guess in words: a model's probability, or a count. @param {ShownToken} token */
function belief(token) {
  const share = token.soft_q ?? token.q ?? 0;
  const { seen } = token;
  if (seen === undefined) return `The draft was ${chance(share)} sure of ${quoted(token)}`;
  const followed = Math.round(share * seen);
  if (seen === 1) return `The text before ${quoted(token)} was seen once before, followed by this`;
  const often = followed === seen ? "each time" : `${followed} of them`;
  return `The text before ${quoted(token)} was seen ${seen} times before, ${often} followed by this`;
}

/** @param {ShownToken} token */
const guess = (token) => `${belief(token)}. The target has yet to judge it.`;

/** @param {ShownToken} token */
const sure = (token, only = "") => (token.seen === undefined
  ? `${belief(token)}, the target ${only}${chance(token.p)}`
  : `${belief(token)}: q is ${chance(token.q)}, the target’s p ${only}${chance(token.p)}`);

/** @param {ShownToken} token */
function accepted(token) {
  const { p = 0, q = 0 } = token;
  if (p >= q) {
    return `${sure(token)}: the target wants it no less than the draft does, so it is accepted whatever `
      + "the draw.";
  }
  return `${sure(token, "only ")}: ${drawn(token)}, so it was accepted.`;
}

/**
 * @param {ShownToken} token
 * @param {Token} [own] the target's token in this round
 */
function rejected(token, own) {
  const after = drawnInstead(own);
  if (token.p === 0) return `${sure(token)}: the target rules it out, so it was rejected.${after}`;
  return `${sure(token)}: ${drawn(token)}, so it was rejected.${after}`;
}

/** The token after a rejected guess, in words. @param {Token} [own] the target's token in this round */
function drawnInstead(own) {
  if (own?.outcome !== "corrected") return "";
  return ` The target then drew ${quoted(own)} from what was left.`;
}

/** @param {ShownToken} token */
function drawn(token) {
  const { odds, draw } = oddsAndDraw(token);
  return `it is accepted with probability ${odds}; the draw was ${draw}`;
}

/**
 * The odds and the draw, with two decimals, or as many as it takes to tell the odds from 0 and 1
 * and the draw from both.
 * @param {Pick<Token, "p" | "q" | "u">} token
 */
export function oddsAndDraw({ p = 0, q = 1, u = 0 }) {
  const odds = p / q;
  const areSame = (/** @type {number} */ places) =>
    [[odds, 0], [odds, 1], [odds, u], [u, 0], [u, 1]].some(([one, other]) =>
      one !== other && one.toFixed(places) === other.toFixed(places));
  let places = 2;
  while (places < 8 && areSame(places)) places += 1;
  return { odds: Math.min(1, odds).toFixed(places), draw: u.toFixed(places) };
}

/** @type {(token: ShownToken, round: Round, place: number, ended?: EndReason) => string} */
function ignored(token, round, place, ended) {
  const guessed = belief(token);
  const rejectedAt = round.drafted.findIndex((other) => other.outcome === "rejected");
  if (rejectedAt < 0) {
    const end = `place ${round.emitted.length}${endedBy(ended)}`;
    return `${guessed}, but the text had ended at ${end}: what was drafted past the end is never judged.`;
  }
  const rejected = quoted(round.drafted[rejectedAt]);
  return `${guessed}, but ${rejected} at place ${rejectedAt + 1} had been rejected: `
    + `place ${place + 1} goes on from a text that was not written, so the target never judged it.`;
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
  const part = share === undefined ? "" : `, ${chance(share)} of what was left`;
  const theTarget = rejected ? `${quoted(rejected)} was rejected here, so the target` : "The target";
  const shares = `${chance(token.p)} of p and ${chance(token.q)} of q`;
  return `${theTarget} drew again, only from what the draft had given too little: `
    + `${quoted(token)} had ${shares}${part}.`;
}

/** @type {(token: ShownToken, round: Round) => string} */
function bonus(token, round) {
  const p = chance(token.soft_p ?? token.p);
  const count = round.drafted.length;
  if (!count) {
    return "Nothing was drafted in this round: one pass, one token, the target’s own. "
      + `It was ${p} sure of it.`;
  }
  const held = count === 1 ? "The one guess before it held" : `All ${count} guesses before it held`;
  const them = count === 1 ? "it" : "them";
  return `${held}, so the pass that judged ${them} gave this token as well: it came free. `
    + `The target was ${p} sure of it.`;
}

/** @param {ShownToken} token */
function alone(token) {
  const p = chance(token.soft_p ?? token.p);
  return `One pass of the target alone, one token. It was ${p} sure of ${quoted(token)}.`;
}

// A guess that no model gave a chance: it was copied, or translated from a draft's own tokens.
/** @param {ShownToken} token */
const isBare = (token) => token.seen === undefined && token.soft_q === 1 && (token.top_q?.length ?? 0) <= 1;

/** @param {ShownToken} token */
const isModels = (token) => token.seen === undefined && !isBare(token);

/** A greedy guess, in half a sentence. @param {ShownToken} token */
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
 * @param {Token} [own] the target's token in this round
 */
function disagreed(token, own) {
  const chosen = own?.outcome === "corrected" ? own : null;
  const first = chosen ?? token.top_p?.[0];
  const theirs = chosen ? chosen.soft_p : token.top_p?.[0]?.probability;
  const whose = isModels(token) ? "the target's" : "the target's first choice";
  const better = first ? `${whose} is ${quoted(first)} (${chance(theirs)})` : `${whose} is another`;
  const share = `it gives ${quoted(token)} ${chance(token.soft_p)}`;
  return `${guessed(token)}, but ${better}; ${share}, so that was rejected.`;
}

/** @type {(token: ShownToken, round: Round) => string} */
function instead(token, round) {
  const rejected = round.drafted.find((other) => other.outcome === "rejected");
  const before = rejected ? `The draft guessed ${quoted(rejected)}, but ` : "";
  const p = chance(token.soft_p);
  return `${before}${quoted(token)} is the target's first choice (${p} sure), so this is what is written.`;
}

/** The note on a token that the target's server drew without listing probabilities. */
export const SERVER_DREW = "The server told p of the guesses and drew by itself: all of p, β and what was "
  + "left of p are not known here. The text follows p exactly all the same.";

/**
 * Whether the target's server drew by itself, so that of its distribution only single chances are known.
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
  const telling = isJudged ? tellings(rule)[token.outcome] : undefined;
  return telling?.(token, at) ?? reason(token, at);
}

/**
 * Whether the target draws a token of its own first, and a guess is held against it.
 * @param {string} rule
 */
export function drawsFirst(rule) {
  const { chance: hasChance, threshold } = verdictKind(rule);
  return hasChance && threshold === null;
}

/** The sentences about a rule's verdicts, where it does not compare p / q. @param {string} rule */
function tellings(rule) {
  const { together, threshold } = verdictKind(rule);
  if (together) return TOGETHER;
  if (threshold === "p") return THRESHOLD;
  return drawsFirst(rule) ? OWN_DRAW : {};
}

/** @typedef {(token: ShownToken, at: Place) => string | undefined} Telling */

/** @typedef {Partial<Record<ShownToken["outcome"], Telling>>} Tellings */

/** @type {Tellings} */
const TOGETHER = {
  accepted: (token, at) => {
    const passed = (token.u ?? 0) < (token.threshold ?? 0);
    if (passed) return `${tested(token)}: below it, so this guess and all before it are accepted.`;
    return `${tested(token)}: not below it, but the guess at place ${lastPassed(at) + 1} passed, `
      + "and a block accepts all before that one.";
  },
  rejected: (token, { round }) => {
    const after = drawnInstead(round.emitted[round.emitted.length - 1]);
    return `${tested(token)}: not below it, and no later guess passed, so it was rejected.${after}`;
  },
  ignored: (token, { round }) => {
    if (!round.drafted.some(({ outcome }) => outcome === "rejected")) return undefined;
    return `${tested(token)}: not below it. Nothing is accepted behind the last guess that passes.`;
  },
  corrected: (token, { round }) => {
    const at = round.drafted.findIndex(({ outcome }) => outcome === "rejected");
    const weight = at > 0 ? round.drafted[at - 1].weight ?? 1 : 1;
    const shares = `${chance(token.p)} of p and ${chance(token.q)} of q`;
    return `${quoted(round.drafted[at])} was rejected here, so the target drew again, only from what `
      + `the weight ${number(weight)} times p has more than q: ${quoted(token)} had ${shares}.`;
  },
};

/** @type {Tellings} */
const OWN_DRAW = {
  accepted: (token) => "The target drew its own token here, from p. "
    + `It was ${quoted(token)} as well, which had ${chance(token.p)}, so the guess is accepted.`,
  rejected: (token, { round }) => {
    const own = round.emitted[round.emitted.length - 1];
    const drew = own ? quoted(own) : "another";
    return "The target drew its own token here, from p. "
      + `It was ${drew}, not ${quoted(token)}, which had ${chance(token.p)}, so the guess was rejected.`;
  },
  corrected: (token) => "This is the target’s own draw at this place, from p: "
    + `${quoted(token)} had ${chance(token.p)}. The guess was another, so the draw is written instead.`,
};

/** @type {Tellings} */
const THRESHOLD = {
  accepted: (token) => `The target gives ${quoted(token)} ${chance(token.p)}, `
    + `more than the threshold ${chance(token.threshold)}, so it is accepted, `
    + "however often the draft guesses it. No draw decides, and the text does not follow p.",
  rejected: (token) => `The target gives ${quoted(token)} ${chance(token.p)}, `
    + `no more than the threshold ${chance(token.threshold)}, so it was rejected. `
    + "The target then drew a token from p.",
  corrected: (token, { round }) => {
    const rejected = round.drafted.find(({ outcome }) => outcome === "rejected");
    const guess = rejected ? quoted(rejected) : "A guess";
    return `${guess} was rejected here, so the target drew from its own chances p: `
      + `${quoted(token)} had ${chance(token.p)}.`;
  },
};

/** @param {ShownToken} token of a block */
function tested(token) {
  const { weight, threshold, u } = token;
  return "The guesses of a round are judged together. "
    + `Up to ${quoted(token)} their weight is ${number(weight)}, `
    + `which makes the threshold ${number(threshold)}; the draw was ${number(u)}`;
}

/** @param {Place} at */
const lastPassed = ({ round }) => round.drafted.reduce((last, { u, threshold }, i) =>
  (u !== undefined && threshold !== undefined && u < threshold ? i : last), -1);

/** Three decimals, or the leading digit of what would be 0.000. @param {number} [value] */
export function number(value) {
  const isTiny = value !== undefined && value > 0 && value < 0.001;
  return isTiny ? value.toExponential(1) : fixed(value, 3);
}
