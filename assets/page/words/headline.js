// What is said of a run as a whole: its ratio, what that means, and whether it can be trusted. While a
// run goes on this is "so far", without a verdict; once it is over it stays, whatever is played again.

import { twoOf, twoRounds } from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { uncertainty } from "specviz/facts/uncertainty.js";
import { detail, doubt, FEWEST_ROUNDS, isFinished, isImpossible, range, settled, verdict } from "specviz/words/verdict.js";
import { watchedDetail } from "specviz/words/watched.js";
import { comparison, fixed } from "specviz/words/words.js";

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
  const trace = twoOf(race, chosen), rounds = twoRounds(settled(shown, race), chosen);
  const m = measure(rounds, trace.header), found = uncertainty(rounds);
  const isOver = race.end !== null, isFinal = isFinished(race), isUnfair = isImpossible(found);
  const isTold = isOver || m.rounds >= FEWEST_ROUNDS;
  const ratio = isUnfair || !isTold ? null : m.speedup;
  const told = isTold ? m : { ...m, speedup: null };
  const said = {
    ratio: ratio === null ? "?" : fixed(ratio, 2),
    times: ratio === null ? "" : `${fixed(ratio, 2)} times `,
    verdict: isUnfair ? "No fair ratio." : verdict(told, trace, comparison(rounds).differAt, isFinal),
    detail: trace.header.source ? watchedDetail(m, rounds, trace) : detail(told, isFinal),
    beside: replayOf(shown, race, chosen)
      || (isOver && found?.spread && ratio !== null ? `parts of the run: ${range(found.spread)}` : ""),
    doubt: doubt(m, found, isOver),
  };
  return race.header.lanes ? { ...said, ...ofSeveral(said, trace.header.settings, chosen, ratios, ratio) } : said;
}

/**
 * How far a run has come when it is played again; empty at its end, and while it is written.
 * @type {(shown: Round[], race: Trace, chosen: LaneName) => string}
 */
function replayOf(shown, race, chosen) {
  if (race.end === null || shown.length === race.rounds.length) return "";
  const rounds = twoRounds(shown, chosen), m = measure(rounds);
  const isTold = m.rounds >= FEWEST_ROUNDS && m.speedup !== null && !isImpossible(uncertainty(rounds));
  return isTold ? `replay: ${fixed(m.speedup, 2)}× so far` : "replay";
}

/**
 * The headline of a race of named lanes says which lane it is about, and which is the fastest.
 * @param {Headline} said
 * @param {Settings} settings of this lane
 * @param {LaneName} chosen
 * @param {Map<LaneName, number | null>} ratios
 * @param {number | null} ratio
 */
function ofSeveral(said, { gamma, drafter }, chosen, ratios, ratio) {
  const whole = drafter === "none" || chosen.includes("gamma") ? chosen : `${chosen}, γ ${gamma}`;
  const known = [...ratios].flatMap(([lane, value]) => (value === null ? [] : [{ lane, value }]));
  const best = known.sort((one, other) => other.value - one.value)[0];
  const isBest = best?.lane === chosen && ratios.size > 1;
  const about = ratio === null || !best ? "" : isBest ? `The fastest of ${ratios.size} lanes with drafts. `
    : `The fastest is ${best.lane}, ${fixed(best.value, 2)} times. `;
  return {
    times: "",
    verdict: ratio === null ? said.verdict.replace("Both lanes", "All lanes") : `${whole}: ${said.times}${said.verdict}`,
    detail: about + said.detail,
  };
}
