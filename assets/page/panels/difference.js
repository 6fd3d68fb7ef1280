// "A tie or a bug?": has the server score the place where two greedy lanes part again, and shows
// what it found. "Run it again" works the same way: is the run that is shown what its models do?

import { element } from "specviz/dom/dom.js";
import { lastState, NO_ANSWER } from "specviz/dom/polling.js";
import { chance } from "specviz/words/reasons.js";
import { number } from "specviz/words/rules.js";
import { visible } from "specviz/words/words.js";

const STOP = "Stop";
const TIE_OFFLINE = "Whether this is a tie or a bug only the models can tell: run specviz explain-difference on the "
  + "recording.";
const BUSY = "Wait for the run to end: this check must not disturb it.";
const HOW = "The target reads the same text again, one token per pass and several, with fresh caches and with those of the "
  + "lane with drafts. Rounding moves all of these a little; a fault moves one of them far.";

const TIMES = "Its times are not compared: they are two measurements.";

/**
 * @template Wish
 * @typedef {object} CheckParts
 * @property {Server} server
 * @property {((wish: Wish) => Promise<ExperimentState>) | undefined} begin  none without a server
 * @property {string} ask  what the button says
 * @property {string} offline  what to say without a server
 * @property {string} mark  the button's attribute
 * @property {(result: any) => Node[]} found  draws the answer
 * @property {() => Wish | null} asked  what is asked, or null if there is nothing to ask
 * @property {() => boolean} isBusy  whether a run is under way
 */

/** The parts of "A tie or a bug?", beside what is asked.
 * @param {Server} server */
export const tieParts = (server) =>
  ({ server, begin: server.begin_difference, ask: "A tie or a bug?", offline: TIE_OFFLINE, mark: "difference", found });

/** The parts of "Run it again", beside what is asked.
 * @param {Server} server */
export const rerunParts = (server) =>
  ({ server, begin: server.begin_rerun, ask: "Run it again", offline: "", mark: "rerun", found: foundAgain });

/** @template Wish */
export class Check {
  node = element("div", "sv-experiment sv-difference");
  #parts;
  #button;
  #said = element("p");
  #result = element("div");
  /** @type {string | null} */
  #id = null; // null while nothing is checked
  #turn = 0; // tells answers to a check that was given up

  /** @param {CheckParts<Wish>} parts */
  constructor(parts) {
    this.#parts = parts;
    this.#button = element("button", "sv-button", parts.ask);
    this.#button.type = "button";
    this.#button.dataset[parts.mark] = "";
    this.#button.hidden = !parts.begin;
    this.#button.addEventListener("click", () => (this.#id === null ? this.#begin() : this.forget()));
    this.#said.setAttribute("role", "status");
    this.node.append(this.#button, this.#said, this.#result);
    this.forget();
  }

  /** Another run is shown, or nobody looks any more. */
  forget() {
    if (this.#id) this.#parts.server.end_job?.({ id: this.#id }).catch(() => {});
    this.#turn += 1;
    this.#id = null;
    this.#button.textContent = this.#parts.ask;
    this.#said.textContent = this.#parts.begin ? "" : this.#parts.offline;
    this.#result.replaceChildren();
  }

  async #begin() {
    const wish = this.#parts.asked();
    if (!wish) return;
    this.forget();
    if (this.#parts.isBusy()) {
      this.#said.textContent = BUSY;
      return;
    }
    const turn = this.#turn;
    this.#id = "";
    this.#button.textContent = STOP;
    try {
      await this.#ask(wish, turn);
    } catch {
      if (turn === this.#turn) this.#finish({ over: true, error: NO_ANSWER });
    }
  }

  /**
   * @param {Wish} wish
   * @param {number} turn
   */
  async #ask(wish, turn) {
    const { server, begin } = this.#parts;
    const state = await lastState(server, begin?.(wish), () => turn === this.#turn, ({ id, status }) => {
      this.#id = id ?? "";
      this.#said.textContent = status ?? "";
    });
    if (state) this.#finish(state);
  }

  /** @param {Omit<ExperimentState, "result"> & { result?: any }} state */
  #finish({ error, stopped, result }) {
    this.#id = null;
    this.#button.textContent = this.#parts.ask;
    this.#said.textContent = error ?? (stopped ? "Stopped before it could tell." : "");
    if (result) this.#result.replaceChildren(...this.#parts.found(result));
  }
}

/**
 * Whether a second run was the same.
 * @param {{ same: boolean, lines: string[] }} result
 */
export const foundAgain = ({ same, lines: [answer, ...more] }) => [
  element("p", `sv-lead sv-found is-${same ? "tie" : "bug"}`, answer),
  ...more.map((line) => element("p", "", line)), element("p", "", TIMES),
];

/**
 * A run as the server reads it: without texts of alternatives, which are most of it, and without
 * the margins that follow from them.
 * @param {Trace} trace
 */
export const bareOf = ({ header, rounds, end }) => ({
  schema: 1, header,
  end: end && {
    ...withoutMargin(end),
    ...end.lanes && { lanes: Object.fromEntries(Object.entries(end.lanes).map(([name, one]) => [name, withoutMargin(one)])) },
  },
  rounds: rounds.map((round) => ({ ...round, drafted: round.drafted.map(bare), emitted: round.emitted.map(bare) })),
});

/**
 * @template {Agreement} One
 * @param {One} said
 */
const withoutMargin = (said) => (said.divergence ? { ...said, divergence: { ...said.divergence, margin: null } } : said);

/** @param {Token} token */
const bare = ({ top_p, top_q, top_residual, ...token }) => token;

/**
 * What was found, as a verdict, a table and the reasons.
 * @param {DifferenceResult} result
 */
export function found({ verdict, summary, ours, theirs, scored, rounding, held, judged, reasons }) {
  const answer = element("p", `sv-lead sv-found is-${verdict}`, summary);
  const table = element("table", "sv-scored");
  const head = element("tr");
  head.append(element("th", "", "the place, scored by"), element("th", "", `“${visible(ours)}”`),
    element("th", "", `“${visible(theirs)}”`), element("th", "", "apart, nats"));
  table.append(head, ...scored.map((one) => {
    const row = element("tr");
    row.append(element("td", "", one.name), element("td", "", chance(one.p_ours)), element("td", "", chance(one.p_theirs)),
      element("td", "", signed(one.apart)));
    return row;
  }));
  const control = `Rounding moves logits by up to ${number(rounding)} nats here. As a control the target drafted for `
    + `itself: ${held} of ${judged} guesses held.`;
  const why = element("ul");
  why.append(...reasons.map((reason) => element("li", "", reason)));
  return [answer, ...reasons.length ? [why] : [], table, element("p", "", control), element("p", "", HOW)];
}

/** @param {number} value */
const signed = (value) => `${value < 0 ? "−" : "+"}${number(Math.abs(value))}`;
