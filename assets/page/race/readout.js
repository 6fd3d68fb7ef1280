// Headline, verdict, figures, heads of the lanes, legend: all words and numbers about the shown rounds.

import { find, findAll } from "specviz/dom/dom.js";
import {
  ALONE, changedLanes, draftedLanes, hasBaseline, isSeveral, lanesOf, ruleOf, twoOf, twoRounds,
} from "specviz/facts/lanes.js";
import { measure, unguessed } from "specviz/facts/metrics.js";
import { isOver } from "specviz/facts/trace.js";
import { changes, headlineOf, settled } from "specviz/words/verdict.js";
import { comparison, duration, fixed, perSecond, plural, sameness, written } from "specviz/words/words.js";

const DRAWN = "All draw from one distribution: texts may differ.";

/**
 * The rounds and the trace that the readout shows, and their metrics.
 * @typedef {{ rounds: Round[], trace: Trace, metrics: Metrics }} Measured
 */

export class Readout {
  #root;
  #charts;
  /** @type {Map<string, HTMLElement>} */
  #nodes = new Map(); // by selector, since looking them up among many tokens is slow

  /**
   * @param {HTMLElement} root
   * @param {LiveCharts} charts
   */
  constructor(root, charts) {
    this.#root = root;
    this.#charts = charts;
  }

  /** Another run is shown. */
  begin() {
    this.#nodes.clear();
  }

  /** Show no run, only this sentence. @param {string} verdict */
  clear(verdict) {
    this.begin();
    this.#showHeadline({ ratio: "?", times: "", verdict, detail: "", beside: "", doubt: "" }, false);
    this.#set("[data-identical]", "");
    for (const count of findAll(this.#root, "[data-count]", HTMLElement)) count.textContent = "0";
    this.#charts.clear();
  }

  /**
   * Update every figure from the same rounds: an outdated one would contradict the others.
   * @param {Round[]} all  the shown rounds
   * @param {Trace} race
   * @param {LaneName} chosen  the lane that the figures are about
   * @param {Map<LaneName, Standing>} standings
   */
  show(all, race, chosen, standings) {
    const figures = new Map(draftedLanes(race.header).map((name) => [name, measure(all, race.header, name)]));
    const metrics = figures.get(chosen) ?? measure(all, race.header);
    const isWhole = isOver(race) && all.length === race.rounds.length;
    const ratios = new Map([...standings].map(([lane, { ratio }]) => [lane, ratio]));
    const headline = headlineOf(all, race, chosen, ratios);
    this.#showHeadline(headline, isOver(race));
    this.#set("[data-identical]", samenessOf(settled(all, race), race, chosen));
    this.#showFigures(metrics, race.header);
    this.#showLegend(metrics.counts, unguessed(all, chosen));
    this.#showLanes(all, race, figures, isWhole);
    if (isSeveral(race.header)) this.#node(".sv-legend").dataset.of = chosen;
    this.#charts.show({ rounds: all, trace: race, chosen, metrics, ratio: headline.ratio });
  }

  /**
   * @param {Metrics["counts"]} counts
   * @param {number} unguessed  tokens that were written without a guess, which have their own item
   */
  #showLegend(counts, unguessed) {
    const amounts = { untold: 0, ...counts, bonus: counts.bonus - unguessed, own: unguessed };
    for (const [outcome, count] of Object.entries(amounts)) {
      this.#set(`[data-count="${outcome}"]`, String(count));
    }
    this.#node("[data-untold]").hidden = !counts.untold;
  }

  /** @type {(metrics: Metrics, header: Header) => void} */
  #showFigures({ alpha, tau, tau_predicted: formula, tokens_per_second: rates }, header) {
    const [drafted, alone] = Object.values(rates);
    this.#charts.setFigures({
      alpha: [fixed(alpha, 2), alpha === null ? "" : "of judged"],
      tau: [fixed(tau, 2), formula === null || isSeveral(header) ? "" : `${fixed(formula, 2)} formula`],
      speed: [perSecond(drafted), drafted === null ? "" : "with drafts"],
      "speed-alone": [perSecond(alone), alone === null ? "" : "alone"],
    });
  }

  // The sums of each lane, and its bar.
  /** @type {(rounds: Round[], trace: Trace, figures: Map<LaneName, Metrics>, isWhole: boolean) => void} */
  #showLanes(rounds, trace, figures, isWhole) {
    const reasons = isWhole ? trace.end?.reasons ?? {} : {};
    const longest = rounds.reduce((max, { clock }) => Math.max(max, clock), 0);
    for (const name of lanesOf(trace.header)) {
      const metrics = figures.get(name === ALONE ? draftedLanes(trace.header)[0] : name);
      if (!metrics) continue;
      const guesses = name === ALONE || metrics.counts.untold ? null : metrics.drafted;
      const passes = rounds.reduce((count, { lane }) => count + Number(lane === name), 0);
      const sums = written(metrics.tokens[name], guesses, reasons[name]);
      this.#set(`[data-sums="${CSS.escape(name)}"]`, `${plural(passes, "pass")}: ${sums}`);
      this.#showBar(name, { rounds, trace, metrics }, longest);
    }
  }

  // The ratio, its meaning, and its doubt: a doubted ratio is not set as a headline.
  /** @type {(headline: Headline, isSettled: boolean) => void} */
  #showHeadline({ ratio, times, verdict, detail, beside, doubt }, isSettled) {
    const texts = { headline: ratio, times, verdict, detail, spread: beside, doubt };
    for (const [name, text] of Object.entries(texts)) this.#set(`[data-${name}]`, text);
    this.#root.toggleAttribute("data-doubted", doubt !== "");
    this.#root.toggleAttribute("data-unsettled", !isSettled);
    this.#root.toggleAttribute("data-no-ratio", ratio === "?");
  }

  /** @type {(selector: string, text: string) => void} */
  #set(selector, text) {
    const node = this.#node(selector);
    if (node.textContent !== text) node.textContent = text;
  }

  /** @param {string} selector */
  #node(selector) {
    const node = this.#nodes.get(selector) ?? find(this.#root, selector);
    this.#nodes.set(selector, node);
    return node;
  }

  // longest: the clock of the slowest lane, in seconds.
  /** @type {(name: LaneName, measured: Measured, longest: number) => void} */
  #showBar(name, measured, longest) {
    const { trace, metrics } = measured;
    const bar = this.#node(`[data-bar="${CSS.escape(name)}"]`);
    const tokens = metrics.tokens[name];
    const length = Math.max(1, trace.header.settings.max_new_tokens);
    find(bar, "i").style.transform = `scaleX(${Math.min(1, tokens / length)})`;
    const speed = metrics.tokens_per_second[name];
    const pace = speed === null || !isDone(name, measured) ? plural(tokens, "token")
      : `${duration(metrics.seconds[name], longest)} · ${perSecond(speed)} tokens/s`;
    this.#set(`[data-rate="${CSS.escape(name)}"]`, pace);
    markFinish(find(bar, "u"), name, measured);
  }
}

// The mark on a lane's bar at its position when the other lane finished.
/** @type {(mark: HTMLElement, name: LaneName, measured: Measured) => void} */
function markFinish(mark, name, measured) {
  const { rounds, trace, metrics } = measured;
  // There is no other lane, or more than one.
  if ((name === ALONE && isSeveral(trace.header)) || !hasBaseline(trace.header)) {
    mark.hidden = true;
    return;
  }
  const other = name === ALONE ? draftedLanes(trace.header)[0] : ALONE;
  const written = rounds.filter((r) => r.lane === name && r.clock <= metrics.seconds[other]);
  const tokens = written.reduce((total, round) => total + round.emitted.length, 0);
  mark.hidden = !isDone(other, measured) || metrics.tokens[name] - tokens < 2;
  mark.style.left = `${(100 * tokens) / trace.header.settings.max_new_tokens}%`;
  mark.title = `${plural(tokens, "token")} when the other lane finished`;
}

// Whether the lanes wrote the same text; one sentence for all named lanes if they did.
/** @type {(all: Round[], race: Trace, chosen: LaneName) => string} */
function samenessOf(all, race, chosen) {
  const comparisonOf = (/** @type {LaneName} */ lane) => comparison(twoRounds(all, lane));
  const sentence = sameness(comparisonOf(chosen), twoOf(race, chosen));
  const { lanes, settings } = race.header;
  if (!isSeveral(race.header) || !sentence) return sentence;
  if (settings.temperature !== 0) {
    const changed = changedLanes(race.header);
    const others = changed.filter((lane) => lane !== chosen);
    const also = others.length ? ` ${others.join("; ")}: ${changes(ruleOf(lanes[others[0]]))}` : "";
    return changed.length ? `${chosen}: ${sentence}${also}` : DRAWN;
  }
  const parted = Object.keys(lanes).filter((lane) => comparisonOf(lane).differAt !== null);
  if (!parted.length) return `Every lane: ${sentence}`;
  if (parted.every((lane) => lane === chosen)) return `${chosen}: ${sentence}`;
  return `${chosen}: ${sentence} Differs from the baseline: ${parted.join("; ")}.`;
}

/** @type {(name: LaneName, measured: Measured) => boolean} */
function isDone(name, { rounds, trace, metrics }) {
  if (metrics.tokens[name] >= trace.header.settings.max_new_tokens) return true;
  const count = (/** @type {Round[]} */ list) => list.filter((round) => round.lane === name).length;
  return isOver(trace) && count(rounds) === count(trace.rounds);
}
