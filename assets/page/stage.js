// The stage: one screen for the last row, no controls, and a guess before the reveal.

import { closest, dialogOf, find } from "./dom.js";

const SIZES = [0.7, 0.85, 1, 1.2, 1.45, 1.75];
const USUAL = SIZES.indexOf(1);

/** @typedef {"faster" | "slower"} Vote */

export class Stage {
  #root;
  #changed;
  #help;
  #question;
  #tally;
  #size = USUAL;
  #votes = { faster: 0, slower: 0 };

  /**
   * @param {HTMLElement} root
   * @param {() => void} changed called when the view has another shape
   */
  constructor(root, changed) {
    this.#root = root;
    this.#changed = changed;
    this.#help = dialogOf(root, "[data-help]");
    this.#question = find(root, "[data-ask]");
    this.#tally = find(root, "[data-tally]");
    this.#question.addEventListener("click", (event) => {
      const vote = closest(event, "[data-vote]")?.dataset.vote;
      if (vote === "faster" || vote === "slower") this.vote(vote);
    });
    addEventListener("popstate", () => { if (this.isOn) this.set(false); });
    // Whoever leaves the full screen by the browser's own key leaves the stage with it.
    document.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement && this.isOn) this.leave();
    });
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
    if (!on) {
      this.#reveal();
      this.#tally.hidden = true;
      if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
    }
    this.#changed();
  }

  toggle() {
    if (this.isOn) this.leave(); else this.#enter();
  }

  /** Whether it was on. */
  leave() {
    if (!this.isOn) return false;
    this.set(false);
    if (history.state?.isStage) history.back();
    return true;
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

  /**
   * Someone in the room guesses.
   * @param {Vote} what
   */
  vote(what) {
    if (!this.isGuessing) return;
    this.#votes[what] += 1;
    find(this.#question, `[data-vote=${what}] b`).textContent = String(this.#votes[what]);
  }

  toggleHelp() {
    if (this.#help.open) this.#help.close(); else this.#help.showModal();
  }

  /** The full screen, and a step in the history for the browser's Back to leave by. */
  #enter() {
    this.set(true);
    document.documentElement.requestFullscreen?.().catch(() => {}); // some browsers refuse it
    try {
      history.pushState({ ...history.state, isStage: true }, "");
    } catch { /* some browsers forbid it in a file from disk */ }
  }

  #ask() {
    this.#votes = { faster: 0, slower: 0 };
    for (const count of this.#question.querySelectorAll("b")) count.textContent = "0";
    this.#root.dataset.guess = "open";
    this.#question.hidden = false;
    this.#tally.hidden = true;
  }

  #reveal() {
    const { faster, slower } = this.#votes;
    const wasOpen = this.isGuessing;
    delete this.#root.dataset.guess;
    this.#question.hidden = true;
    this.#tally.textContent = `The room guessed: ${faster} faster, ${slower} slower.`;
    this.#tally.hidden = !wasOpen || faster + slower === 0;
  }
}
