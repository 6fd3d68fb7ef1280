// Common misunderstandings, each as a question about a recorded run: guess first, then see the answer.
// Every figure of an answer is computed from its run. Each pair names the recordings for its questions.

import { explain } from "specviz/facts/costs.js";
import { measure } from "specviz/facts/metrics.js";
import { chance } from "specviz/words/reasons.js";
import { uncertainty } from "specviz/facts/uncertainty.js";
import { NEAR, range } from "specviz/words/verdict.js";
import { comparison, fixed, percent, plural, visible } from "specviz/words/words.js";

/**
 * A question about the shown run, with a second run for comparison if it needs one.
 * @typedef {object} AboutRun
 * @property {string[]} answers
 * @property {(run: Trace, beside: Trace) => string} ask
 * @property {(run: Trace, beside: Trace) => Answer} reveal
 */

/** @param {Trace} trace */
const figures = ({ rounds, header }) => measure(rounds, header);

/** @param {Trace} trace */
const costs = ({ rounds, header }) => explain(rounds, header, 1)?.costs;

/** The ratio of a run with its spread. @param {Trace} trace */
function ratio(trace) {
  const spread = uncertainty(trace.rounds)?.spread;
  const figure = `${fixed(figures(trace).speedup, 2)}×`;
  return spread ? `${figure} (parts of the run: ${range(spread)})` : figure;
}

/** @param {Trace} trace */
const drafts = ({ rounds }) => rounds.flatMap(({ lane, drafted }) => (lane === "baseline" ? [] : drafted));

// The index of one of three answers: higher, lower, or about the same.
/** @type {(value: number, than: number) => 0 | 1 | 2} */
function placeOf(value, than) {
  if (value > than * (1 + NEAR)) return 0;
  return value < than * (1 - NEAR) ? 1 : 2;
}

/** The surest of the rejected guesses, in a sentence; empty if none was. @param {Token[]} judged */
function surestRejected(judged) {
  const rejected = judged.filter(({ outcome }) => outcome === "rejected");
  const token = rejected.sort((a, b) => (b.p ?? 0) - (a.p ?? 0))[0];
  if (!token) return "";
  const { p = 0, q = 1, u = 0 } = token;
  return `“${visible(token.text)}” was rejected although the target gave it p = ${fixed(p, 2)}: `
    + `the draft gave it q = ${fixed(q, 2)}, so it is accepted only if the random draw is below `
    + `p/q = ${fixed(p / q, 2)}, and the draw was ${fixed(u, 2)}. `;
}

/** The least likely of the accepted guesses, in a sentence; empty if none was. @param {Token[]} judged */
function leastLikelyAccepted(judged) {
  const accepted = judged.filter(({ outcome }) => outcome === "accepted");
  const token = accepted.sort((a, b) => (a.p ?? 0) - (b.p ?? 0))[0];
  if (!token) return "";
  return `“${visible(token.text)}” was accepted although the target gave it ${chance(token.p ?? 0)}. `;
}

/** The target's likeliest first token. @param {Trace} trace */
const firstChoice = ({ rounds }) => rounds.find(({ lane }) => lane === "baseline")?.emitted[0]?.top_p?.[0];

/** @param {Trace} trace */
const temperatureOf = ({ header }) => header.settings.temperature;

// The probability of one token at two temperatures, in a sentence.
/** @type {(hot: Trace, usual: Trace) => string} */
function chancesOf(hot, usual) {
  const first = firstChoice(usual);
  const other = firstChoice(hot);
  if (!first || first.id !== other?.id) return "";
  return `After this prompt the target’s first choice, “${visible(first.text)}”, `
    + `has p = ${fixed(first.probability, 2)} at temperature ${temperatureOf(usual)} `
    + `and ${fixed(other.probability, 2)} at ${temperatureOf(hot)}. `;
}

/** @type {Record<string, AboutRun>} */
export const QUESTIONS = {
  "good-enough": {
    ask: () => "The target finds a guess quite likely. Will it be accepted?",
    answers: [
      "Yes, if it is good enough",
      "Not always: p, q and a draw decide",
      "Only if it is the target’s first choice",
    ],
    reveal(run) {
      const judged = drafts(run).filter(({ p, q, u }) => ![p, q, u].includes(undefined));
      const examples = surestRejected(judged) + leastLikelyAccepted(judged);
      const why = `${examples}Only this makes every token as frequent as with the target alone.`;
      return { right: 1, why };
    },
  },
  "one-guess": {
    ask: () => "One guess per round, γ = 1: faster than the target alone?",
    answers: ["Yes, faster", "No, slower", "Just as fast"],
    reveal(run) {
      const { speedup, tau, alpha } = figures(run);
      const price = fixed(costs(run)?.price, 2);
      return {
        right: placeOf(speedup ?? 1, 1),
        why: `A round writes one or two tokens: here τ = ${fixed(tau, 2)}, since ${percent(alpha)} of the `
          + `guesses are accepted. It costs ${price} target passes. That makes ${ratio(run)}.`,
      };
    },
  },
  "judged-only": {
    answers: ["Yes, that is α", "No, α is higher"],
    reveal(run) {
      const { counts, alpha, efficiency } = figures(run);
      const judged = counts.accepted + counts.rejected;
      return {
        right: placeOf(alpha ?? 0, efficiency ?? 0) === 0 ? 1 : 0,
        why: `α counts only judged guesses: ${counts.accepted} of ${judged} were accepted, `
          + `α = ${fixed(alpha, 2)}. The other ${plural(counts.ignored, "guess")} came after a rejected one: `
          + "drafted, but never judged.",
      };
    },
    ask: (run) => {
      const { drafted, counts, efficiency } = figures(run);
      const share = fixed(efficiency, 2);
      return `Of ${drafted} drafted tokens ${counts.accepted} were accepted: ${share}. Is that α?`;
    },
  },
  "long-drafts": {
    answers: ["Faster", "Slower", "Just as fast"],
    reveal(run, beside) {
      const long = figures(run);
      const short = figures(beside);
      const price = fixed(costs(run)?.price, 2);
      const shortPrice = fixed(costs(beside)?.price, 2);
      return {
        right: placeOf(long.speedup ?? 1, short.speedup ?? 1),
        why: `A round yields ${fixed(long.tau, 2)} tokens instead of ${fixed(short.tau, 2)}, `
          + `but it costs ${price} target passes instead of ${shortPrice}, `
          + `because only ${percent(long.efficiency)} of the guesses are used: `
          + `${ratio(run)} instead of ${ratio(beside)}.`,
      };
    },
    ask(run, beside) {
      const gammas = `γ = ${run.header.settings.gamma} instead of ${beside.header.settings.gamma}`;
      const taus = `${fixed(figures(run).tau, 2)} instead of ${fixed(figures(beside).tau, 2)}`;
      return `With ${gammas}, τ is ${taus}. Faster or slower than before?`;
    },
  },
  "judging-costs": {
    answers: ["Yes, τ times as fast", "No, checking is not free"],
    ask: (run) => "Guesses are copied from the text at almost no cost, "
      + `and a pass yields τ = ${fixed(figures(run).tau, 2)} tokens. Is that τ times as fast?`,
    reveal(run) {
      const { judging = 1, draft = 0, verify = 0, overhead = 0, gamma = 0 } = costs(run) ?? {};
      const { tau, speedup } = figures(run);
      const guessing = chance(draft / (draft + verify + overhead));
      return {
        right: placeOf(tau ?? 1, speedup ?? 1) === 0 ? 1 : 0,
        why: `Guessing took ${guessing} of the time, but a pass over ${fixed(gamma, 1)} guesses, `
          + `with the round’s overhead, costs ${fixed(judging, 2)} passes of the target alone. `
          + `So it is ${ratio(run)}, not ${fixed(tau, 2)}×. `
          + "With a mixture of experts or a long text judging can cost much more.",
      };
    },
  },
  "after-temperature": {
    reveal(run, beside) {
      const alphaOf = (/** @type {Trace} */ trace) =>
        `${fixed(figures(trace).alpha, 2)} at ${temperatureOf(trace)}`;
      return {
        right: 1,
        why: `${chancesOf(run, beside)}Both p and q are taken after temperature, top-k and top-p, `
          + `so these change the verdicts too: α is ${alphaOf(beside)} and ${alphaOf(run)}.`,
      };
    },
    ask: (run) =>
      `Temperature ${temperatureOf(run)}: which probabilities are compared when a guess is judged?`,
    answers: ["The models’ own", "Those after temperature, of both"],
  },
  "same-letters": {
    reveal(run, beside) {
      const { differAt, compared } = comparison(run.rounds);
      const greedy = comparison(beside.rounds);
      const here = differAt === null
        ? `Here all ${plural(compared, "token")} happen to be the same`
        : `Here they diverge after ${plural(differAt, "token")}`;
      const ending = greedy.differAt === null
        ? `all ${plural(greedy.compared, "token")} are the same`
        : `they are the same for ${plural(greedy.differAt, "token")}`;
      return {
        right: differAt === null ? 0 : 1,
        why: `${here}: each lane draws at random. The method keeps the probability of every text, not one `
          + `particular text. At temperature 0 nothing is drawn: in another recording ${ending}.`,
      };
    },
    ask: (run) => "The method is lossless. "
      + `Do both lanes write the same text at temperature ${temperatureOf(run)}?`,
    answers: ["Yes, letter by letter", "No, but with the same chances"],
  },
};
