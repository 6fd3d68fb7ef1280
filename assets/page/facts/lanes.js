// The lanes of a race by name, and the view of one lane with the baseline as a race of two.

import { asEnd, asHeader, asRound } from "specviz/facts/trace.js";
import { labelIn, verdictKind } from "specviz/facts/vocabulary.js";

export const WITH_DRAFTS = "speculative"; // the lane with drafts in a race of two
export const ALONE = "baseline"; // the target alone, in every race

/** Each trace's views on one of its lanes. @type {WeakMap<Trace, Map<LaneName, Trace>>} */
const views = new WeakMap();
const renamed = /** @type {WeakMap<Round, Round>} */ (new WeakMap());

/** The label of a lane. @param {LaneName} name */
export const labelOf = (name) => labelIn("lanes", name);

/** The lanes with drafts, in order. @param {Header} [header] */
export const draftedLanes = (header) => Object.keys(header?.lanes ?? { [WITH_DRAFTS]: null });

/** Whether its lanes with drafts are named by their differences. @param {Header} [header] */
export const isSeveral = (header) => draftedLanes(header).join() !== WITH_DRAFTS;

/**
 * All lanes, the baseline last; a watched server may have none, and a text without a race has none.
 * @param {Header} [header]
 */
export const lanesOf = (header) => [...draftedLanes(header), ...(hasBaseline(header) ? [ALONE] : [])];

/** The tokens that a lane has written. @type {(rounds: Round[], name: LaneName) => Token[]} */
export const writtenBy = (rounds, name) =>
  rounds.filter(({ lane }) => lane === name).flatMap(({ emitted }) => emitted);

/** @param {Header} [header] */
export const hasBaseline = (header) => !header?.prefill_seconds || ALONE in header.prefill_seconds;

/** The differences between lanes, by the name in the control, and the setting of each. */
const COMPARED = /** @type {const} */ ([
  { name: "drafters", field: "drafter" },
  { name: "gammas", field: "gamma" },
  { name: "policies", field: "gamma_policy" },
  { name: "verdicts", field: "verdict" },
]);

/**
 * The difference between the lanes with drafts of a race, as a value of its control; null if the control has
 * no such choice.
 * @param {Header} header
 */
export function comparedIn(header) {
  const { lanes } = header;
  if (!isSeveral(header)) return "one";
  const differ = (/** @type {"drafter" | "gamma" | "gamma_policy" | "verdict"} */ name) =>
    new Set(Object.values(lanes).map((settings) => settings[name])).size > 1;
  const compared = COMPARED.filter(({ field }) => differ(field));
  return compared.length === 1 ? compared[0].name : null;
}

/**
 * The lanes whose text follows another distribution than the target's.
 * @param {Pick<Header, "lanes">} header
 */
export function changedLanes({ lanes }) {
  const isChanged = (/** @type {Settings} */ settings) =>
    settings.drafter !== "none" && !verdictKind(ruleOf(settings)).exact;
  return Object.keys(lanes).filter((name) => isChanged(lanes[name]));
}

/**
 * The verdict rule of a run. In a greedy run all rules accept the same drafts, so it counts as "token".
 * @param {Settings} settings
 */
export const ruleOf = ({ temperature, verdict }) => (temperature === 0 ? "token" : verdict ?? "token");

/**
 * The rounds of one lane of a race, as the lane "speculative", and those of the baseline.
 * @type {(rounds: Round[], name: LaneName) => Round[]}
 */
export function twoRounds(rounds, name) {
  if (name === WITH_DRAFTS) return rounds;
  return rounds.filter(({ lane }) => lane === name || lane === ALONE).map(asOurs);
}

/** @param {Round} round */
function asOurs(round) {
  if (round.lane === ALONE) return round;
  const known = renamed.get(round) ?? asRound({ ...round, lane: WITH_DRAFTS });
  renamed.set(round, known);
  return known;
}

/**
 * The view of a race with one lane and the baseline; it grows with the race. A race of two is its own view.
 * @type {(trace: Trace, name: LaneName) => Trace}
 */
export function twoOf(trace, name) {
  const { lanes } = trace.header;
  if (name === WITH_DRAFTS || !Object.hasOwn(lanes, name)) return trace;
  const known = views.get(trace) ?? new Map();
  views.set(trace, known);
  if (!known.has(name)) known.set(name, viewOf(trace, name));
  return known.get(name);
}

/** @type {(trace: Trace, name: LaneName) => Trace} */
function viewOf(trace, name) {
  const { header, schema } = trace;
  const two = (/** @type {Record<LaneName, any> | null | undefined} */ values) =>
    values && { [WITH_DRAFTS]: values[name], [ALONE]: values[ALONE] };
  let rounds = /** @type {Round[]} */ ([]);
  let count = 0; // rounds of the race that `rounds` was made from
  return {
    schema,
    header: asHeader({
      ...header,
      lanes: { [WITH_DRAFTS]: header.lanes[name] },
      drafts: { [WITH_DRAFTS]: header.drafts[name] },
      lane_threads: two(header.lane_threads),
      prefill_seconds: two(header.prefill_seconds) ?? {},
    }),
    get rounds() {
      if (count !== trace.rounds.length) {
        rounds = twoRounds(trace.rounds, name);
        count = trace.rounds.length;
      }
      return rounds;
    },
    get isInterrupted() {
      return trace.isInterrupted;
    },
    get end() {
      const { end } = trace;
      if (!end) return end;
      const lanes = end.lanes && { [WITH_DRAFTS]: end.lanes[name] };
      return asEnd({ reasons: two(end.reasons) ?? {}, lanes });
    },
  };
}
