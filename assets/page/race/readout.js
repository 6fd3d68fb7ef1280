// Headline, verdict, figures, bars, legend: all that is said about the shown rounds.

import { find } from "specviz/dom/dom.js";
import { ALONE, draftedLanes, hasBaseline, lanesOf, twoOf, twoRounds } from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { changedLanes } from "specviz/words/rules.js";
import { uncertainty } from "specviz/facts/uncertainty.js";
import { CHANGES, detail, doubt, isImpossible, range, verdict } from "specviz/words/verdict.js";
import { GUESSER, watchedDetail } from "specviz/words/watched.js";
import { bonusOf, comparison, duration, fixed, guesser, plural, sameness, written } from "specviz/words/words.js";

/** @import { Standing } from "specviz/race/lane-grid.js" */
/** @import { Metrics } from "specviz/facts/metrics.js" */

const DRAWN = "All lanes draw at random from the same distribution, so their texts may differ.";

/**
 * What the readout is about: some rounds of a trace, and their metrics.
 * @typedef {{ rounds: Round[], trace: Trace, metrics: Metrics }} Measured
 */

export class Readout {
  #root;
  #mostGamma;

  /**
   * @param {HTMLElement} root
   * @param {number} mostGamma the longest draft that is looked at for a better one
   */
  constructor(root, mostGamma) {
    this.#root = root;
    this.#mostGamma = mostGamma;
  }

  /**
   * @param {Round[]} all  the shown rounds
   * @param {Trace} race
   * @param {LaneName} chosen  the lane that the figures are about
   * @param {Map<LaneName, Standing>} standings
   */
  show(all, race, chosen, standings) {
    const rounds = twoRounds(all, chosen), trace = twoOf(race, chosen);
    const metrics = measure(rounds, trace.header);
    const isOver = race.end !== null && all.length === race.rounds.length;
    this.#showRatio({ rounds, trace, metrics }, comparison(rounds).differAt, isOver);
    this.#set("[data-identical]", samenessOf(all, race, chosen));
    const { alpha, efficiency, tau, tau_predicted, c } = metrics;
    for (const [name, value] of Object.entries({ alpha, efficiency, tau, tau_predicted, c })) {
      this.#set(`[data-metric="${name}"]`, fixed(value, 2));
    }
    for (const [outcome, count] of Object.entries({ untold: 0, ...metrics.counts })) {
      this.#set(`[data-count="${outcome}"]`, String(count));
    }
    find(this.#root, "[data-untold]").hidden = !metrics.counts.untold;
    this.#set("[data-own]", bonusOf(rounds, metrics.counts.bonus));
    this.#showLanes(all, race, isOver);
    if (race.header.lanes) this.#nameLane(chosen, trace.header.settings, standings);
  }

  /**
   * What each lane has written, and its bar.
   * @param {Round[]} rounds
   * @param {Trace} trace
   * @param {boolean} isOver
   */
  #showLanes(rounds, trace, isOver) {
    const reasons = isOver ? trace.end?.reasons ?? {} : {};
    const longest = rounds.reduce((most, { clock }) => Math.max(most, clock), 0);
    for (const name of lanesOf(trace.header)) {
      const drafted = name === ALONE ? draftedLanes(trace.header)[0] : name;
      const metrics = measure(rounds, trace.header, drafted);
      const guesses = name === ALONE || metrics.counts.untold ? null : metrics.drafted;
      this.#set(`[data-sums="${CSS.escape(name)}"]`, written(metrics.tokens[name], guesses, reasons[name]));
      this.#showBar(name, { rounds, trace, metrics }, longest);
    }
  }

  /**
   * The headline of a race of named lanes says which lane it is about, and which is the fastest.
   * @param {LaneName} chosen
   * @param {Settings} settings of this lane
   * @param {Map<LaneName, Standing>} standings
   */
  #nameLane(chosen, { gamma, drafter }, standings) {
    const speedup = standings.get(chosen)?.metrics.speedup ?? null;
    const verdict = find(this.#root, "[data-verdict]").textContent ?? "";
    const [best] = [...standings].find(([, standing]) => standing.isBest) ?? [];
    const whole = drafter === "none" || chosen.includes("gamma") ? chosen : `${chosen}, γ ${gamma}`;
    const isBest = best === chosen && standings.size > 1;
    const times = speedup === null ? "" : `${fixed(speedup, 2)} times `;
    this.#set("[data-times]", "");
    this.#set("[data-verdict]", speedup === null ? "All lanes are off." : `${whole}: ${times}${verdict}`);
    const ratio = best === undefined ? null : standings.get(best)?.metrics.speedup;
    const said = isBest ? `The fastest of ${standings.size} lanes with drafts. `
      : best === undefined ? "" : `The fastest is ${best}, ${fixed(ratio, 2)} times. `;
    this.#set("[data-detail]", said + find(this.#root, "[data-detail]").textContent);
    find(this.#root, ".sv-legend").dataset.of = chosen;
  }

  /**
   * Another run is shown.
   * @param {Trace} trace
   */
  begin({ header }) {
    if (!header.lanes) this.#set("[data-guesser]", header.source ? GUESSER : guesser(header.settings));
  }

  /**
   * The ratio, what it means, and whether it can be trusted: one that cannot be is no headline.
   * @param {Measured} measured
   * @param {number | null} differAt
   * @param {boolean} isOver
   */
  #showRatio({ rounds, trace, metrics }, differAt, isOver) {
    const found = uncertainty(rounds);
    const shown = isImpossible(found) ? null : metrics.speedup;
    const why = doubt(metrics, found, isOver);
    this.#set("[data-headline]", fixed(shown, 2));
    this.#set("[data-times]", shown === null ? "" : `${fixed(shown, 2)} times `);
    this.#set("[data-verdict]", isImpossible(found) ? "No fair ratio." : verdict(metrics, trace, differAt, isOver));
    this.#set("[data-detail]", trace.header.source ? watchedDetail(metrics, rounds, trace)
      : detail(metrics, rounds, trace.header, this.#mostGamma, isOver));
    this.#set("[data-spread]", found?.spread && shown !== null ? `quartiles ${range(found.spread)}` : "");
    this.#set("[data-doubt]", why);
    this.#root.toggleAttribute("data-doubted", why !== "");
  }

  /**
   * @param {string} selector
   * @param {string} text
   */
  #set(selector, text) {
    const node = find(this.#root, selector);
    if (node.textContent !== text) node.textContent = text;
  }

  /**
   * @param {LaneName} name
   * @param {Measured} measured
   * @param {number} longest  the most that any lane's clock says, in seconds
   */
  #showBar(name, measured, longest) {
    const { trace, metrics } = measured;
    const bar = find(this.#root, `[data-bar="${CSS.escape(name)}"]`);
    const tokens = metrics.tokens[name], length = Math.max(1, trace.header.settings.max_new_tokens);
    find(bar, "i").style.transform = `scaleX(${Math.min(1, tokens / length)})`;
    const speed = metrics.tokens_per_second[name];
    const pace = speed === null ? "–" : Math.round(speed);
    find(bar, ".sv-value").textContent = `${plural(tokens, "token")} · ${duration(metrics.seconds[name], longest)} · ${pace} tok/s`;
    markFinish(find(bar, "u"), name, measured);
  }
}

/**
 * On a lane's bar: where it stood when the other lane was done.
 * @param {HTMLElement} mark
 * @param {LaneName} name
 * @param {Measured} measured
 */
function markFinish(mark, name, measured) {
  const { rounds, trace, metrics } = measured;
  if ((name === ALONE && trace.header.lanes) || !hasBaseline(trace.header)) { // there is no other, or which would it be?
    mark.hidden = true;
    return;
  }
  const other = name === ALONE ? draftedLanes(trace.header)[0] : ALONE;
  const then = rounds.filter((r) => r.lane === name && r.clock <= metrics.seconds[other]);
  const tokens = then.reduce((total, round) => total + round.emitted.length, 0);
  mark.hidden = !isDone(other, measured) || metrics.tokens[name] - tokens < 2;
  mark.style.left = `${(100 * tokens) / trace.header.settings.max_new_tokens}%`;
  mark.title = `${plural(tokens, "token")} when the other lane was done`;
}

/**
 * Whether the lanes wrote the same; of named lanes in one sentence, if all did.
 * @param {Round[]} all
 * @param {Trace} race
 * @param {LaneName} chosen
 */
function samenessOf(all, race, chosen) {
  const found = (/** @type {LaneName} */ lane) => comparison(twoRounds(all, lane));
  const said = sameness(found(chosen), twoOf(race, chosen));
  const { lanes, settings } = race.header;
  if (!lanes || !said) return said;
  if (settings.temperature !== 0) {
    const changed = changedLanes(race.header), others = changed.filter((lane) => lane !== chosen);
    const also = others.length ? ` ${others.join("; ")}: ${CHANGES}` : "";
    return changed.length ? `${chosen}: ${said}${also}` : DRAWN;
  }
  const parted = Object.keys(lanes).filter((lane) => found(lane).differAt !== null);
  if (!parted.length) return `Every lane: ${said}`;
  return `${chosen}: ${said}${parted.some((lane) => lane !== chosen) ? ` Other text than the baseline: ${parted.join("; ")}.` : ""}`;
}

/**
 * @param {LaneName} name
 * @param {Measured} measured
 */
function isDone(name, { rounds, trace, metrics }) {
  if (metrics.tokens[name] >= trace.header.settings.max_new_tokens) return true;
  const count = (/** @type {Round[]} */ list) => list.filter((round) => round.lane === name).length;
  return trace.end !== null && count(rounds) === count(trace.rounds);
}
