// Why a token fared as it did: one plain sentence or two, from the token's own numbers.

import { visible } from "./words.js";

const SPACE = "\u00a0"; // a number stays on one line with its sign

/** A probability as people say it; only what is certain is called 0 or 100 %. */
export function chance(value) {
  if (value == null) return "–";
  const hundred = 100 * value;
  if (value > 0 && hundred < 0.1) return `<${SPACE}0.1${SPACE}%`;
  if (value < 1 && hundred > 99.9) return `>${SPACE}99.9${SPACE}%`;
  const isRound = value === 0 || value >= 1 || (hundred >= 10 && hundred <= 99);
  return `${isRound ? Math.round(hundred) : hundred.toFixed(1)}${SPACE}%`;
}

const quoted = (token) => `“${visible(token.text)}”`;

/** The probability with which a draft is kept: min(1, p / q). */
export const keep = (token) => (token.q ? Math.min(1, token.p / token.q) : null);

/**
 * `place` counts from 0 among the drafted tokens and then the target's own; `ended` is why the
 * lane ended, if this was its last round.
 */
export function reason(token, { round, place, isBaseline, ended }) {
  const isGreedy = token.soft_p !== undefined || token.soft_q !== undefined;
  const own = round.emitted[round.emitted.length - 1];
  switch (token.outcome) {
    case "pending": return guess(token);
    case "accepted": return isGreedy ? agreed(token) : accepted(token);
    case "rejected": return isGreedy ? disagreed(token, own) : rejected(token, own);
    case "ignored": return ignored(token, round, place, ended);
    case "corrected": return isGreedy ? instead(token, round) : corrected(token, round);
    default: return isBaseline ? alone(token) : bonus(token, round);
  }
}

const guess = (token) =>
  `The draft was ${chance(token.soft_q ?? token.q)} sure of ${quoted(token)}. The target has yet to judge it.`;

const sure = (token, only = "") =>
  `The draft was ${chance(token.q)} sure of ${quoted(token)}, the target ${only}${chance(token.p)}`;

function accepted(token) {
  if (token.p >= token.q) {
    return `${sure(token)}: the target wants it no less than the draft does, so it is kept whatever the draw.`;
  }
  return `${sure(token, "only ")}: it is kept with probability ${odds(token)}; `
    + `the draw was ${drawn(token)}, so it was kept.`;
}

function rejected(token, own) {
  const then = own?.outcome === "corrected"
    ? ` The target then drew ${quoted(own)} from what was left.` : "";
  if (token.p === 0) return `${sure(token)}: the target rules it out, so it was rejected.${then}`;
  return `${sure(token)}: it is kept with probability ${odds(token)}; `
    + `the draw was ${drawn(token)}, so it was rejected.${then}`;
}

/** Two decimals, or as many as it takes to tell the odds from 0 and 1 and the draw from both. */
function digits({ p, q, u }) {
  const same = (places) => [[p / q, 0], [p / q, 1], [p / q, u], [u, 0], [u, 1]].some(([one, other]) =>
    one !== other && one.toFixed(places) === other.toFixed(places));
  let places = 2;
  while (places < 8 && same(places)) places += 1;
  return places;
}

const odds = (token) => keep(token).toFixed(digits(token));
const drawn = (token) => token.u.toFixed(digits(token));

function ignored(token, round, place, ended) {
  const fell = round.drafted.findIndex((other) => other.outcome === "rejected");
  const said = `The draft was ${chance(token.soft_q ?? token.q)} sure of ${quoted(token)}, but `;
  if (fell >= 0) {
    return `${said}${quoted(round.drafted[fell])} at place ${fell + 1} had been rejected: place ${
      place + 1} goes on from a text that was not written, so the target never judged it.`;
  }
  const how = { eos: "with an end-of-text token", stop: "with a stop string" }[ended];
  const kept = round.emitted.length;
  return `${said}the text had ended at place ${kept}${how ? `, ${how}` : ""}: what was drafted past the end is never judged.`;
}

function corrected(token, round) {
  const fallen = round.drafted.find((other) => other.outcome === "rejected");
  const share = token.top_residual?.find((choice) => choice.id === token.id)?.probability;
  const part = share === undefined ? "" : `, ${chance(share)} of what was left`;
  return `${fallen ? `${quoted(fallen)} was rejected here, so the` : "The"} target drew again, only from what `
    + `the draft had given too little: ${quoted(token)} had ${chance(token.p)} of p and ${
      chance(token.q)} of q${part}.`;
}

function bonus(token, round) {
  const p = chance(token.soft_p ?? token.p), count = round.drafted.length;
  if (!count) return `Nothing was drafted in this round: one pass, one token. The target was ${p} sure of it.`;
  const held = count === 1 ? "The one guess before it held" : `All ${count} guesses before it held`;
  return `${held}, so the pass that judged ${count === 1 ? "it" : "them"} gave this token as well: it came free. `
    + `The target was ${p} sure of it.`;
}

const alone = (token) =>
  `One pass of the target alone, one token. It was ${chance(token.soft_p ?? token.p)} sure of ${quoted(token)}.`;

const agreed = (token) =>
  `${quoted(token)} is the draft's first choice (${chance(token.soft_q)} sure) and the target's as well (${
    chance(token.soft_p)}), so it is kept.`;

function disagreed(token, own) {
  const first = own?.outcome === "corrected" ? own : token.top_p?.[0];
  const theirs = first?.soft_p ?? first?.probability;
  const better = first ? `the target's is ${quoted(first)} (${chance(theirs)})` : "the target's is another";
  return `${quoted(token)} is the draft's first choice (${chance(token.soft_q)} sure), but ${better}; `
    + `it gives ${quoted(token)} ${chance(token.soft_p)}, so that was rejected.`;
}

function instead(token, round) {
  const fallen = round.drafted.find((other) => other.outcome === "rejected");
  const guessed = fallen ? `The draft guessed ${quoted(fallen)}, but ` : "";
  return `${guessed}${quoted(token)} is the target's first choice (${chance(token.soft_p)} sure), so this is what is written.`;
}
