// One round as a sequence of steps, each with a sentence and a drawing.

import { ruleOf, writtenBy } from "specviz/facts/lanes.js";
import { balance, milliseconds, sharesOf, singlePass } from "specviz/explain/numbers.js";
import { bars, columns, marked, overlay, twoTexts, verdict } from "specviz/explain/pictures.js";
import { element } from "specviz/dom/dom.js";
import { tokensOf } from "specviz/race/token.js";
import {
  chance, drawsFirst, isDrawn, oddsAndDraw, reason, reasonBy, SERVER_DREW,
} from "specviz/words/reasons.js";
import { drafterKind, verdictKind } from "specviz/facts/vocabulary.js";
import { NEAR } from "specviz/words/verdict.js";
import { plural, visible } from "specviz/words/words.js";

/**
 * @typedef {object} Step
 * @property {string} chapter
 * @property {string} [part]  the part of the chapter
 * @property {string} sentence
 * @property {string} [note]  about a common misunderstanding
 * @property {Marked[]} tokens  of the round so far
 * @property {number} [at]  index of the token that the step is about
 * @property {"draft" | "verify" | "overhead"} until  the last part of the round's time that is done
 * @property {() => HTMLElement[]} picture
 */

/**
 * The facts of a round for its steps.
 * @typedef {object} RoundFacts
 * @property {Round} round
 * @property {Trace} trace
 * @property {Token[]} tokens  the drafted tokens, followed by the target's token
 * @property {Token} [targetToken]  missing if the text ended before it
 * @property {boolean} isGreedy
 * @property {boolean} isCopied  the guesses are copied from the text: q is 1
 * @property {string} rule  of the verdicts
 */

const AS_USED = "The verdict uses p and q, the probabilities after temperature, top-k and top-p.";
const DRAWN_FROM = "The token is drawn from p, the probabilities after temperature, top-k and top-p.";
const NOT_GOOD_ENOUGH = "Accepted does not mean “good enough”. A guess that the draft makes too often is "
  + "rejected exactly as often as needed, so the text follows p as if the target had written it alone.";
const SAME_LAW = "The blue part is accepted, the pink part is the residual. Together they are exactly p, so "
  + "the text keeps the target’s distribution. Its words may still differ from another run’s.";
const BY_REJECTION = "The server draws from p until a draw y is accepted, each with probability "
  + "max(0, 1 − q(y)/p(y)). The accepted draw follows exactly the part of p above q, without knowing all "
  + "of p.";
const UNSURE = "It stops after the last one: by its own estimate, the probability that all of them are "
  + "accepted is too small for one more guess to pay.";
const GREEDY = "Temperature 0: only first choices count, so there is no draw. The bars show each model’s "
  + "softmax at temperature 1.";

/** @type {(round: Round, trace: Trace) => Step[]} */
export function stepsOf(round, trace) {
  const { settings } = trace.header;
  const tokens = tokensOf(round);
  const facts = {
    round,
    trace,
    tokens,
    targetToken: tokens.slice(round.drafted.length)[0],
    isGreedy: settings.temperature === 0,
    isCopied: drafterKind(settings.drafter).certain,
    rule: ruleOf(settings),
  };
  const last = balance(round, trace, tokens);
  if (!round.drafted.length) return [pass(facts), draw(facts), last];
  return [guess(facts), check(facts), ...judge(facts), ...outcome(facts), last];
}

// Tokens of which the first `judged` have their verdict.
/** @type {(tokens: Token[], judged: number) => Marked[]} */
const upTo = (tokens, judged) =>
  tokens.map((token, i) => (i < judged ? token : { ...token, outcome: "pending" }));

/** @type {(facts: RoundFacts) => Step} */
function guess({ round, trace, isGreedy }) {
  const { drafted } = round;
  let sentence = guessed(trace.header, plural(drafted.length, "token"), isGreedy);
  if (endedUnsure(round, trace)) sentence += ` ${UNSURE}`;
  return {
    chapter: "Guess",
    sentence,
    note: isGreedy ? GREEDY : AS_USED,
    tokens: upTo(drafted, 0),
    until: "draft",
    picture: () => [columns(round, false)],
  };
}

// Whether the draft stopped early because it was unsure. A round that tries a draft again after rounds
// without drafts does not count.
/** @type {(round: Round, trace: Trace) => boolean} */
function endedUnsure({ drafted, lane, index }, { header: { settings }, rounds }) {
  const { drafter, gamma, gamma_policy: policy, max_new_tokens: maxTokens } = settings;
  if (policy !== "confidence" || !drafterKind(drafter).has_model || drafted.length >= gamma) return false;
  const before = rounds.filter((other) => other.lane === lane && other.index < index);
  if (before.length && !before[before.length - 1].drafted.length) return false;
  return writtenBy(before, lane).length + drafted.length + 1 < maxTokens;
}

// The origin of a round's guesses, in a sentence. count: their number in words.
/** @type {(header: Header, count: string, isGreedy: boolean) => string} */
function guessed({ settings, draft }, count, isGreedy) {
  const { guessed: drawn, guessed_greedy: greedy, who } = drafterKind(settings.drafter);
  const sentence = (isGreedy && greedy) || drawn;
  if (sentence) return sentence.replace("{count}", count);
  if (draft?.shared && isGreedy) {
    return "The draft’s tokens are not the target’s. It writes its likeliest text, which is split into the "
      + `target’s tokens: ${count}.`;
  }
  const among = draft?.shared ? "the tokens that the target also has" : "all tokens";
  const choice = isGreedy ? "takes its first choice" : `computes q for ${among}, draws one`;
  return `${who} ${count}, one after another: each time it ${choice}, and continues from it.`;
}

/**
 * The cost of judging in this round compared with a one-token pass, in words.
 * @param {number} tokens  in the pass
 * @param {number} verify  seconds
 * @param {number | null} single  seconds of a pass over one token, on average
 */
function priceOfChecking(tokens, verify, single) {
  const more = "It costs more with a mixture of experts or a long text.";
  if (single === null) {
    return `Checking is not free: this pass read ${plural(tokens, "token")} instead of one. ${more}`;
  }
  const usual = `a one-token pass takes ${milliseconds(single)} here on average, `
    + `and this one read ${plural(tokens, "token")}`;
  if (verify > single * (1 + NEAR)) return `Checking is not free: ${usual}. ${more}`;
  return `Checking cost nothing extra here: ${usual}. ${more}`;
}

/** @type {(facts: RoundFacts) => Step} */
function check({ round, trace }) {
  const { drafted, draft_seconds: draft, verify_seconds: verify } = round;
  const isOne = drafted.length === 1;
  const all = isOne ? "the guess" : `all ${drafted.length} guesses`;
  const guesses = isOne ? "The guess" : "The guesses";
  return {
    chapter: "Check",
    sentence: `The target reads ${all} in one pass, which gives its own p for every position at once. `
      + `${guesses} took ${milliseconds(draft)}, this pass ${milliseconds(verify)}.`,
    note: priceOfChecking(drafted.length + 1, verify, singlePass(trace)),
    tokens: upTo(drafted, 0),
    until: "verify",
    picture: () => [columns(round, true)],
  };
}

const MAX_SINGLE = 12; // verdicts of a round that each get a step
const FIRST = 3; // verdicts that get one at the beginning of a longer round
const LAST = 2; // and at its end

/**
 * One step for each judged position; of many, for the first and the last ones, and one step for all between.
 * @type {(facts: RoundFacts) => Step[]}
 */
function judge(facts) {
  const { round, tokens } = facts;
  const guesses = tokens.slice(0, round.drafted.length);
  const judged = round.drafted.filter(({ outcome }) => outcome === "accepted" || outcome === "rejected");
  const steps = judged.map((token, i) => ({
    chapter: "Judge",
    part: `position ${i + 1} of ${round.drafted.length}`,
    sentence: judgement(facts, token, i),
    note: i === 0 ? noteOn(facts, token) : undefined,
    tokens: upTo(guesses, i + 1),
    at: i,
    until: /** @type {const} */ ("verify"),
    picture: () => judgementDrawn(facts, token),
  }));
  if (judged.length <= MAX_SINGLE) return steps;
  const between = judgeBetween(facts, guesses, judged.length);
  return [...steps.slice(0, FIRST), between, ...steps.slice(-LAST)];
}

/**
 * The step for the verdicts without a step of their own, all of them accepted.
 * @type {(facts: RoundFacts, guesses: Token[], judged: number) => Step}
 */
function judgeBetween({ round }, guesses, judged) {
  const count = judged - FIRST - LAST;
  return {
    chapter: "Judge",
    part: `positions ${FIRST + 1} to ${FIRST + count} of ${round.drafted.length}`,
    sentence: `The next ${count} guesses are judged in the same way, and all are accepted.`,
    tokens: upTo(guesses, FIRST + count),
    until: "verify",
    picture: () => [],
  };
}

/** A common misunderstanding of verdicts. @type {(facts: RoundFacts, token: Token) => string} */
function noteOn({ isGreedy, rule }, token) {
  if (isGreedy) return GREEDY;
  if (isDrawn(token)) return SERVER_DREW;
  return verdictKind(rule).note || NOT_GOOD_ENOUGH;
}

/** The drawings of a verdict's comparison. @type {(facts: RoundFacts, token: Token) => HTMLElement[]} */
function judgementDrawn({ targetToken, isGreedy, rule }, token) {
  if (isGreedy) return [firstChoices(token)];
  if (drawsFirst(rule)) return [chances(token)];
  if (rule !== "token") return [verdict(token, rule), bothChances(token)];
  if (isDrawn(token)) return [verdict(token)];
  const shares = sharesOf(token, token.outcome === "rejected" ? targetToken : undefined);
  return [verdict(token), overlay(shares, token.id)];
}

/** @type {(facts: RoundFacts, token: Token, position: number) => string} */
function judgement({ round, isCopied, isGreedy, rule }, token, position) {
  // The target's token comes in a later step, unless the verdict compares with it.
  const roundSoFar = drawsFirst(rule) ? round : { ...round, emitted: [] };
  if (rule !== "token") return reasonBy(rule, token, { round: roundSoFar, position });
  if (!isCopied) return reason(token, { round: roundSoFar, position });
  const word = `“${visible(token.text)}”`;
  const isKept = token.outcome === "accepted";
  if (!isGreedy) {
    const { odds, draw: u } = oddsAndDraw(token);
    return `${word} is a copy, so q = 1 and it is accepted if the random draw u is below p = ${odds}; `
      + `u was ${u}, so it was ${token.outcome}.`;
  }
  if (isKept) return `The target’s first choice here is ${word} too, so the copied token is accepted.`;
  const first = `“${visible(token.top_p?.[0]?.text ?? "")}”`;
  return `The target’s first choice here is ${first}, so the copied ${word} is rejected.`;
}

/** @param {Token} token */
const chances = (token) => bars("target p", "p", token.top_p ?? [], { ...token, probability: token.p });

/** @param {Token} token */
const bothChances = (token) => element("div", "sx-pair",
  bars("draft q", "q", token.top_q ?? [], { ...token, probability: token.q }), chances(token));

/** @param {Token} token of a greedy run */
const firstChoices = (token) => element("div", "sx-pair",
  bars("draft, T = 1", "q", token.top_q ?? [], { ...token, probability: token.soft_q }), firstChoice(token));

/** @param {Token} token of a greedy run */
const firstChoice = (token) =>
  bars("target, T = 1", "p", token.top_p ?? [], { ...token, probability: token.soft_p });

/** The steps after the verdicts. @type {(facts: RoundFacts) => Step[]} */
function outcome(facts) {
  const { round, tokens, targetToken, trace } = facts;
  if (targetToken?.outcome === "bonus") return [bonus(facts)];
  const ignored = tokens.findIndex((token) => token.outcome === "ignored");
  const endReason = trace.end?.reasons[round.lane];
  const steps = targetToken ? [correct(facts)] : [];
  if (ignored < 0) return steps;
  const sentence = targetToken
    ? ignoredAfter(facts)
    : reason(tokens[ignored], { round, position: ignored, endReason });
  steps.push({
    chapter: targetToken ? "Correct" : "End",
    part: targetToken ? "ignored guesses" : undefined,
    sentence,
    tokens,
    at: ignored,
    until: "verify",
    picture: () => (targetToken ? [twoTexts(tokens)] : []),
  });
  return steps;
}

/** @param {RoundFacts} facts */
function ignoredAfter({ round }) {
  const rejected = round.drafted.find((token) => token.outcome === "rejected");
  const count = round.drafted.filter((token) => token.outcome === "ignored").length;
  const last = count === 1 ? "guess" : `${count} guesses`;
  const are = count === 1 ? "It is" : "They are";
  return `The last ${last} continued “${visible(rejected?.text ?? "")}”, which was not written. `
    + `${are} ignored, and the next round begins after the written text.`;
}

/** @type {(facts: RoundFacts) => Step} */
function correct({ round, tokens, targetToken, isGreedy, rule }) {
  const token = /** @type {Token} */ (targetToken);
  const at = tokens.length - 1;
  const law = isDrawn(token) ? BY_REJECTION : SAME_LAW;
  return {
    chapter: "Correct",
    sentence: reasonBy(rule, token, { round, position: at }),
    note: rule === "token" && !isGreedy ? law : undefined,
    tokens: tokens.map((other) => (other.outcome === "ignored" ? { ...other, outcome: "pending" } : other)),
    at,
    until: "verify",
    picture: () => correction(token, round, rule, isGreedy),
  };
}

// The drawings of a corrected token's distribution, as far as it is known.
/** @type {(token: Token, round: Round, rule: string, isGreedy: boolean) => HTMLDivElement[]} */
function correction(token, round, rule, isGreedy) {
  const { p = 0, q = 0, top_residual: left = [] } = token;
  if (rule !== "token") {
    const share = left.find(({ id }) => id === token.id)?.probability;
    const name = `${verdictKind(rule).left}, scaled up to 1`;
    return [left.length ? bars(name, "left", left, { ...token, probability: share }) : chances(token)];
  }
  if (isDrawn(token)) {
    return [chances(token), bars("draft q", "q", token.top_q ?? [], { ...token, probability: q })];
  }
  if (isGreedy) return [firstChoice(token)];
  const rejected = round.drafted.find((other) => other.outcome === "rejected") ?? token;
  const part = 1 - (rejected.beta ?? 0);
  const both = overlay(sharesOf(rejected, token), token.id, true);
  const title = `only in p, ${chance(part)}, scaled up to 1`;
  const onlyInP = bars(title, "left", left, { ...token, probability: (p - q) / part });
  return [element("div", "sx-correct", both, onlyInP)];
}

/** @type {(facts: RoundFacts) => Step} */
function bonus({ round, tokens, targetToken }) {
  const token = /** @type {Token} */ (targetToken);
  const at = tokens.length - 1;
  const positions = round.drafted.length + 1;
  const which = positions === 2 ? "second" : "last";
  const chosen = { ...token, probability: token.soft_p ?? token.p };
  return {
    chapter: "Bonus",
    sentence: reason(token, { round, position: at }),
    note: `The pass read ${plural(positions, "token")}: the last one of the text and every guess. `
      + `It gives one p after each of them, so the ${which} one is there already.`,
    tokens,
    at,
    until: "verify",
    picture: () => [bars(`target p at position ${positions}`, "p", token.top_p ?? [], chosen)],
  };
}

/** A round without guesses: the pass of the target. @type {(facts: RoundFacts) => Step} */
function pass({ round, trace, targetToken, isGreedy }) {
  const why = round.lane === "baseline" ? "" : `${drafterKind(trace.header.settings.drafter).unguessed} `;
  const time = milliseconds(round.verify_seconds);
  return {
    chapter: "Pass",
    sentence: `${why}One pass of the target over the last token gives p for the next: ${time}.`,
    note: isGreedy ? GREEDY : DRAWN_FROM,
    tokens: [],
    until: "verify",
    picture: () => [bars("target p", "p", targetToken?.top_p ?? [])],
  };
}

/** @type {(facts: RoundFacts) => Step} */
function draw({ round, tokens, targetToken, isGreedy }) {
  const p = targetToken?.soft_p ?? targetToken?.p;
  const word = `“${visible(targetToken?.text ?? "")}”`;
  return {
    chapter: "Draw",
    sentence: isGreedy
      ? `The first choice is written: ${word}. The target was ${chance(p)} sure of it.`
      : `One token is drawn from p: ${word}, which has p = ${chance(p)}.`,
    tokens: marked(round, tokens),
    at: 0,
    until: "verify",
    picture: () => {
      const chosen = targetToken && { ...targetToken, probability: p };
      return [bars("target p", "p", targetToken?.top_p ?? [], chosen)];
    },
  };
}
