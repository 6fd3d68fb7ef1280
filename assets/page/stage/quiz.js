// The stage's questions: each shows its recording, asks the room, and is answered by that run.

import { closest, findAll } from "specviz/dom/dom.js";
import { QUESTIONS } from "specviz/stage/questions.js";

const LETTERS = ["A", "B", "C"];
const NOT_HERE = "The recording of this question did not arrive: try again.";
const BUSY = "Wait for the run to end, or stop it: a question shows a recording.";

export class Quiz {
  #page;
  #questions;
  #place = -1; // of the question that is shown

  /** @param {PageParts} page */
  constructor(page) {
    this.#page = page;
    const { root, config, session: { recordings } } = page;
    const has = (/** @type {string | undefined} */ name) => name === undefined || recordings.has(name);
    this.#questions = config.questions.filter(({ run, beside }) => has(run) && has(beside));
    for (const node of findAll(root, "[data-needs-questions]", HTMLElement)) node.hidden = !this.#questions.length;
    root.classList.toggle("has-questions", this.hasQuestions);
    root.addEventListener("click", (event) => { if (closest(event, "[data-question]")) this.go(1); });
  }

  get hasQuestions() {
    return this.#questions.length > 0;
  }

  /** Ask the next question or the one before, on the stage. @param {1 | -1} by */
  async go(by) {
    const { session, notice, view, shell, stage } = this.#page;
    if (!this.hasQuestions) return;
    if (session.busy) {
      notice.show(BUSY);
      return;
    }
    const count = this.#questions.length;
    this.#place = (Math.max(this.#place, by < 0 ? 0 : -1) + by + count) % count;
    const { question, run: name, beside: other } = this.#questions[this.#place];
    const { answers, ask, reveal } = QUESTIONS[question];
    const beside = await session.recordings.fetch(other ?? name).catch(() => null);
    const isShown = beside !== null && await session.showNamed(name);
    const run = session.trace;
    if (!isShown || !run) {
      notice.show(NOT_HERE, true);
      return;
    }
    view.closePanel();
    shell.adopt();
    stage.ask({ text: ask(run, beside), answers, short: LETTERS, reveal: () => reveal(run, beside) });
  }
}
