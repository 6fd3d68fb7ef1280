// The numbers of one round as its picture needs them; each is the trace's, or a sum or difference
// of the trace's.

import { secondsOf } from "specviz/facts/uncertainty.js";

const LISTED = 5; // entries of a recorded list; a shorter one holds every token that has a chance
const MOST_ROWS = 6;
const FINEST = 1e-9; // less than the rounding of a listed chance

/**
 * A token whose chances in both distributions are known.
 * @typedef {{ id: number, text: string, p: number, q: number }} Share
 */

/**
 * The two distributions of a judged place, side by side. `rest` sums all tokens without a row;
 * `both` is the part of it that p and q have in common. With it the rows add up to p, q and beta.
 * @typedef {{ rows: Share[], rest: { p: number, q: number, both: number }, beta: number }} Shares
 */

/**
 * @param {Token} token a judged draft of a run with sampling
 * @param {Token} [own] what the target wrote in its place
 * @returns {Shares}
 */
export function sharesOf(token, own) {
  const mine = own?.outcome === "corrected" ? [token, own] : [token];
  const beta = token.beta ?? 0;
  const p = listed(token.top_p, mine, ({ p: value }) => value);
  const q = listed(token.top_q, mine, ({ q: value }) => value);
  // What is left of p is recorded scaled up to 1; where one chance is listed it gives the other.
  const excess = new Map((token.top_residual ?? []).map((one) => [one.id, one.probability * (1 - beta)]));
  const texts = new Map([...token.top_p ?? [], ...token.top_q ?? [], ...token.top_residual ?? [], ...mine]
    .map(({ id, text }) => [id, text]));
  const rows = [...texts].flatMap(([id, text]) => {
    const gap = excess.get(id);
    const ofP = p(id) ?? derived(q(id), gap), ofQ = q(id) ?? derived(p(id), gap && -gap);
    return ofP === undefined || ofQ === undefined ? [] : [{ id, text, p: ofP, q: ofQ }];
  });
  const shown = largest(rows, mine.map(({ id }) => id));
  const left = (/** @type {number} */ whole, /** @type {(row: Share) => number} */ of) =>
    Math.max(0, shown.reduce((total, row) => total - of(row), whole));
  const rest = { p: left(1, (row) => row.p), q: left(1, (row) => row.q), both: left(beta, inBoth) };
  return { rows: shown, rest, beta };
}

/** The part of a token's chances that both distributions give. @param {Share} row */
export const inBoth = ({ p, q }) => Math.min(p, q);

/**
 * A token's chance in a recorded list, 0 where the list leaves no room for it; else unknown.
 * @param {Choice[] | undefined} choices
 * @param {Token[]} mine tokens that are recorded by themselves
 * @param {(token: Token) => number | undefined} of
 */
function listed(choices, mine, of) {
  const known = new Map((choices ?? []).map((one) => [one.id, one.probability]));
  for (const token of mine) {
    const value = of(token);
    if (value !== undefined) known.set(token.id, value);
  }
  const isWhole = choices !== undefined && choices.length < LISTED;
  return (/** @type {number} */ id) => known.get(id) ?? (isWhole ? 0 : undefined);
}

/**
 * A chance that follows from the other one; listed chances are rounded, so it is never called 0.
 * @type {(other?: number, gap?: number) => number | undefined}
 */
const derived = (other, gap) => (other === undefined || gap === undefined ? undefined : Math.max(FINEST, other + gap));

/**
 * The largest rows, and among them those of these tokens.
 * @param {Share[]} rows
 * @param {number[]} needed ids
 */
function largest(rows, needed) {
  const height = (/** @type {Share} */ { p, q, id }) => Math.max(p, q) + Number(needed.includes(id));
  const kept = [...rows].sort((a, b) => height(b) - height(a)).slice(0, MOST_ROWS);
  return kept.sort((a, b) => Math.max(b.p, b.q) - Math.max(a.p, a.q));
}

/**
 * What a round brought and cost, and the time that the target alone took for the same places.
 * @typedef {object} Balance
 * @property {number} tokens written in the round
 * @property {number} seconds of the round
 * @property {number} first place of its tokens in the text, from 1
 * @property {Round[]} passes of the target alone for the same places; empty if it did not get there
 * @property {number | null} alone seconds of those passes, or of as many average ones
 */

/**
 * @param {Round} round
 * @param {Trace} trace
 * @returns {Balance}
 */
export function balanceOf(round, { rounds }) {
  const before = textBefore(round, rounds).length;
  const tokens = round.emitted.length;
  const alone = rounds.filter((one) => one.lane === "baseline").sort((a, b) => a.index - b.index);
  const same = alone.slice(before, before + tokens);
  const passes = same.length === tokens ? same : [];
  const total = (/** @type {Round[]} */ list) => list.reduce((seconds, one) => seconds + secondsOf(one), 0);
  const mean = alone.length ? total(alone) / alone.length : null;
  return {
    tokens, seconds: secondsOf(round), first: before + 1, passes,
    alone: passes.length ? total(passes) : mean && mean * tokens,
  };
}

/**
 * The mean seconds of a pass of the target over one token, or null before there was one.
 * @param {Trace} trace
 */
export function singlePass({ rounds }) {
  const alone = rounds.filter((round) => round.lane === "baseline");
  return alone.length ? alone.reduce((total, one) => total + one.verify_seconds, 0) / alone.length : null;
}

/**
 * The tokens that its lane had written before a round.
 * @type {(round: Round, rounds: Round[]) => Token[]}
 */
export function textBefore({ lane, index }, rounds) {
  return rounds.filter((one) => one.lane === lane && one.index < index)
    .sort((a, b) => a.index - b.index).flatMap((one) => one.emitted);
}
