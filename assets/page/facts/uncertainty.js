// The uncertainty of a measured speed-up: the same as specviz/runs/uncertainty.py.

import { measure, readsPrompt } from "specviz/facts/metrics.js";

/** @typedef {"price" | "delay" | "spread" | "outside" | "short"} Doubt */

/** @typedef {{ median: number, low: number, high: number }} Spread  a median with its quartiles */

/**
 * @typedef {object} Uncertainty
 * @property {number} price  of a round, in rounds of the target alone
 * @property {Record<LaneName, number>} delays  the share by which rounds took longer than usual
 * @property {Spread | null} spread  of the speed-up over parts of the run; null with too few rounds
 * @property {Doubt | null} doubt
 */

const MIN_PRICE = 0.9;
const MAX_DELAY = 0.25;
const MAX_SPREAD = 0.3;
const WINDOW = 3; // rounds of each lane, at least
const MAX_WINDOWS = 8;
const MIN_WINDOWS = 3;

/** Null without a speed-up. @type {(rounds: Round[]) => Uncertainty | null} */
export function uncertainty(rounds) {
  const { speedup } = measure(rounds);
  if (speedup === null || rounds.some(readsPrompt)) return null; // two servers share no passes
  const drafted = rounds.filter(({ lane }) => lane === "speculative");
  const alone = rounds.filter(({ lane }) => lane === "baseline");
  const usual = { speculative: usualSeconds(drafted), baseline: usualSeconds(alone) };
  const delays = { speculative: delay(drafted, usual.speculative), baseline: delay(alone, usual.baseline) };
  const mean = (/** @type {Round[]} */ list) => total(list) / list.length;
  const price = mean(drafted) / mean(alone);
  const undelayed = (speedup * (1 + delays.speculative)) / (1 + delays.baseline);
  const ratios = windows(drafted, alone).map(([draftedPart, alonePart]) =>
    (undelayed * (1 + delay(alonePart, usual.baseline))) / (1 + delay(draftedPart, usual.speculative)));
  const spread = ratios.length >= MIN_WINDOWS ? spreadOf(ratios) : null;
  return { price, delays, spread, doubt: doubtOf(speedup, price, delays, spread) };
}

/** The median and the quartiles of one or more values. @type {(values: number[]) => Spread} */
export function spreadOf(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (/** @type {number} */ share) => {
    const position = share * (sorted.length - 1);
    const below = Math.floor(position);
    const above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (position - below);
  };
  return { median: at(0.5), low: at(0.25), high: at(0.75) };
}

/** The total seconds of a round. @param {Round} round */
export const secondsOf = (round) => round.draft_seconds + round.verify_seconds + round.overhead_seconds;

/** @param {Round[]} rounds */
const total = (rounds) => rounds.reduce((sum, round) => sum + secondsOf(round), 0);

/** The median seconds of a round, by the number of its drafted tokens. @param {Round[]} rounds */
function usualSeconds(rounds) {
  const secondsByWidth = /** @type {Map<number, number[]>} */ (new Map());
  for (const round of rounds) {
    const width = round.drafted.length;
    secondsByWidth.set(width, [...secondsByWidth.get(width) ?? [], secondsOf(round)]);
  }
  return new Map([...secondsByWidth].map(([width, seconds]) => [width, spreadOf(seconds).median]));
}

/** @type {(rounds: Round[], usual: Map<number, number>) => number} */
function delay(rounds, usual) {
  const expected = rounds.reduce((sum, round) => sum + (usual.get(round.drafted.length) ?? 0), 0);
  return expected ? total(rounds) / expected - 1 : 0;
}

// Both lanes in the same number of consecutive parts.
/** @type {(drafted: Round[], alone: Round[]) => Round[][][]} */
function windows(drafted, alone) {
  const count = Math.min(MAX_WINDOWS, Math.floor(Math.min(drafted.length, alone.length) / WINDOW));
  const part = (/** @type {Round[]} */ rounds, /** @type {number} */ i) =>
    rounds.slice(Math.floor((rounds.length * i) / count), Math.floor((rounds.length * (i + 1)) / count));
  return Array.from({ length: count }, (_, i) => [part(drafted, i), part(alone, i)]);
}

/**
 * @param {number} speedup
 * @param {number} price
 * @param {Record<LaneName, number>} delays
 * @param {Spread | null} spread
 * @returns {Doubt | null}
 */
function doubtOf(speedup, price, delays, spread) {
  if (price < MIN_PRICE) return "price";
  if (Math.max(...Object.values(delays)) > MAX_DELAY) return "delay";
  if (spread === null) return "short";
  if (spread.high - spread.low > MAX_SPREAD * spread.median) return "spread";
  return speedup < spread.low || speedup > spread.high ? "outside" : null;
}
