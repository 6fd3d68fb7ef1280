// The stage: one screen for the last row, no controls, and questions to the room before a result is shown.

import { closest, closing, element, find, findAll, openAtTop } from "specviz/dom/dom.js";
import { importPart } from "specviz/dom/part.js";

/**
 * @typedef {object} Question
 * @property {string} text
 * @property {string[]} answers
 * @property {string[]} short  what the answers are called in the count of guesses
 * @property {() => Answer} [reveal]  the right answer, where it is not just the ratio
 */

/** @typedef {{ right: number, why: string }} Answer  the place of the right answer, and its reason */

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
  #question = null; // that is asked of what is shown, or was answered
  #votes = /** @type {number[]} */ ([]); // by answer

  /** @param {Needs<"root" | "address" | "replay" | "session" | "timeline" | "view" | "quiz">} page */
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
    // Whoever leaves the full screen by the browser's own key leaves the question, or else the stage.
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

  /** Whether something is asked, or was answered, of what is shown. */
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

  /** Take a question away, asked or answered. Whether there was one. */
  closeQuestion() {
    if (!this.isOn || !this.hasAsked) return false;
    this.#close();
    this.#changed();
    return true;
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
    this.#page.root.style.setProperty("--sv-size", String(SIZES[this.#size]));
    this.#changed();
  }

  /** Ask for a guess of the ratio, or reveal what was asked for. */
  guess() {
    const { timeline } = this.#page;
    if (this.isGuessing) {
      this.#reveal();
      if (timeline.live) timeline.follow(); else timeline.play();
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

  /** Someone in the room guesses. @param {number} place of the answer */
  vote(place) {
    if (!this.isGuessing || !(place in this.#votes)) return;
    this.#votes[place] += 1;
    find(this.#box, `[data-vote="${place}"] b`).textContent = String(this.#votes[place]);
  }

  /** Another run is shown: what was asked about the one before is over, what is asked of any stays. */
  shown() {
    if (this.#question?.reveal) this.#close();
    else if (this.isGuessing) queueMicrotask(() => this.#hold()); // once the run is there
  }

  toggleHelp() {
    if (this.#help.open) this.#help.close(); else openAtTop(this.#help);
  }

  /** The full screen, and a step in the history for the browser's Back to leave by. */
  #enter() {
    this.set(true);
    this.#fillScreen();
    try {
      history.pushState({ ...history.state, isStage: true }, "");
    } catch { /* some browsers forbid it in a file from disk */ }
  }

  /** Some browsers refuse it. Where one lends the key Esc, it closes what is open before the full screen. */
  async #fillScreen() {
    try {
      await document.documentElement.requestFullscreen?.();
      await keyboardOf(navigator)?.lock?.(["Escape"]);
    } catch (error) {
      console.info("specviz: no full screen:", error);
    }
  }

  /** The view has another shape. */
  #changed() {
    const { address, quiz, session, view } = this.#page;
    address.change({ stage: this.isOn });
    if (this.isOn) {
      session.recordings.fetchAll();
      quiz.fetchAhead();
    }
    view.requestDraw();
  }

  /** Both lanes stay at their start while something is asked: they would give it away. */
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

  /** Nothing is asked, and nothing that was answered stays. */
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
 * The keyboard as some browsers lend it to a page that fills the screen.
 * @param {Navigator & { keyboard?: { lock?: (keys: string[]) => Promise<void> } }} browser
 */
const keyboardOf = (browser) => browser.keyboard;

const LETTERS = ["A", "B", "C"];
const NOT_HERE = "The recording of this question did not arrive: try again.";
const BUSY = "Wait for the run to end, or stop it: a question shows a recording.";

export class Quiz {
  #page;
  #fetched;
  #questions;
  #place = -1; // of the question that is shown

  /** @param {Needs<"root" | "controls" | "config" | "notice" | "session" | "stage" | "view">} page */
  constructor(page) {
    this.#page = page;
    const { root, config, notice, session: { recordings } } = page;
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

  /** So that they are at hand when the network is not. */
  fetchAhead() {
    if (this.hasQuestions) this.#fetched(true);
  }

  /** Ask the next question or the one before, on the stage. @param {1 | -1} by */
  async go(by) {
    const { controls, session, notice, view, stage } = this.#page;
    if (!this.hasQuestions) return;
    if (session.busy) {
      notice.show(BUSY);
      return;
    }
    const fetched = await this.#fetched();
    if (!fetched) return;
    const count = this.#questions.length;
    this.#place = (Math.max(this.#place, by < 0 ? 0 : -1) + by + count) % count;
    const { question, run: name, beside: other } = this.#questions[this.#place];
    const { answers, ask, reveal } = fetched.QUESTIONS[question];
    const beside = await session.recordings.fetch(other ?? name).catch(() => null);
    const isShown = beside !== null && await session.showNamed(name);
    const run = session.trace;
    if (!isShown || !run) {
      notice.show(NOT_HERE, true);
      return;
    }
    view.closePanel();
    controls?.adopt(session.controls);
    stage.ask({ text: ask(run, beside), answers, short: LETTERS, reveal: () => reveal(run, beside) });
  }
}
