// A text whose tokens a draft has guessed: which it had right, and the rounds that would have made.

import { closest, element } from "specviz/dom/dom.js";
import { chance } from "specviz/words/reasons.js";
import { fixed, plural, visible } from "specviz/words/words.js";

const HINT = "Press a token to see what the draft guessed there.";

/**
 * The rounds of `gamma` guesses over places whose guesses were right or not: how many tokens each
 * would have written, and how many guesses would have been kept and judged. As would_be of
 * specviz/inspect/guesses.py.
 * @param {boolean[]} right
 * @param {number} gamma
 */
export function wouldBe(right, gamma) {
  /** @type {number[]} */
  const rounds = [];
  let kept = 0, judged = 0, start = 0;
  while (start < right.length) {
    const drafted = right.slice(start, start + Math.min(gamma, right.length - start - 1));
    const wrong = drafted.indexOf(false);
    const held = wrong < 0 ? drafted.length : wrong;
    kept += held;
    judged += Math.min(held + 1, drafted.length);
    rounds.push(held + 1);
    start += held + 1;
  }
  return { rounds, kept, judged };
}

export class GuessedText {
  #found;
  #flow = element("p");
  #card = element("p", "sv-guess-card", HINT);
  #said = element("p");
  #slider = element("input");
  #value = element("b");
  /** @type {HTMLElement[]} */
  #tokens;
  #at = 0; // the token that the keyboard is on

  /**
   * @param {GuessResult} found
   * @param {number} mostGamma
   */
  constructor(found, mostGamma) {
    this.#found = found;
    this.#tokens = found.places.map(([text, , isRight], index) => {
      const token = element("span", isRight ? "is-right" : "is-wrong", text.replaceAll("\n", "⏎\n"));
      token.dataset.place = String(index);
      token.tabIndex = index ? -1 : 0;
      return token;
    });
    this.#flow.append(found.before, ...this.#tokens);
    this.#flow.addEventListener("click", (event) => this.#showFor(event));
    this.#flow.addEventListener("focusin", (event) => this.#showFor(event));
    this.#flow.addEventListener("mouseover", (event) => this.#showFor(event));
    this.#flow.addEventListener("keydown", (event) => this.#move(event));
    Object.assign(this.#slider, { type: "range", min: 1, max: mostGamma, step: 1, value: Math.min(5, mostGamma) });
    this.#slider.addEventListener("input", () => this.#draw());
    this.#card.setAttribute("role", "status");
    this.#said.setAttribute("role", "status");
    this.#draw();
  }

  get nodes() {
    const { draft, places, left_out, name, why, units } = this.#found;
    const right = places.filter(([, , isRight]) => isRight).length;
    const flow = element("div", "sv-flow is-guessed");
    flow.append(this.#flow);
    const row = element("label", "", "γ, guesses per round");
    row.append(this.#slider, this.#value);
    const gamma = element("div", "sv-whatif");
    gamma.append(row, this.#said);
    const cut = left_out ? [element("p", "", `The last ${plural(left_out, "token")} of the text did not fit and were left out.`)] : [];
    return [
      element("h3", "", name),
      element("p", "sv-lead", `${sentence(draft)} would have got ${right} of ${plural(places.length, "token")} right.`),
      key(), flow, this.#card, ...cut, gamma, element("p", "", why), element("p", "", units),
    ];
  }

  #draw() {
    const gamma = Number(this.#slider.value);
    const { rounds, kept, judged } = wouldBe(this.#found.places.map(([, , isRight]) => isRight), gamma);
    this.#value.textContent = String(gamma);
    const tau = fixed(this.#tokens.length / rounds.length, 2);
    this.#said.textContent = `${plural(rounds.length, "round")} for ${plural(this.#tokens.length, "token")}: τ would be ${tau}, `
      + `with α = ${fixed(judged ? kept / judged : null, 2)} of judged guesses. The marks before tokens are where rounds begin.`;
    let start = 0;
    for (const token of this.#tokens) token.classList.remove("is-first");
    for (const count of rounds) {
      this.#tokens[start].classList.add("is-first");
      start += count;
    }
  }

  /** @param {Event} event */
  #showFor(event) {
    const token = closest(event, "[data-place]");
    if (!token) return;
    const index = Number(token.dataset.place);
    const [text, guess, isRight, qGuess, qText] = this.#found.places[index];
    this.#at = index;
    this.#card.textContent = isRight
      ? `Token ${index + 1}: the draft's first choice was “${visible(guess)}” too, with ${chance(qGuess)}.`
      : `Token ${index + 1}: the draft's first choice was “${visible(guess)}” with ${chance(qGuess)}; “${visible(text)
      }”, which was written, had ${chance(qText)}.`;
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[event.key];
    if (step === undefined) return;
    const next = Math.max(0, Math.min(this.#at + step, this.#tokens.length - 1));
    this.#tokens[this.#at].tabIndex = -1;
    this.#tokens[next].tabIndex = 0;
    this.#tokens[next].focus();
    event.preventDefault();
    event.stopPropagation();
  }
}

function key() {
  const node = element("p", "sv-guess-key sv-flow is-guessed");
  for (const [kind, name] of [["is-right", "guessed right"], ["is-wrong", "guessed otherwise"], ["is-first is-right", "a round begins"]]) {
    node.append(element("span", kind, name), " ");
  }
  return node;
}

/** @param {string} text */
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
