// The stage: one screen that the last row can read, without controls, and questions to the room before a
// result is shown.

import { closest, closing, element, find, findAll, importPart, openAtTop } from "specviz/dom/dom.js";

/**
 * @typedef {object} Question
 * @property {string} text
 * @property {string[]} answers
 * @property {string[]} short  short names of the answers, for the tally
 * @property {() => Answer} [reveal]  the right answer, if it is not just the ratio
 */

/** @typedef {{ right: number, why: string }} Answer  the index of the right answer, and its reason */

const SIZES = [0.7, 0.85, 1, 1.2, 1.45, 1.75];
/** @type {Question} */
const FASTER = {
  text: "Faster or slower than the target alone?", answers: ["Faster", "Slower"], short: ["faster", "slower"],
};

export class Stage {
  #page;
  #help;
  #box;
  #tally;
  #answer;
  #size = SIZES.indexOf(1);
  /** @type {Question | null} */
  #question = null; // about the shown run, open or answered
  #votes = /** @type {number[]} */ ([]); // by answer

  /** @param {Needs<"root" | "address" | "replay" | "shownRun" | "timeline" | "view" | "quiz">} page */
  constructor(page) {
    this.#page = page;
    this.#help = find(page.root, "[data-help]", HTMLDialogElement);
    this.#box = find(page.root, "[data-ask]");
    this.#tally = find(page.root, "[data-tally]");
    this.#answer = find(page.root, "[data-answer]");
    closing(this.#help);
    this.#box.addEventListener("click", (event) => {
      const vote = closest(event, "[data-vote]")?.dataset.vote;
      if (vote !== undefined) this.vote(Number(vote));
      else if (closest(event, "[data-reveal]")) this.guess();
    });
    addEventListener("popstate", () => { if (this.isOn) this.set(false); });
    // The browser's own key to leave the full screen also closes the question, or else the stage.
    document.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement && this.isOn && !this.closeQuestion()) this.leave();
    });
  }

  get isOn() {
    return document.body.classList.contains("sv-stage");
  }

  get isGuessing() {
    return this.#page.root.dataset.guess === "open";
  }

  /** Whether there is a question about the shown run, open or answered. */
  get hasAsked() {
    return this.#question !== null;
  }

  /** @param {boolean} on */
  set(on) {
    document.body.classList.toggle("sv-stage", on);
    if (!on) {
      this.#close();
      if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
    }
    this.#changed();
  }

  toggle() {
    if (this.isOn) this.leave(); else this.#enter();
  }

  /** Remove the question, open or answered, and return whether there was one. */
  closeQuestion() {
    if (!this.isOn || !this.hasAsked) return false;
    this.#close();
    this.#changed();
    return true;
  }

  /** Leave the stage, and return whether it was on. */
  leave() {
    if (!this.isOn) return false;
    this.set(false);
    if (history.state?.isStage) history.back();
    return true;
  }

  /** Change the size of the text. @param {1 | -1} by  steps */
  grow(by) {
    this.#size = Math.max(0, Math.min(this.#size + by, SIZES.length - 1));
    this.#page.root.style.setProperty("--sv-size", String(SIZES[this.#size]));
    this.#changed();
  }

  /** Ask for a guess of the ratio, or reveal the answer. */
  guess() {
    const { timeline } = this.#page;
    if (this.isGuessing) {
      this.#reveal();
      if (timeline.isGrowing) timeline.follow(); else timeline.play();
    } else if (this.isOn) this.#open(FASTER);
    this.#changed();
  }

  /**
   * Ask the room a question about the shown run, on the stage.
   * @param {Question} question
   */
  ask(question) {
    if (!this.isOn) this.#enter();
    this.#open(question);
    this.#changed();
  }

  /** Count a vote from the room. @param {number} answer  its index */
  vote(answer) {
    if (!this.isGuessing || !(answer in this.#votes)) return;
    this.#votes[answer] += 1;
    find(this.#box, `[data-vote="${answer}"] b`).textContent = String(this.#votes[answer]);
  }

  /** Another run is shown: close a question about the previous one; a general question stays. */
  shown() {
    if (this.#question?.reveal) this.#close();
    else if (this.isGuessing) queueMicrotask(() => this.#hold()); // once the run is there
  }

  toggleHelp() {
    if (this.#help.open) this.#help.close(); else openAtTop(this.#help);
  }

  /** Enter the full screen, and add a history entry so that the browser's Back leaves the stage. */
  #enter() {
    this.set(true);
    this.#fillScreen();
    try {
      history.pushState({ ...history.state, isStage: true }, "");
    } catch { /* some browsers forbid it in a file from disk */ }
  }

  /** Some browsers refuse it. If a browser lends the key Esc, it first closes what is open. */
  async #fillScreen() {
    try {
      await document.documentElement.requestFullscreen?.();
      await keyboardOf(navigator)?.lock?.(["Escape"]);
    } catch (error) {
      console.info("specviz: no full screen:", error);
    }
  }

  /** The stage was switched on or off, or resized. */
  #changed() {
    const { address, quiz, shownRun, view } = this.#page;
    address.change({ stage: this.isOn });
    if (this.isOn) {
      shownRun.recordings.fetchAll();
      quiz.fetchAhead();
    }
    view.requestDraw();
  }

  /** Hold both lanes at their start while a question is open: they would give the answer away. */
  #hold() {
    this.#page.replay.cancel();
    this.#page.timeline.seek(0);
  }

  /** @param {Question} question */
  #open(question) {
    this.#close();
    this.#question = question;
    this.#votes = question.answers.map(() => 0);
    find(this.#box, "p").textContent = question.text;
    const shorts = question.reveal ? question.short.map((short) => `${short}. `) : [];
    const buttons = question.answers.map((answer, vote) => {
      const count = element("b", "", "0");
      return element("button", "", `${shorts[vote] ?? ""}${answer} `, count, { dataset: { vote } });
    });
    find(this.#box, "div").replaceChildren(...buttons);
    this.#page.root.dataset.guess = "open";
    this.#box.hidden = false;
    this.#hold();
  }

  #reveal() {
    if (!this.#question) return;
    const { text, answers, short, reveal } = this.#question;
    this.#hide();
    const guesses = this.#votes.map((count, i) => `${count} ${short[i]}`).join(", ");
    this.#tally.textContent = `The room guessed: ${guesses}.`;
    this.#tally.hidden = this.#votes.every((count) => count === 0);
    if (!reveal) return;
    const { right, why } = reveal();
    const [question, answer, reason] = this.#answer.querySelectorAll("p");
    question.textContent = text;
    answer.textContent = `${short[right]}. ${answers[right]}`;
    reason.textContent = why;
    this.#answer.hidden = false;
    this.#page.root.dataset.answered = "true";
  }

  /** Close the question, and remove its answer. */
  #close() {
    this.#hide();
    this.#question = null;
    this.#tally.hidden = true;
    this.#answer.hidden = true;
    delete this.#page.root.dataset.answered;
  }

  #hide() {
    delete this.#page.root.dataset.guess;
    this.#box.hidden = true;
  }
}

/**
 * The keyboard, which some browsers lend to a page in full screen.
 * @param {Navigator & { keyboard?: { lock?: (keys: string[]) => Promise<void> } }} browser
 */
const keyboardOf = (browser) => browser.keyboard;

const LETTERS = ["A", "B", "C"];
const NOT_HERE = "The recording of this question could not be fetched: try again.";
const BUSY = "Wait for the run to end, or stop it: a question shows a recording.";

export class Quiz {
  #page;
  #fetched;
  #questions;
  #current = -1; // index of the shown question

  /** @param {Needs<"root" | "controls" | "config" | "notice" | "shownRun" | "stage" | "view">} page */
  constructor(page) {
    this.#page = page;
    const { root, config, notice, shownRun: { recordings } } = page;
    this.#fetched = notice.fetching(() => importPart("stage/questions.js"));
    const has = (/** @type {string | undefined} */ name) => name === undefined || recordings.has(name);
    this.#questions = config.questions.filter(({ run, beside }) => has(run) && has(beside));
    for (const node of findAll(root, "[data-needs-questions]", HTMLElement)) {
      node.hidden = !this.#questions.length;
    }
    root.classList.toggle("has-questions", this.hasQuestions);
    root.addEventListener("click", (event) => { if (closest(event, "[data-question]")) this.go(1); });
  }

  get hasQuestions() {
    return this.#questions.length > 0;
  }

  /** Fetch the questions now, in case the network is gone later. */
  fetchAhead() {
    if (this.hasQuestions) this.#fetched(true);
  }

  /** Ask the next or the previous question, on the stage. @param {1 | -1} by */
  async go(by) {
    const { controls, shownRun, notice, view, stage } = this.#page;
    if (!this.hasQuestions) return;
    if (shownRun.busy) {
      notice.show(BUSY);
      return;
    }
    const fetched = await this.#fetched();
    if (!fetched) return;
    const count = this.#questions.length;
    this.#current = (Math.max(this.#current, by < 0 ? 0 : -1) + by + count) % count;
    const { question, run: name, beside: other } = this.#questions[this.#current];
    const { answers, ask, reveal } = fetched.QUESTIONS[question];
    const beside = await shownRun.recordings.fetch(other ?? name).catch(() => null);
    const isShown = beside !== null && await shownRun.showNamed(name);
    const run = shownRun.trace;
    if (!isShown || !run) {
      notice.show(NOT_HERE, true);
      return;
    }
    view.closePanel();
    controls?.adopt(shownRun.controls);
    stage.ask({ text: ask(run, beside), answers, short: LETTERS, reveal: () => reveal(run, beside) });
  }
}
