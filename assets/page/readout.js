// Headline, verdict, figures, bars, legend: all that is said about the shown rounds.

import { find } from "./dom.js";
import { measure } from "./metrics.js";
import { uncertainty } from "./uncertainty.js";
import { detail, doubt, isImpossible, range, verdict } from "./verdict.js";
import { bonusOf, comparison, fixed, guesser, sameness, written } from "./words.js";

/** @import { Metrics } from "./metrics.js" */

/** @type {LaneName[]} */
const LANES = ["speculative", "baseline"];

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
   * @param {Round[]} rounds
   * @param {Trace} trace
   */
  show(rounds, trace) {
    const metrics = measure(rounds, trace.header);
    const same = comparison(rounds);
    const isOver = trace.end !== null && rounds.length === trace.rounds.length;
    this.#showRatio({ rounds, trace, metrics }, same.differAt, isOver);
    this.#set("[data-identical]", sameness(same, trace));
    const { alpha, efficiency, tau, tau_predicted, c } = metrics;
    for (const [name, value] of Object.entries({ alpha, efficiency, tau, tau_predicted, c })) {
      this.#set(`[data-metric="${name}"]`, fixed(value, 2));
    }
    for (const [outcome, count] of Object.entries(metrics.counts)) {
      this.#set(`[data-count="${outcome}"]`, String(count));
    }
    this.#set("[data-own]", bonusOf(rounds, metrics.counts.bonus));
    const reasons = isOver ? trace.end?.reasons ?? {} : {};
    this.#set('[data-sums="speculative"]', written(metrics.emitted, metrics.drafted, reasons.speculative));
    this.#set('[data-sums="baseline"]', written(metrics.tokens.baseline, null, reasons.baseline));
    for (const name of LANES) this.#showBar(name, { rounds, trace, metrics });
  }

  /**
   * Another run is shown.
   * @param {Trace} trace
   */
  begin({ header }) {
    this.#set("[data-guesser]", guesser(header.settings));
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
    this.#set("[data-detail]", detail(metrics, rounds, trace.header, this.#mostGamma, isOver));
    this.#set("[data-spread]", found?.spread && shown !== null ? range(found.spread) : "");
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
   */
  #showBar(name, measured) {
    const { trace, metrics } = measured;
    const bar = find(this.#root, `[data-bar="${name}"]`);
    const tokens = metrics.tokens[name], length = Math.max(1, trace.header.settings.max_new_tokens);
    find(bar, "i").style.transform = `scaleX(${Math.min(1, tokens / length)})`;
    const speed = metrics.tokens_per_second[name];
    const pace = speed === null ? "–" : Math.round(speed);
    find(bar, ".sv-value").textContent = `${tokens} tokens · ${metrics.seconds[name].toFixed(2)} s · ${pace} tok/s`;
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
  const other = name === "baseline" ? "speculative" : "baseline";
  const then = rounds.filter((r) => r.lane === name && r.clock <= metrics.seconds[other]);
  const tokens = then.reduce((total, round) => total + round.emitted.length, 0);
  mark.hidden = !isDone(other, measured) || metrics.tokens[name] - tokens < 2;
  mark.style.left = `${(100 * tokens) / trace.header.settings.max_new_tokens}%`;
  mark.title = `${tokens} tokens when the other lane was done`;
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
