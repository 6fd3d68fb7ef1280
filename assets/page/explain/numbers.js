// One round in numbers, each from the trace or a sum or difference of such numbers; its time to scale; and
// its last step: the round's tokens, its cost, and what the target alone wrote in that time.

import { element } from "specviz/dom/dom.js";
import { chip, marked } from "specviz/explain/pictures.js";
import { secondsOf } from "specviz/facts/uncertainty.js";
import { fixed, plural, visible } from "specviz/words/words.js";

const LISTED = 5; // entries of a recorded list; a shorter one has all tokens with p > 0
const MAX_ROWS = 6;
const MAX_STEPS = 16; // draft steps with a bar of their own; more would be narrower than their borders
const FINEST = 1e-9; // less than the rounding of a listed probability

/**
 * A token whose probabilities in both distributions are known.
 * @typedef {{ id: number, text: string, p: number, q: number }} Share
 */

/**
 * The two distributions of a judged position, side by side. `rest` sums all tokens without a row;
 * `both` is the part of it that p and q have in common. With it the rows add up to p, q and beta.
 * @typedef {{ rows: Share[], rest: { p: number, q: number, both: number }, beta: number }} Shares
 */

/**
 * @param {Token} token  a judged draft of a run with sampling
 * @param {Token} [replacement]  the token that the target wrote instead
 * @returns {Shares}
 */
export function sharesOf(token, replacement) {
  const mine = replacement?.outcome === "corrected" ? [token, replacement] : [token];
  const beta = token.beta ?? 0;
  const p = listed(token.top_p, mine, ({ p: value }) => value);
  const q = listed(token.top_q, mine, ({ q: value }) => value);
  // The residual is recorded scaled up to 1; with it, one listed probability gives the other.
  const residual = token.top_residual ?? [];
  const excess = new Map(residual.map(({ id, probability }) => [id, probability * (1 - beta)]));
  const texts = new Map([...token.top_p ?? [], ...token.top_q ?? [], ...residual, ...mine]
    .map(({ id, text }) => [id, text]));
  const rows = [...texts].flatMap(([id, text]) => {
    const gap = excess.get(id);
    const ofP = p(id) ?? derived(q(id), gap);
    const ofQ = q(id) ?? derived(p(id), gap && -gap);
    return ofP === undefined || ofQ === undefined ? [] : [{ id, text, p: ofP, q: ofQ }];
  });
  const largestRows = largest(rows, mine.map(({ id }) => id));
  // The rest of a sum without the rows.
  const left = (/** @type {number} */ sum, /** @type {(row: Share) => number} */ of) =>
    Math.max(0, largestRows.reduce((rest, row) => rest - of(row), sum));
  const rest = {
    p: left(1, (row) => row.p),
    q: left(1, (row) => row.q),
    both: left(beta, (row) => Math.min(row.p, row.q)),
  };
  return { rows: largestRows, rest, beta };
}

/**
 * A function from a token's id to its probability: from a recorded list, or 0 if the list is complete
 * without it; else undefined.
 * @param {Choice[] | undefined} choices
 * @param {Token[]} mine  tokens whose probabilities are recorded separately
 * @param {(token: Token) => number | undefined} of
 */
function listed(choices, mine, of) {
  const chances = new Map((choices ?? []).map((choice) => [choice.id, choice.probability]));
  for (const token of mine) {
    const value = of(token);
    if (value !== undefined) chances.set(token.id, value);
  }
  const isWhole = choices !== undefined && choices.length < LISTED;
  return (/** @type {number} */ id) => chances.get(id) ?? (isWhole ? 0 : undefined);
}

// A probability that follows from the other one; listed probabilities are rounded, so it is never 0.
/** @type {(other?: number, gap?: number) => number | undefined} */
function derived(other, gap) {
  if (other === undefined || gap === undefined) return undefined;
  return Math.max(FINEST, other + gap);
}

// The largest rows, always with those of the needed ids.
/** @type {(rows: Share[], needed: number[]) => Share[]} */
function largest(rows, needed) {
  const height = (/** @type {Share} */ { p, q, id }) => Math.max(p, q) + Number(needed.includes(id));
  const top = [...rows].sort((a, b) => height(b) - height(a)).slice(0, MAX_ROWS);
  return top.sort((a, b) => Math.max(b.p, b.q) - Math.max(a.p, a.q));
}

/** @typedef {ReturnType<typeof balanceOf>} Balance */

/**
 * The tokens and the time of a round, and the time of the target alone for the same positions.
 * @param {Round} round
 * @param {Trace} trace
 */
export function balanceOf(round, { rounds }) {
  const before = textBefore(round, rounds).length;
  const tokens = round.emitted.length;
  const alone = rounds.filter((other) => other.lane === "baseline").sort((a, b) => a.index - b.index);
  const samePositions = alone.slice(before, before + tokens);
  const passes = samePositions.length === tokens ? samePositions : [];
  const total = (/** @type {Round[]} */ list) => list.reduce((sum, other) => sum + secondsOf(other), 0);
  const mean = alone.length ? total(alone) / alone.length : null;
  return {
    tokens,
    seconds: secondsOf(round),
    first: before + 1, // the position of its first token in the text
    passes, // of the target alone for the same positions; empty if it did not get there
    // Seconds of those passes, or of as many average passes.
    alone: passes.length ? total(passes) : mean && mean * tokens,
  };
}

/**
 * The mean seconds of a one-token pass of the target; null if there was none yet.
 * @param {Trace} trace
 */
export function singlePass({ rounds }) {
  const alone = rounds.filter((round) => round.lane === "baseline");
  return alone.length ? alone.reduce((total, round) => total + round.verify_seconds, 0) / alone.length : null;
}

/**
 * The tokens that its lane had written before a round.
 * @type {(round: Round, rounds: Round[]) => Token[]}
 */
export function textBefore({ lane, index }, rounds) {
  return rounds.filter((other) => other.lane === lane && other.index < index)
    .sort((a, b) => a.index - b.index).flatMap((other) => other.emitted);
}

const NOT_FASTER = "More tokens in a round are not always faster: each guess costs time, accepted or not.";

/** @param {number} seconds */
export function milliseconds(seconds) {
  const value = 1000 * seconds;
  let digits = 0;
  if (value < 0.1) digits = 3;
  else if (value < 100) digits = 2;
  return `${fixed(value, digits)}\u00a0ms`;
}

/**
 * The time of a round to scale: a narrow bar for each draft step, or one for many steps, and a wide one for
 * the pass.
 * @param {Round} round
 * @param {number} fullWidth seconds that fill the width
 * @param {"draft" | "verify" | "overhead"} [until]  the last part that is done
 */
export function times({ drafted, draft_seconds: draft, verify_seconds: verify, overhead_seconds: overhead },
  fullWidth, until = "overhead") {
  const steps = drafted.length > MAX_STEPS ? 1 : drafted.length;
  const step = /** @type {[string, number]} */ (["draft", draft / steps]);
  /** @type {[string, number][]} */
  const parts = [...Array.from({ length: steps }, () => step), ["verify", verify], ["overhead", overhead]];
  const order = ["draft", "verify", "overhead"];
  return element("span", "sx-times", ...parts.map(([name, seconds], i) =>
    element("i", name + (order.indexOf(name) > order.indexOf(until) ? " is-ahead" : ""), {
      style: { "--i": i, width: `${(100 * seconds) / fullWidth}%` },
    })));
}

/**
 * Both clocks on one scale: the round, and the target alone for as many tokens.
 * @param {Round} round
 * @param {Balance} balance
 * @param {Marked[]} written in the round
 */
function clocks(round, { tokens, seconds, passes, alone }, written) {
  const fullWidth = Math.max(seconds, alone ?? 0);
  const isAlone = round.lane === "baseline";
  const words = element("p", "", ...written.flatMap((token) => [chip(token), " "]));
  const name = isAlone ? "target alone" : "with drafts";
  const clockOfRound = clock(name, times(round, fullWidth), seconds, tokens, words);
  if (alone === null || isAlone) return element("dl", "sx-clocks", ...clockOfRound);
  const wide = (/** @type {number} */ part) => `${(100 * part) / fullWidth}%`;
  const pieces = passes.length
    ? passes.map((pass) => ({ seconds: secondsOf(pass), text: pass.emitted[0]?.text }))
    : Array.from({ length: tokens }, () => ({ seconds: alone / tokens, text: undefined }));
  const bar = element("span", "sx-times", ...pieces.map((piece) => {
    const words = piece.text === undefined ? [] : [element("span", "", visible(piece.text))];
    return element("i", "alone", { style: { width: wide(piece.seconds) } }, ...words);
  }));
  const end = element("u", "", { style: { left: wide(seconds) } }); // of the round
  if (seconds < alone) bar.append(end);
  return element("dl", "sx-clocks", ...clockOfRound, ...clock("target alone", bar, alone, tokens));
}

/**
 * @param {string} name
 * @param {HTMLElement} bar
 * @param {number} seconds
 * @param {number} tokens
 * @param {...HTMLElement} below
 */
function clock(name, bar, seconds, tokens, ...below) {
  const count = element("small", "", ` ${plural(tokens, "token")}`);
  const time = element("b", "", milliseconds(seconds), count);
  return [element("dt", "", name), element("dd", "", bar, time, ...below)];
}

/** The last step of every round. @type {(round: Round, trace: Trace, tokens: Token[]) => Step} */
export function balance(round, trace, tokens) {
  const sums = balanceOf(round, trace);
  const { drafted } = round;
  const count = (/** @type {Outcome} */ kind) => drafted.filter(({ outcome }) => outcome === kind).length;
  const accepted = count("accepted");
  const judged = accepted + count("rejected");
  const rates = `α counts only judged guesses, here ${accepted} of ${judged}; `
    + `accepted over drafted is ${accepted} of ${drafted.length}.`;
  return {
    chapter: "Balance",
    sentence: balanceSentence(round, sums),
    note: drafted.length ? `${rates} ${NOT_FASTER}` : undefined,
    tokens: marked(round, tokens),
    until: "overhead",
    picture: () => [clocks(round, sums, marked(round, round.emitted))],
  };
}

/** @type {(round: Round, balance: Balance) => string} */
function balanceSentence({ lane, drafted }, { tokens, seconds, first, passes, alone }) {
  const spent = `${plural(tokens, "token")} in ${milliseconds(seconds)}`;
  if (lane === "baseline") return `${spent}: the target alone needs one whole pass for each token.`;
  if (alone === null) return `${spent}. The target alone has not written anything yet.`;
  if (!drafted.length) return `${spent}: without guesses a round is one pass, as in the other lane.`;
  const ratio = alone / seconds;
  const result = ratio >= 1 ? `this round was ${fixed(ratio, 2)} times as fast`
    : `this round was slower, ${fixed(ratio, 2)} times the speed`;
  if (!passes.length) {
    return `${spent}. On average the target alone takes ${milliseconds(alone)} for as many: ${result}.`;
  }
  const which = tokens === 1 ? `its token ${first}` : `its tokens ${first} to ${first + tokens - 1}`;
  const written = plural(byThen(passes, seconds), "token");
  return `${spent}. The target alone took ${milliseconds(alone)} for ${which}: ${result}. `
    + `In the time of this round it wrote ${written}.`;
}

// Count the passes that were done after this time.
/** @type {(passes: Round[], seconds: number) => number} */
function byThen(passes, seconds) {
  let left = seconds;
  return passes.filter((pass) => (left -= secondsOf(pass)) >= 0).length;
}
