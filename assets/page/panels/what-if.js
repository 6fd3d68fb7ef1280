// The best gamma by the formula, for an alpha and a cost that the reader chooses.

import { element } from "specviz/dom/dom.js";
import { bestGamma } from "specviz/facts/costs.js";
import { adapts } from "specviz/words/verdict.js";
import { fixed } from "specviz/words/words.js";

/** The gammas with a bar if there are too many for one each. */
const ROUND_GAMMAS = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64];

const FORMULA = "The formula: τ(α, γ) / (γ · cost of a guess + cost of judging), in passes of the target "
  + "alone, with independent verdicts. The cost of judging grows linearly with the guesses, from one pass "
  + "for none, and fits the cost in this run.";

/** @typedef {"alpha" | "step"} Name */
/** @type {[Name, string, number][]} name, label, most */
const SLIDERS = [["alpha", "α, accepted of judged", 0.99], ["step", "Cost of a guess", 1]];

export class WhatIf {
  node = element("section", "sv-whatif");
  #bars = element("ol", "sv-gammas");
  #summary = element("p", "", { role: "status" });
  #back = element("button", "sv-link", "Back to this run", { onclick: () => this.#reset() });
  #sliders = /** @type {Map<Name, { input: HTMLInputElement, value: HTMLElement }>} */ (new Map());
  #why = /** @type {Explanation | null} */ (null);
  /** @type {Pick<Settings, "gamma" | "gamma_policy">} */
  #settings = { gamma: 1, gamma_policy: "fixed" };
  #isTouched = false;
  #maxGamma;

  /** @param {number} maxGamma the longest draft */
  constructor(maxGamma) {
    this.#maxGamma = maxGamma;
    this.node.append(
      element("h3", "", "Which γ?"),
      this.#bars,
      ...SLIDERS.map(([name, label, highest]) => this.#slider(name, label, highest)),
      this.#summary,
      this.#back,
      element("p", "", FORMULA),
    );
  }

  /**
   * @param {Explanation | null} why  null while nothing can be compared
   * @param {Pick<Settings, "gamma" | "gamma_policy">} settings of the run
   */
  show(why, settings) {
    this.#why = why?.m.drafted && why.m.alpha !== null ? why : null;
    this.#settings = settings;
    this.node.hidden = this.#why === null;
    this.#draw();
  }

  #reset() {
    this.#isTouched = false;
    this.#draw();
  }

  /** @type {(name: Name, label: string, most: number) => HTMLLabelElement} */
  #slider(name, label, max) {
    const oninput = () => {
      this.#isTouched = true;
      this.#draw();
    };
    const input = element("input", "", { type: "range", min: 0, max, step: 0.01, oninput });
    const value = element("b");
    this.#sliders.set(name, { input, value });
    return element("label", "", label, input, value);
  }

  /** @param {Explanation} why */
  #chosen({ m, costs }) {
    const measured = { alpha: m.alpha ?? 0, step: costs.step };
    if (!this.#isTouched) return measured;
    const valueOf = (/** @type {Name} */ name) => Number(this.#sliders.get(name)?.input.value);
    return { alpha: valueOf("alpha"), step: valueOf("step") };
  }

  #draw() {
    const why = this.#why;
    if (!why) return;
    const { costs, speedup } = why;
    const chosen = this.#chosen(why);
    for (const [name, { input, value }] of this.#sliders) {
      input.value = String(chosen[name]);
      value.textContent = fixed(chosen[name], 2);
    }
    this.#back.hidden = !this.#isTouched;
    const maxGamma = Math.max(this.#maxGamma, this.#settings.gamma);
    const best = bestGamma(chosen.alpha, chosen.step, costs.judging, costs.gamma, maxGamma);
    // If a policy or missing matches vary the number of drafts, no bar is the one in use.
    const gammaInUse = adapts(this.#settings, costs.gamma) ? null : this.#settings.gamma;
    this.#drawBars(best, gammaInUse, this.#shownGammas(maxGamma, best.gamma, gammaInUse));
    this.#summary.textContent = `By the formula, not measured, ${advice(best, gammaInUse)}. `
      + `Measured in this run: ${fixed(speedup, 2)}×.`;
  }

  /**
   * The gammas with a bar: all, or a few of many.
   * @type {(maxGamma: number, best: number, gammaInUse: number | null) => number[]}
   */
  #shownGammas(maxGamma, best, gammaInUse) {
    if (maxGamma <= this.#maxGamma) return Array.from({ length: maxGamma }, (_, i) => i + 1);
    const wanted = new Set([...ROUND_GAMMAS, best, gammaInUse ?? 0]);
    return [...wanted].filter((gamma) => gamma > 0 && gamma <= maxGamma).sort((a, b) => a - b);
  }

  /**
   * @param {{ gamma: number, speeds: number[] }} best
   * @param {number | null} gammaInUse
   * @param {number[]} barGammas  the gammas with a bar
   */
  #drawBars({ gamma, speeds }, gammaInUse, barGammas) {
    const highest = Math.max(1, ...barGammas.map((barGamma) => speeds[barGamma]));
    const focused = this.#bars.querySelector("button:focus")?.getAttribute("data-run-gamma");
    const canRun = document.querySelector("#run") !== null;
    this.#bars.replaceChildren(...barGammas.map((barGamma) => {
      const speed = speeds[barGamma];
      const style = { height: `${(100 * speed) / highest}%` };
      const bar = element("i", "", { style, dataset: { value: fixed(speed, 2) } });
      const best = barGamma === gamma ? "is-best " : "";
      const inUse = barGamma === gammaInUse ? "is-used" : "";
      const runners = canRun ? [runner(barGamma)] : [];
      return element("li", `${best}${inUse}`, bar, element("small", "", String(barGamma)), ...runners);
    }));
    this.#bars.style.setProperty("--even", String(1 / highest));
    if (!focused) return;
    /** @type {HTMLElement | null} */
    const button = this.#bars.querySelector(`[data-run-gamma="${focused}"]`);
    button?.focus({ preventScroll: true });
  }
}

/**
 * The best gamma by the formula, in a clause.
 * @param {{ gamma: number, speedup: number, speeds: number[] }} best
 * @param {number | null} gammaInUse
 */
function advice(best, gammaInUse) {
  if (best.gamma === 0) return "no γ would pay";
  const gain = `γ = ${best.gamma} is best, ${fixed(best.speedup, 2)}×`;
  if (gammaInUse === null || gammaInUse === best.gamma) return gain;
  return `${gain}; γ = ${gammaInUse}, the one in use, gives ${fixed(best.speeds[gammaInUse], 2)}×`;
}

/** A button over a bar that runs the page's prompt with this gamma. @param {number} gamma */
function runner(gamma) {
  const label = `Run with γ = ${gamma}`;
  return element("button", "", { dataset: { runGamma: gamma }, title: label, "aria-label": label });
}
