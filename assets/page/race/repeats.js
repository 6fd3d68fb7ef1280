// The same run five times: the median of its ratio on this machine, and its spread.

import { find } from "specviz/dom/dom.js";
import { draftedLanes, twoRounds } from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { spreadOf, uncertainty } from "specviz/facts/uncertainty.js";
import { isImpossible, range } from "specviz/words/verdict.js";
import { fixed, plural } from "specviz/words/words.js";

const TIMES = 5;
const BETWEEN = 200; // ms, so that the server has closed one run before the next

export class Repeats {
  #page;
  #button;
  #summary;
  /** @type {Map<LaneName, number | null>[] | null} */
  #ratios = null; // of the runs so far, by lane, null for a run without a fair ratio; null without a series

  /** @param {Needs<"root" | "config" | "shownRun" | "shell">} page */
  constructor(page) {
    this.#page = page;
    this.#button = find(page.root, "[data-repeat]", HTMLButtonElement);
    this.#summary = find(page.root, "[data-repeats]");
    this.#button.addEventListener("click", () => this.#begin());
  }

  /** Whether a series is running. */
  get isUnderWay() {
    return this.#ratios !== null;
  }

  /** Offer to repeat the run if its ratio is in doubt and the controls still match it. */
  offer() {
    const { root, shownRun, config } = this.#page;
    const isDoubted = root.hasAttribute("data-doubted") && shownRun.trace?.end;
    const isFree = config.served && !shownRun.busy && !this.isUnderWay;
    this.#button.hidden = !isDoubted || !isFree || shownRun.differences.size > 0;
  }

  /** Another run is shown: one that is not live ends the series. */
  shown() {
    if (this.#page.shownRun.source !== "live") this.#ratios = null;
    if (!this.isUnderWay) this.#summary.textContent = "";
  }

  /** The live run has ended. */
  over() {
    const { trace, failed } = this.#page.shownRun;
    if (!this.#ratios) return;
    const isWhole = trace?.end && !Object.values(trace.end.reasons).includes("stopped");
    if (failed || !trace || !isWhole) {
      this.#ratios = null;
      return;
    }
    this.#ratios.push(ratiosOf(trace));
    if (this.#ratios.length < TIMES) this.#next();
    else {
      this.#summary.textContent = summaries(this.#ratios);
      this.#ratios = null;
    }
  }

  #begin() {
    this.#ratios = [];
    this.offer();
    this.#next();
  }

  #next() {
    const done = this.#ratios ?? [];
    const each = done.map((ratios) => [...ratios.values()].map((ratio) => fixed(ratio, 2)).join(" and "));
    const soFar = done.length ? `; so far ${each.join(", ")}` : "";
    this.#summary.textContent = `Run ${done.length + 1} of ${TIMES}${soFar}.`;
    setTimeout(() => { if (this.isUnderWay) this.#page.shell.run(); }, BETWEEN);
  }
}

/** The ratio of each lane with drafts. @type {(trace: Trace) => Map<LaneName, number | null>} */
function ratiosOf({ header, rounds }) {
  return new Map(draftedLanes(header).map((lane) => {
    const isFair = !isImpossible(uncertainty(twoRounds(rounds, lane)));
    return [lane, isFair ? measure(rounds, header, lane).speedup : null];
  }));
}

/** The ratios of several runs, lane by lane, in a sentence. @param {Map<LaneName, number | null>[]} runs */
function summaries(runs) {
  const lanes = [...runs[0].keys()].map((lane) => {
    const ratios = runs.map((run) => run.get(lane) ?? null);
    return { lane, ratios };
  });
  if (lanes.length === 1) return summary(lanes[0].ratios);
  const lines = lanes.map(({ lane, ratios }) => {
    const { possible, lost } = fairOf(ratios);
    if (!possible.length) return `${lane}: no fair ratio`;
    const spread = spreadOf(possible);
    return `${lane} ${fixed(spread.median, 2)} (${range(spread)}${lost && `, without ${lost}`})`;
  });
  return `${plural(runs.length, "run")}, median and quartiles: ${lines.join("; ")}.`;
}

/** The fair ratios, and the number of runs without one in words. @param {(number | null)[]} ratios */
function fairOf(ratios) {
  const possible = ratios.flatMap((ratio) => ratio ?? []);
  const lost = ratios.length - possible.length;
  return { possible, lost: lost ? plural(lost, "run") : "" };
}

/**
 * The median and the quartiles of some ratios, and the number of runs without a fair one.
 * @param {(number | null)[]} ratios
 */
export function summary(ratios) {
  const { possible, lost } = fairOf(ratios);
  const without = lost && ` Without ${lost} that gave no fair ratio.`;
  if (!possible.length) return `${plural(ratios.length, "run")} without a fair ratio.`;
  const spread = spreadOf(possible);
  const count = plural(possible.length, "run");
  const all = range({ low: Math.min(...possible), high: Math.max(...possible) });
  return `${count}: median ${fixed(spread.median, 2)}, quartiles ${range(spread)}, `
    + `range ${all}.${without}`;
}
