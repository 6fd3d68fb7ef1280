// The panel "A model that you cannot load": a text that such a model wrote, and which of its tokens
// the loaded draft would have got right.

import { element } from "specviz/dom/dom.js";
import { GuessedText } from "specviz/panels/guessed.js";
import { lastState, NO_ANSWER } from "specviz/dom/polling.js";

const LEAD = "GPT-4 with a small draft? Its weights are not published, and its API tells no probabilities of given tokens, "
  + "so no guess can be checked and nothing can be sped up from outside.";
const OFFER = "What can be seen after the fact: paste a text that it wrote, and the draft that is loaded here guesses every "
  + "token from those before it.";
const BUSY = "Wait for the run to end: guessing must not disturb it.";
const ASK = "Let the draft guess";

/**
 * @typedef {object} ClosedParts
 * @property {Server} server
 * @property {number} mostGamma
 * @property {number} mostCharacters
 * @property {() => { run: string | null, prompt: string, text: string }} shown  the shown run and its text, if there are
 * @property {() => boolean} isBusy  whether a run is under way
 */

export class ClosedModel {
  node = element("div", "sv-closed");
  #parts;
  #text = element("textarea");
  #prompt = element("textarea");
  #continues = element("input");
  #take = element("button", "sv-link", "Take the text of the shown run");
  #button = element("button", "sv-button", ASK);
  #said = element("p");
  #result = element("div", "sv-guessed");
  /** @type {string | null} */
  #id = null; // "" until the server has given it one; null while nothing is guessed
  #turn = 0; // tells answers to a question that was given up

  /** @param {ClosedParts} parts */
  constructor(parts) {
    this.#parts = parts;
    const most = parts.mostCharacters;
    Object.assign(this.#text, { rows: 6, maxLength: most, placeholder: "Paste an answer of ChatGPT, Claude or Gemini here" });
    Object.assign(this.#prompt, { rows: 2, maxLength: most, placeholder: "Optional: the draft reads it first" });
    this.#continues.type = "checkbox";
    this.#button.type = this.#take.type = "button";
    this.#button.dataset.guessText = "";
    this.#button.addEventListener("click", () => (this.#id === null ? this.#begin() : this.end()));
    this.#take.addEventListener("click", () => this.#takeShown());
    this.#said.setAttribute("role", "status");
    const follows = element("label", "sv-check");
    follows.append(this.#continues, "the text goes on from it, instead of answering it");
    const actions = element("div", "sv-closed-actions");
    actions.append(this.#button, this.#take);
    this.node.append(element("p", "sv-lead", LEAD), element("p", "", OFFER), labelled("What it wrote", this.#text),
      labelled("What it was asked", this.#prompt), follows, actions, this.#said, this.#result);
  }

  /** Whether there is a server that can guess. */
  get isOffered() {
    return this.#parts.server.begin_guesses !== undefined;
  }

  /** The panel is opened. */
  show() {
    this.#take.hidden = !this.#parts.shown().text;
  }

  end() {
    if (this.#id) this.#parts.server.end_sampling?.({ id: this.#id }).catch(() => {});
    this.#turn += 1;
    if (this.#id !== null) this.#finish({ over: true, stopped: true });
  }

  #takeShown() {
    const { prompt, text } = this.#parts.shown();
    this.#text.value = text;
    this.#prompt.value = prompt;
    this.#continues.checked = true;
  }

  async #begin() {
    if (this.#parts.isBusy()) {
      this.#said.textContent = BUSY;
      return;
    }
    const { server } = this.#parts;
    const wish = {
      run: this.#parts.shown().run, text: this.#text.value.trimEnd(), prompt: this.#prompt.value,
      continues: this.#continues.checked,
    };
    const turn = ++this.#turn;
    this.#id = "";
    this.#button.textContent = "Stop";
    this.#said.textContent = "Asking for the models.";
    try {
      const state = await lastState(server, server.begin_guesses?.(wish), () => turn === this.#turn, ({ id, status }) => {
        this.#id = id ?? "";
        this.#said.textContent = status ?? "";
      });
      if (state) this.#finish(state);
    } catch {
      if (turn === this.#turn) this.#finish({ over: true, error: NO_ANSWER });
    }
  }

  /** @param {ExperimentState} state */
  #finish({ error, stopped, result }) {
    this.#id = null;
    this.#button.textContent = ASK;
    this.#said.textContent = error ?? (stopped ? "Stopped before the end of the text." : "");
    if (!result) return;
    const found = /** @type {GuessResult} */ (/** @type {unknown} */ (result));
    this.#result.replaceChildren(...new GuessedText(found, this.#parts.mostGamma).nodes);
    this.#result.scrollIntoView({ block: "nearest" });
  }
}

/**
 * @param {string} name
 * @param {HTMLElement} field
 */
function labelled(name, field) {
  const label = element("label", "", name);
  label.append(field);
  return label;
}
