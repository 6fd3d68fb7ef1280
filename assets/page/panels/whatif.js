// "What if": the textbook's speed-up over the length of a draft, for an alpha and a price that the
// reader chooses, with the measured run as a point on the same picture.

import { element } from "specviz/dom/dom.js";
import { predictedTau } from "specviz/facts/metrics.js";
import { fixed } from "specviz/words/words.js";

/** @import { Explanation } from "specviz/facts/costs.js" */

const WIDTH = 520, HEIGHT = 190; // of the drawing
const EDGE = { left: 34, right: 14, top: 16, bottom: 26 };
const FORMULA = "The formula (Leviathan et al. 2022, theorem 3.8), not a measurement: (1 − α^(γ+1)) / ((1 − α)(γc + 1)), "
  + "with verdicts that do not depend on each other and a pass that costs the same for one token as for many.";

/** @typedef {{ alpha: number, gamma: number, c: number }} Chosen */
/** @type {[keyof Chosen, string, number, number, number][]} name, label, least, most, step */
const SLIDERS = [
  ["alpha", "α, guesses that hold", 0, 0.99, 0.01],
  ["gamma", "γ, guesses per round", 1, 16, 1],
  ["c", "c, price of a guess", 0, 1, 0.01],
];

export class WhatIf {
  node = element("section", "sv-whatif");
  #drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  #said = element("p");
  #back = element("button", "sv-link", "Back to this run");
  /** @type {Map<string, { input: HTMLInputElement, value: HTMLElement }>} */
  #sliders = new Map();
  /** @type {Explanation | null} */
  #why = null;
  #gamma = 1; // of the run's settings
  #isTouched = false;
  #most;

  /** @param {number} most the longest draft */
  constructor(most) {
    this.#most = most;
    this.#back.type = "button";
    this.#back.addEventListener("click", () => { this.#isTouched = false; this.#draw(); });
    this.#said.setAttribute("role", "status");
    this.node.append(element("h3", "", "What if?"), this.#drawing, ...SLIDERS.map((one) => this.#slider(...one)),
      this.#said, this.#back, element("p", "", FORMULA));
  }

  /**
   * @param {Explanation | null} why  null before there is something to compare
   * @param {number} gamma of the run's settings
   */
  show(why, gamma) {
    this.#why = why?.m.drafted ? why : null;
    this.#gamma = gamma;
    this.node.hidden = this.#why === null;
    if (this.#why) this.#draw();
  }

  /**
   * @param {keyof Chosen} name
   * @param {string} label
   * @param {number} least
   * @param {number} most
   * @param {number} step
   */
  #slider(name, label, least, most, step) {
    const row = element("label", "", label);
    const input = element("input"), value = element("b");
    Object.assign(input, { type: "range", min: least, max: name === "gamma" ? this.#most : most, step });
    input.addEventListener("input", () => { this.#isTouched = true; this.#draw(); });
    row.append(input, value);
    this.#sliders.set(name, { input, value });
    return row;
  }

  /** @returns {Chosen} */
  #chosen() {
    const measured = { alpha: this.#why?.m.alpha ?? 0, gamma: this.#gamma, c: this.#why?.m.c ?? 0 };
    if (!this.#isTouched) return measured;
    const of = (/** @type {string} */ name) => Number(this.#sliders.get(name)?.input.value);
    return { alpha: of("alpha"), gamma: of("gamma"), c: of("c") };
  }

  #draw() {
    const why = this.#why;
    if (!why) return;
    const chosen = this.#chosen();
    for (const [name, { input, value }] of this.#sliders) {
      const number = chosen[/** @type {keyof Chosen} */ (name)];
      input.value = String(number);
      value.textContent = name === "gamma" ? String(number) : fixed(number, 2);
    }
    this.#back.hidden = !this.#isTouched;
    const predicted = speedup(chosen.alpha, chosen.gamma, chosen.c);
    this.#said.textContent = `By the formula ${fixed(predicted, 2)}× at γ = ${chosen.gamma}; measured in this run ${
      fixed(why.speedup, 2)}×.`;
    this.#drawing.setAttribute("aria-label", `Speed-up by the formula over γ. ${this.#said.textContent}`);
    this.#drawing.replaceChildren(...shapes(chosen, why, this.#most));
  }
}

/**
 * @param {number} alpha
 * @param {number} gamma
 * @param {number} c
 */
export const speedup = (alpha, gamma, c) => predictedTau(alpha, gamma) / (gamma * c + 1);

/**
 * @param {Chosen} chosen
 * @param {Explanation} why
 * @param {number} most
 */
function shapes({ alpha, gamma, c }, why, most) {
  const speeds = Array.from({ length: most + 1 }, (_, length) => speedup(alpha, length, c));
  const highest = Math.max(2, Math.ceil(Math.max(...speeds, why.speedup)));
  const x = (/** @type {number} */ value) => EDGE.left + (value / most) * (WIDTH - EDGE.left - EDGE.right);
  const y = (/** @type {number} */ value) => HEIGHT - EDGE.bottom - (value / highest) * (HEIGHT - EDGE.top - EDGE.bottom);
  const line = (/** @type {number} */ value, /** @type {string} */ name) => [
    svg("line", { x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(value), y2: y(value), class: name }),
    label(EDGE.left - 6, y(value) + 4, `${value}×`, "end"),
  ];
  const point = (/** @type {number} */ at, /** @type {number} */ value, /** @type {string} */ name) =>
    svg("circle", { cx: x(at), cy: y(value), r: 5, class: name });
  const numbers = [1, 4, 8, 12, 16].filter((number) => number <= most);
  return [
    ...line(0, "axis"), ...line(1, "even"), ...line(highest, "axis"),
    ...numbers.map((number) => label(x(number), HEIGHT - 8, number === 1 ? "γ = 1" : String(number), "middle")),
    svg("polyline", { points: speeds.map((value, i) => `${x(i)},${y(value)}`).join(" ") }),
    point(gamma, speeds[gamma], "chosen"),
    point(Math.min(why.costs.gamma, most), why.speedup, "measured"),
    label(x(Math.min(why.costs.gamma, most)) + 10, y(why.speedup) + 14, "measured", "start"),
  ];
}

/**
 * @param {number} x
 * @param {number} y
 * @param {string} text
 * @param {"start" | "middle" | "end"} anchor
 */
function label(x, y, text, anchor) {
  const node = svg("text", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
}

/**
 * @param {string} name
 * @param {Record<string, string | number>} attributes
 */
function svg(name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  return node;
}
