// A question to the room before a result is shown: its answers, the guesses, and the reveal.

import { closest, element, find } from "specviz/dom/dom.js";

/**
 * @typedef {object} Question
 * @property {string} text
 * @property {string[]} answers
 * @property {string[]} short  what the answers are called in the count of guesses
 * @property {() => Answer} [reveal]  the right answer, where it is not just the ratio
 */

/** @typedef {{ right: number, why: string }} Answer  the place of the right answer, and its reason */

export class Ask {
  #root;
  #box;
  #tally;
  #answer;
  /** @type {Question | null} */
  #question = null;
  /** @type {number[]} */
  #votes = []; // by answer

  /**
   * @param {HTMLElement} root
   * @param {() => void} reveal called when the button to reveal is pressed
   */
  constructor(root, reveal) {
    this.#root = root;
    this.#box = find(root, "[data-ask]");
    this.#tally = find(root, "[data-tally]");
    this.#answer = find(root, "[data-answer]");
    this.#box.addEventListener("click", (event) => {
      const vote = closest(event, "[data-vote]")?.dataset.vote;
      if (vote !== undefined) this.vote(Number(vote));
      else if (closest(event, "[data-reveal]")) reveal();
    });
  }

  get isOpen() {
    return this.#root.dataset.guess === "open";
  }

  get hasQuestion() {
    return this.#question !== null;
  }

  /** Whether what is asked, or was just answered, is about one run only. */
  get isAboutRun() {
    return this.#question?.reveal !== undefined;
  }

  /** @param {Question} question */
  open(question) {
    this.close();
    this.#question = question;
    this.#votes = question.answers.map(() => 0);
    find(this.#box, "p").textContent = question.text;
    find(this.#box, "div").replaceChildren(...question.answers.map((answer, vote) =>
      element("button", "", `${question.reveal ? `${question.short[vote]}. ` : ""}${answer} `, element("b", "", "0"), { dataset: { vote } })));
    this.#root.dataset.guess = "open";
    this.#box.hidden = false;
  }

  /**
   * Someone in the room guesses.
   * @param {number} place of the answer
   */
  vote(place) {
    if (!this.isOpen || !(place in this.#votes)) return;
    this.#votes[place] += 1;
    find(this.#box, `[data-vote="${place}"] b`).textContent = String(this.#votes[place]);
  }

  reveal() {
    if (!this.isOpen || !this.#question) return;
    const { text, answers, short, reveal } = this.#question;
    this.#hide();
    const guesses = this.#votes.map((count, i) => `${count} ${short[i]}`).join(", ");
    this.#tally.textContent = `The room guessed: ${guesses}.`;
    this.#tally.hidden = this.#votes.every((count) => count === 0);
    if (!reveal) return;
    const { right, why } = reveal();
    const [asked, said, reason] = this.#answer.querySelectorAll("p");
    asked.textContent = text;
    said.textContent = `${short[right]}. ${answers[right]}`;
    reason.textContent = why;
    this.#answer.hidden = false;
    this.#root.dataset.answered = "true";
  }

  /** Nothing is asked, and nothing that was answered stays. */
  close() {
    this.#hide();
    this.#question = null;
    this.#tally.hidden = this.#answer.hidden = true;
    delete this.#root.dataset.answered;
  }

  #hide() {
    delete this.#root.dataset.guess;
    this.#box.hidden = true;
  }
}
