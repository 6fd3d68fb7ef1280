// What is said of a run as a whole: its ratio, what that means, and whether it can be trusted. While a
// run goes on this is "so far", without a verdict; once it is over it stays, whatever is played again.

import {
  ALONE, draftedLanes, hasBaseline, isSeveral, lanesOf, ruleOf, twoOf, twoRounds,
} from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { isOver } from "specviz/facts/trace.js";
import { secondsOf, uncertainty } from "specviz/facts/uncertainty.js";
import { verdictKind } from "specviz/facts/vocabulary.js";
import { watchedDetail, watchedVerdict } from "specviz/words/watched.js";
import { comparison, fixed, percent, plural } from "specviz/words/words.js";

export const NEAR = 0.03; // a speed-up that differs by less is as good as the same
export const MIN_ROUNDS = 10; // with drafts, from which a ratio and what follows from it is told
const UNSETTLED = `Fewer than ${MIN_ROUNDS} rounds with drafts decide little.`;
const TOO_SHORT = "A ratio needs two rounds and two tokens in each lane.";
const BUSY = "The machine was busy: this ratio is uncertain.";

/** The effect of a rule that is not exact, after a colon. @param {string} rule */
export const changes = (rule) => `the verdict ${verdictKind(rule).label} changes the target’s distribution.`;

/**
 * Whether a run came to an end of its own: nobody stopped it, and nothing broke it off.
 * @param {Pick<Trace, "end">} trace
 */
export const isFinished = ({ end }) => end !== null && !Object.values(end.reasons).includes("stopped");

/**
 * Whether the ratio of a run is told: of one that has come to its end, and of any other, which is still
 * written or was stopped, from some rounds on.
 * @type {(trace: Pick<Trace, "end">, m: Pick<Metrics, "rounds">) => boolean}
 */
export const isRatioTold = (trace, m) => isFinished(trace) || m.rounds >= MIN_ROUNDS;

/**
 * The rounds that a run is judged by: all of them once it is over, also while it is played again.
 * @type {(shown: Round[], trace: Trace) => Round[]}
 */
export const settled = (shown, trace) => (isOver(trace) ? trace.rounds : shown);

/**
 * The verdict in one sentence that goes on from the ratio, as plain when speculation loses. A run
 * that is not finished has none, nor has one of a few rounds.
 * @param {Metrics} m
 * @param {Trace} trace
 * @param {number | null} differAt the first token that differs between the lanes
 * @param {boolean} [isFinal] whether the figures are of a finished run
 */
export function verdict(m, trace, differAt, isFinal = false) {
  if (trace.header.source) return watchedVerdict(m, trace.header, isFinal);
  if (!hasBaseline(trace.header)) return "A text with drafts, without a race.";
  if (m.speedup === null) {
    if (isFinal) return "Too short to compare.";
    if (!isOver(trace)) return "Both lanes are writing.";
    return trace.end ? "Stopped too early to compare." : "Interrupted too early to compare.";
  }
  const isServed = trace.header.target.form === "server";
  const speed = isServed
    ? "the speed of the target alone, per request"
    : "the speed of the target alone";
  if (trace.isInterrupted) return `${speed}, until it was interrupted.`;
  if (!isFinal) return `${speed}, so far.`;
  if (m.drafted === 0) return `${speed}: without drafts both lanes are the same loop.`;
  const rule = ruleOf(trace.header.settings);
  if (!verdictKind(rule).exact) return `${speed}, but with another text: ${changes(rule)}`;
  if (m.rounds < MIN_ROUNDS) return `${speed}.`;
  if (m.speedup < 1 - NEAR) return `${speed}: here speculation is slower.`;
  if (m.speedup < 1 + NEAR) return `${speed}: as good as even.`;
  const isSame = trace.header.settings.temperature === 0 && differAt === null;
  return isSame ? `${speed}, with the same text.` : `${speed}.`;
}

/**
 * Two figures in words, and the cause if a finished run was slower with drafts.
 * @param {Metrics} m
 * @param {boolean} [isFinal] whether the figures are of a finished run
 */
export function detail(m, isFinal = false) {
  if (!m.tau || m.speedup === null) return isFinal ? TOO_SHORT : UNSETTLED;
  const figures = figuresIn(m);
  if (m.drafted === 0 || !isFinal || m.rounds < MIN_ROUNDS || m.speedup >= 1 - NEAR) return figures;
  return `${figures} ${causeOfLoss(m)}`;
}

/** The figures of one lane in words. @param {Metrics} m */
function figuresIn(m) {
  const { accepted, rejected } = m.counts;
  const judged = accepted + rejected;
  const acceptance = judged ? `${accepted} of ${plural(judged, "judged guess")} accepted, ` : "";
  return `${acceptance}${fixed(m.tau, 1)} tokens per pass.`;
}

/** @type {(m: Metrics, rounds: Round[], trace: Trace, isFinal: boolean) => string} */
function detailOf(m, rounds, trace, isFinal) {
  if (trace.header.source) return watchedDetail(m, rounds, trace);
  return hasBaseline(trace.header) ? detail(m, isFinal) : figuresIn(m);
}

/** @param {Metrics} m */
function causeOfLoss(m) {
  if (m.c !== null && m.alpha !== null && m.c >= m.alpha) {
    return `A guess costs ${fixed(m.c, 2)} of a pass: too much.`;
  }
  const wasted = m.drafted ? (m.drafted - m.counts.accepted) / m.drafted : 0;
  return `${percent(wasted)} of all guesses are wasted.`;
}

/**
 * Whether rounds drafted another number than gamma: a policy chose it, or there was no match.
 * @param {Pick<Settings, "gamma" | "gamma_policy">} settings
 * @param {number} drafted tokens per round, on average
 */
export function adapts({ gamma, gamma_policy: policy }, drafted) {
  return (policy ?? "fixed") !== "fixed" || drafted < 0.8 * gamma;
}

/** @param {Uncertainty | null} estimate */
export const isImpossible = (estimate) => estimate?.doubt === "price";

/**
 * The reason why the ratio is uncertain, in a sentence or two; empty if it is not.
 * @param {Metrics} m
 * @param {Uncertainty | null} estimate
 * @param {boolean} isOver whether the figures are of a run that is over
 */
export function doubt(m, estimate, isOver) {
  if (!estimate?.doubt) return "";
  if (isImpossible(estimate)) {
    const price = `${fixed(estimate.price, 2)} target passes`;
    return `${BUSY} It came out as ${fixed(m.speedup, 2)}, as if a round cost ${price}: `
      + "less than the one pass that it has in it.";
  }
  if (!isOver) return "";
  if (estimate.doubt === "short") return "Few rounds: this ratio is uncertain.";
  if (estimate.doubt === "outside") {
    return "This ratio is uncertain: it lies outside of what most parts of the run give.";
  }
  if (estimate.doubt === "spread") return `${BUSY} Parts of the run give very different ratios.`;
  const { speculative, baseline } = estimate.delays;
  const worse = baseline > speculative ? "The target alone" : "The lane with drafts";
  const lost = percent(Math.max(speculative, baseline));
  return `${BUSY} ${worse} took ${lost} longer than its passes usually take.`;
}

/** Two quartiles. @param {{ low: number, high: number }} spread */
export const range = ({ low, high }) => `${fixed(low, 2)} to ${fixed(high, 2)}`;

/**
 * ratio: the figure, or "?" where there is none to tell. times: the same for those who listen.
 * beside: what is small under it.
 * @typedef {Record<"ratio" | "times" | "verdict" | "detail" | "beside" | "doubt", string>} Headline
 */

/**
 * @param {Round[]} shown  all lanes
 * @param {Trace} race
 * @param {LaneName} chosen  the lane with drafts that it is about
 * @param {Map<LaneName, number | null>} ratios  of all lanes with drafts
 * @returns {Headline}
 */
export function headlineOf(shown, race, chosen, ratios) {
  const trace = twoOf(race, chosen);
  const rounds = twoRounds(settled(shown, race), chosen);
  const m = measure(rounds, trace.header);
  const estimate = uncertainty(rounds);
  const isWritten = isOver(race);
  const isFinal = isFinished(race);
  const isUnfair = isImpossible(estimate);
  const isTold = isRatioTold(race, m);
  const ratio = isUnfair || !isTold ? null : m.speedup;
  const figures = isTold ? m : { ...m, speedup: null };
  const spread = isWritten && ratio !== null ? estimate?.spread : null;
  const parts = spread ? `parts of the run: ${range(spread)}` : "";
  const headline = {
    ratio: ratio === null ? "?" : fixed(ratio, 2),
    times: ratio === null ? "" : `${fixed(ratio, 2)} times `,
    verdict: isUnfair ? "No fair ratio." : verdict(figures, trace, comparison(rounds).differAt, isFinal),
    detail: detailOf(figures, rounds, trace, isFinal),
    beside: replayOf(shown, race, chosen) || remainder(race) || parts,
    doubt: isTold ? doubt(m, estimate, isWritten) : "",
  };
  if (!isSeveral(race.header)) return headline;
  return { ...headline, ...ofSeveral(headline, trace.header.settings, chosen, ratios, ratio) };
}

// The ratio so far of a run that is played again; empty at its end, and while it is written.
/** @type {(shown: Round[], race: Trace, chosen: LaneName) => string} */
function replayOf(shown, race, chosen) {
  if (!isOver(race) || shown.length === race.rounds.length) return "";
  const rounds = twoRounds(shown, chosen);
  const m = measure(rounds);
  const isTold = m.rounds >= MIN_ROUNDS && m.speedup !== null && !isImpossible(uncertainty(rounds));
  return isTold ? `replay: ${fixed(m.speedup, 2)}× so far` : "replay";
}

const LONG = 10; // seconds: who waits longer wants to know for how long
const ROUGH = 20; // seconds, from which on an estimate is told in steps of five

/** About how long a long run will still take; empty for others, and once it is over. @param {Trace} race */
function remainder(race) {
  const time = isOver(race) ? null : remaining(race);
  if (!time || time.taken + time.left < LONG || !race.rounds.length) return "";
  const step = time.left > ROUGH ? 5 : 1;
  return `about ${Math.max(1, step * Math.ceil(time.left / step))} s left`;
}

const MIN_OF_LANE = 3; // of a lane, from which its pace is known
const BEHIND = 4; // rounds that a lane's clock may be behind another's: one that is further behind has ended

/**
 * Seconds until the last lane is done if every lane writes as many tokens as it may, and seconds that the
 * lanes have taken until now; they take turns on one machine, so both are sums over lanes. Null while too
 * little is known. A text may end earlier.
 * @param {Pick<Trace, "header" | "rounds">} trace
 * @returns {{ taken: number, left: number } | null}
 */
export function remaining({ header, rounds }) {
  if (header.source) return null; // a server's lanes run side by side
  let taken = 0;
  let left = 0;
  const lanes = lanesOf(header).map((name) => ({ name, own: rounds.filter(({ lane }) => lane === name) }));
  if (lanes.some(({ own }) => own.length < MIN_OF_LANE)) return null;
  const newest = Math.max(...lanes.map(({ own }) => own[own.length - 1].clock));
  for (const { name, own } of lanes) {
    const { clock } = own[own.length - 1];
    const tokens = own.reduce((sum, { emitted }) => sum + emitted.length, 0);
    const settings = header.lanes[name === ALONE ? draftedLanes(header)[0] : name];
    const longest = Math.max(...own.map(secondsOf));
    const hasEnded = newest - clock > BEHIND * longest;
    taken += clock;
    if (!hasEnded) left += (Math.max(0, settings.max_new_tokens - tokens) * clock) / Math.max(1, tokens);
  }
  return { taken, left };
}

/**
 * The headline of a race of named lanes says which lane it is about, and which is the fastest.
 * @param {Headline} headline
 * @param {Settings} settings of this lane
 * @param {LaneName} chosen
 * @param {Map<LaneName, number | null>} ratios
 * @param {number | null} ratio
 */
function ofSeveral(headline, { gamma, drafter }, chosen, ratios, ratio) {
  const name = drafter === "none" || chosen.includes("gamma") ? chosen : `${chosen}, γ ${gamma}`;
  const speeds = [...ratios].flatMap(([lane, value]) => (value === null ? [] : [{ lane, value }]));
  speeds.sort((one, other) => other.value - one.value);
  /** @type {typeof speeds[number] | undefined} */
  const best = speeds[0];
  if (ratio === null) {
    const verdict = headline.verdict.replace("Both lanes", "All lanes");
    return { times: "", verdict, detail: headline.detail };
  }
  return {
    times: "",
    verdict: `${name}: ${headline.times}${headline.verdict}`,
    detail: best ? `${fastest(best, chosen, ratios.size)} ${headline.detail}` : headline.detail,
  };
}

/**
 * The fastest lane, in a sentence.
 * @param {{ lane: LaneName, value: number }} best
 * @param {LaneName} chosen
 * @param {number} count of lanes with drafts
 */
function fastest(best, chosen, count) {
  if (best.lane === chosen && count > 1) return `The fastest of ${count} lanes with drafts.`;
  return `The fastest is ${best.lane}, ${fixed(best.value, 2)} times.`;
}
