// The stage: one screen for the last row, no controls, and a guess before the reveal.

import { Ask } from "specviz/stage/ask.js";
import { closing, find } from "specviz/dom/dom.js";

/** @import { Question } from "specviz/stage/ask.js" */

const SIZES = [0.7, 0.85, 1, 1.2, 1.45, 1.75];
const USUAL = SIZES.indexOf(1);
/** @type {Question} */
const FASTER = {
  text: "Faster or slower than the target alone?", answers: ["Faster", "Slower"], short: ["faster", "slower"],
};

/**
 * changed: called when the view has another shape. hold: keeps both lanes at their start while
 * something is asked, since they would give it away. go: lets them run.
 * @typedef {Record<"changed" | "hold" | "go", () => void>} StageParts
 */

export class Stage {
  #root;
  #changed;
  #hold;
  #go;
  #help;
  #ask;
  #size = USUAL;

  /**
   * @param {HTMLElement} root
   * @param {StageParts} parts
   */
  constructor(root, { changed, hold, go }) {
    this.#root = root;
    this.#changed = changed;
    this.#hold = hold;
    this.#go = go;
    this.#help = find(root, "[data-help]", HTMLDialogElement);
    closing(this.#help);
    this.#ask = new Ask(root, () => this.guess());
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
    return this.#ask.isOpen;
  }

  /** Whether something is asked, or was answered, of what is shown. */
  get hasAsked() {
    return this.#ask.hasQuestion;
  }

  /** @param {boolean} on */
  set(on) {
    document.body.classList.toggle("sv-stage", on);
    if (!on) {
      this.#ask.close();
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

  /** Ask for a guess of the ratio, or reveal what was asked for. */
  guess() {
    if (this.isGuessing) {
      this.#ask.reveal();
      this.#go();
    } else if (this.isOn) this.#open(FASTER);
    this.#changed();
  }

  /**
   * Ask the room something about the run that is shown, on the stage.
   * @param {Question} question
   */
  ask(question) {
    if (!this.isOn) this.#enter();
    this.#open(question);
    this.#changed();
  }

  /** @param {Question} question */
  #open(question) {
    this.#ask.open(question);
    this.#hold();
  }

  /**
   * Someone in the room guesses.
   * @param {number} place of the answer
   */
  vote(place) {
    this.#ask.vote(place);
  }

  /** Another run is shown: what was asked about the one before is over, what is asked of any stays. */
  shown() {
    if (this.#ask.isAboutRun) this.#ask.close();
    else if (this.isGuessing) queueMicrotask(this.#hold); // once the run is there
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
}
