// The stage: one screen for the last row, no controls, and a guess before the reveal.

import { dialogOf, find } from "./dom.js";

const SIZES = [0.7, 0.85, 1, 1.2, 1.45, 1.75];
const USUAL = SIZES.indexOf(1);

export class Stage {
  #root;
  #changed;
  #help;
  #question;
  #size = USUAL;

  /**
   * @param {HTMLElement} root
   * @param {() => void} changed called when the view has another shape
   */
  constructor(root, changed) {
    this.#root = root;
    this.#changed = changed;
    this.#help = dialogOf(root, "[data-help]");
    this.#question = find(root, "[data-ask]");
  }

  get isOn() {
    return document.body.classList.contains("sv-stage");
  }

  get isGuessing() {
    return this.#root.dataset.guess === "open";
  }

  /** @param {boolean} on */
  set(on) {
    document.body.classList.toggle("sv-stage", on);
    if (!on) this.#reveal();
    this.#changed();
  }

  toggle() {
    this.set(!this.isOn);
  }

  /** @param {1 | -1} by sizes of the text */
  grow(by) {
    this.#size = Math.max(0, Math.min(this.#size + by, SIZES.length - 1));
    this.#root.style.setProperty("--sv-size", String(SIZES[this.#size]));
    this.#changed();
  }

  /** Ask for a guess of the ratio, or reveal it. */
  guess() {
    if (this.isGuessing) this.#reveal();
    else if (this.isOn) this.#ask();
    this.#changed();
  }

  toggleHelp() {
    if (this.#help.open) this.#help.close(); else this.#help.showModal();
  }

  #ask() {
    this.#root.dataset.guess = "open";
    this.#question.hidden = false;
  }

  #reveal() {
    delete this.#root.dataset.guess;
    this.#question.hidden = true;
  }
}
