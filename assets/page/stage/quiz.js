// The stage's questions: each shows its recording, asks the room, and is answered by that run.

import { closest, findAll } from "specviz/dom/dom.js";
import { QUESTIONS } from "specviz/stage/questions.js";

/** @import { Notice } from "specviz/dom/notice.js" */
/** @import { Session } from "specviz/run/session.js" */
/** @import { Stage } from "specviz/stage/stage.js" */

const LETTERS = ["A", "B", "C"];
const NOT_HERE = "The recording of this question did not arrive: try again.";
const BUSY = "Wait for the run to end, or stop it: a question shows a recording.";

export class Quiz {
  #session;
  #stage;
  #notice;
  #closePanel;
  #adopt;
  #questions;
  #place = -1; // of the question that is shown

  /**
   * @param {HTMLElement} root
   * @param {{ asked: Config["questions"], session: Session, stage: Stage, notice: Notice, closePanel: () => void, adopt: () => void }} parts
   *   asked: the questions, with the recordings that answer them; adopt: sets the page's controls to those of the run that is shown
   */
  constructor(root, { asked, session, stage, notice, closePanel, adopt }) {
    this.#closePanel = closePanel;
    this.#adopt = adopt;
    this.#session = session;
    this.#stage = stage;
    this.#notice = notice;
    const has = (/** @type {string | undefined} */ name) => name === undefined || session.recordings.has(name);
    this.#questions = asked.filter(({ run, beside }) => has(run) && has(beside));
    for (const node of findAll(root, "[data-needs-questions]", HTMLElement)) node.hidden = !this.#questions.length;
    root.classList.toggle("has-questions", this.#questions.length > 0);
    root.addEventListener("click", (event) => { if (closest(event, "[data-question]")) this.go(1); });
  }

  get hasQuestions() {
    return this.#questions.length > 0;
  }

  /**
   * Ask the next question or the one before, on the stage.
   * @param {1 | -1} by
   */
  async go(by) {
    if (!this.hasQuestions) return;
    if (this.#session.busy) {
      this.#notice.show(BUSY);
      return;
    }
    const count = this.#questions.length;
    this.#place = (Math.max(this.#place, by < 0 ? 0 : -1) + by + count) % count;
    const { question, run: name, beside: other } = this.#questions[this.#place];
    const { answers, ask, reveal } = QUESTIONS[question];
    const beside = await this.#session.recordings.fetch(other ?? name).catch(() => null);
    const isShown = beside !== null && await this.#session.showNamed(name);
    const run = this.#session.trace;
    if (!isShown || !run) {
      this.#notice.show(NOT_HERE, true);
      return;
    }
    this.#closePanel();
    this.#adopt();
    this.#stage.ask({ text: ask(run, beside), answers, short: LETTERS, reveal: () => reveal(run, beside) });
  }
}
