// The headline of a run: its ratio, its verdict, and whether the ratio can be trusted. While a run goes on,
// the ratio is "so far" and has no verdict; once the run is over it stays, also during a replay.

import {
  ALONE, draftedLanes, hasBaseline, isSeveral, lanesOf, ruleOf, twoOf, twoRounds,
} from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { isOver } from "specviz/facts/trace.js";
import { secondsOf, uncertainty } from "specviz/facts/uncertainty.js";
import { verdictKind } from "specviz/facts/vocabulary.js";
import { watchedDetail, watchedVerdict } from "specviz/words/watched.js";
import { comparison, fixed, percent, plural } from "specviz/words/words.js";

export const NEAR = 0.03; // speed-ups that differ by less count as equal
export const MIN_ROUNDS = 10; // rounds with drafts before a ratio and its verdict are shown
const UNSETTLED = `Fewer than ${MIN_ROUNDS} rounds with drafts prove little.`;
const TOO_SHORT = "A ratio needs two rounds and two tokens in each lane.";
const BUSY = "The machine was busy: this ratio is uncertain.";

/** The effect of a rule that is not exact, after a colon. @param {string} rule */
export const changes = (rule) => `the verdict ${verdictKind(rule).label} changes the target’s distribution.`;

/**
 * Whether a run reached its end: nobody stopped it, and nothing interrupted it.
 * @param {Pick<Trace, "end">} trace
 */
export const isFinished = ({ end }) => end !== null && !Object.values(end.reasons).includes("stopped");

/**
 * Whether the ratio of a run is shown: if the run is finished, or else after enough rounds.
 * @type {(trace: Pick<Trace, "end">, m: Pick<Metrics, "rounds">) => boolean}
 */
export const isRatioShown = (trace, m) => isFinished(trace) || m.rounds >= MIN_ROUNDS;

/**
 * The rounds that the headline is about: all of them once the run is over, also during a replay.
 * @type {(shown: Round[], trace: Trace) => Round[]}
 */
export const settled = (shownRounds, trace) => (isOver(trace) ? trace.rounds : shownRounds);

/**
 * The verdict in one sentence that continues the ratio, also if speculation loses. An unfinished run and a
 * run of a few rounds have no verdict.
 * @param {Metrics} m
 * @param {Trace} trace
 * @param {number | null} differAt the first token that differs between the lanes
 * @param {boolean} [isFinal] whether the figures are of a finished run
 */
export function verdict(m, trace, differAt, isFinal = false) {
  if (trace.header.source) return watchedVerdict(m, trace.header, isFinal);
  if (!hasBaseline(trace.header)) return "Written with drafts, without a race.";
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
  if (!verdictKind(rule).exact) return `${speed}, but with a different text: ${changes(rule)}`;
  if (m.rounds < MIN_ROUNDS) return `${speed}.`;
  if (m.speedup < 1 - NEAR) return `${speed}: here speculation is slower.`;
  if (m.speedup < 1 + NEAR) return `${speed}: about even.`;
  const isSame = trace.header.settings.temperature === 0 && differAt === null;
  return isSame ? `${speed}, with the same text.` : `${speed}.`;
}

/**
 * Two figures in words, and the cause if drafts made a finished run slower.
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
 * Whether the number of drafts differs from gamma: a policy chose it, or there was no match.
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
    return `${BUSY} It came out as ${fixed(m.speedup, 2)}, as if a round cost ${price}, `
      + "less than the one pass that it contains.";
  }
  if (!isOver) return "";
  if (estimate.doubt === "short") return "Few rounds: this ratio is uncertain.";
  if (estimate.doubt === "outside") {
    return "This ratio is uncertain: most parts of the run give a different one.";
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
 * ratio: the figure, or "?" if there is none. times: the same for screen readers. beside: the small line
 * under it.
 * @typedef {Record<"ratio" | "times" | "verdict" | "detail" | "beside" | "doubt", string>} Headline
 */

/**
 * @param {Round[]} shownRounds  of all lanes
 * @param {Trace} race
 * @param {LaneName} chosen  the lane with drafts that it is about
 * @param {Map<LaneName, number | null>} ratios  of all lanes with drafts
 * @returns {Headline}
 */
export function headlineOf(shownRounds, race, chosen, ratios) {
  const trace = twoOf(race, chosen);
  const rounds = twoRounds(settled(shownRounds, race), chosen);
  const m = measure(rounds, trace.header);
  const estimate = uncertainty(rounds);
  const isWritten = isOver(race);
  const isFinal = isFinished(race);
  const isUnfair = isImpossible(estimate);
  const isRatioKnown = isRatioShown(race, m);
  const ratio = isUnfair || !isRatioKnown ? null : m.speedup;
  const figures = isRatioKnown ? m : { ...m, speedup: null };
  const spread = isWritten && ratio !== null ? estimate?.spread : null;
  const parts = spread ? `parts of the run: ${range(spread)}` : "";
  const headline = {
    ratio: ratio === null ? "?" : fixed(ratio, 2),
    times: ratio === null ? "" : `${fixed(ratio, 2)} times `,
    verdict: isUnfair ? "No fair ratio." : verdict(figures, trace, comparison(rounds).differAt, isFinal),
    detail: detailOf(figures, rounds, trace, isFinal),
    beside: replayOf(shownRounds, race, chosen) || remainder(race) || parts,
    doubt: isRatioKnown ? doubt(m, estimate, isWritten) : "",
  };
  if (!isSeveral(race.header)) return headline;
  return { ...headline, ...ofSeveral(headline, trace.header.settings, chosen, ratios, ratio) };
}

// The ratio so far during a replay; empty at its end, and in a live run.
/** @type {(shownRounds: Round[], race: Trace, chosen: LaneName) => string} */
function replayOf(shownRounds, race, chosen) {
  if (!isOver(race) || shownRounds.length === race.rounds.length) return "";
  const rounds = twoRounds(shownRounds, chosen);
  const m = measure(rounds);
  const isRatioKnown = m.rounds >= MIN_ROUNDS && m.speedup !== null && !isImpossible(uncertainty(rounds));
  return isRatioKnown ? `replay: ${fixed(m.speedup, 2)}× so far` : "replay";
}

const LONG = 10; // seconds; shorter waits need no estimate
const ROUGH = 20; // seconds; longer estimates are rounded to steps of five

/** The estimated remaining time of a long run; empty for other runs and at the end. @param {Trace} race */
function remainder(race) {
  const time = isOver(race) ? null : remaining(race);
  if (!time || time.taken + time.left < LONG || !race.rounds.length) return "";
  const step = time.left > ROUGH ? 5 : 1;
  return `about ${Math.max(1, step * Math.ceil(time.left / step))} s left`;
}

const MIN_OF_LANE = 3; // rounds of a lane before its pace is known
const BEHIND = 4; // rounds that a lane's clock may be behind another's; a lane further behind has ended

/**
 * Seconds that the lanes have taken so far, and seconds until the last lane is done if every lane writes up
 * to its token limit. Lanes alternate on one machine, so both are sums over lanes. Null while too little is
 * known. A text may end earlier.
 * @param {Pick<Trace, "header" | "rounds">} trace
 * @returns {{ taken: number, left: number } | null}
 */
export function remaining({ header, rounds }) {
  if (header.source) return null; // a server's lanes run side by side
  let taken = 0;
  let left = 0;
  const lanes = lanesOf(header)
    .map((name) => ({ name, laneRounds: rounds.filter(({ lane }) => lane === name) }));
  if (lanes.some(({ laneRounds }) => laneRounds.length < MIN_OF_LANE)) return null;
  const newest = Math.max(...lanes.map(({ laneRounds }) => laneRounds[laneRounds.length - 1].clock));
  for (const { name, laneRounds } of lanes) {
    const { clock } = laneRounds[laneRounds.length - 1];
    const tokens = laneRounds.reduce((sum, { emitted }) => sum + emitted.length, 0);
    const settings = header.lanes[name === ALONE ? draftedLanes(header)[0] : name];
    const longest = Math.max(...laneRounds.map(secondsOf));
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
  speeds.sort((a, b) => b.value - a.value);
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
  return `The fastest is ${best.lane}, ${fixed(best.value, 2)}×.`;
}
