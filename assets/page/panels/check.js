// Checks of the shown run by the models: do two lanes diverge by a tie or a bug, does the same run give
// the same result, do both lanes draw from the same distribution. Starts a job on the server, polls its
// progress and shows its result.

import { element, pause, table } from "specviz/dom/dom.js";
import { resultOf } from "specviz/panels/same.js";
import { chance, number } from "specviz/words/reasons.js";
import { visible } from "specviz/words/words.js";

const ASK_EVERY = 400; // ms
const TIE_OFFLINE = "Only the models can tell whether this is a tie or a bug: run specviz explain-difference "
  + "on the recording.";
const DRAWS_OFFLINE = "This experiment needs the models, so a saved page does not have it.";
const BUSY = "Wait for the run to end: this would slow it down.";
const NO_ANSWER = "The server did not answer: try again.";
const HOW = "The target reads the same text again, with one token per pass and with several, with new caches "
  + "and with those of the lane with drafts. Rounding changes all of these results a little; a bug changes "
  + "one of them a lot.";
const TIMES = "The times are not compared: they vary from run to run.";

/** @typedef {(wish: any, again: number) => Promise<ExperimentState>} Begin */

/**
 * What one of the checks asks for and shows.
 * @typedef {object} CheckKind
 * @property {Begin | undefined} begin  none without a server
 * @property {string} ask  label of the button
 * @property {string} [again]  its label after the first answer
 * @property {string} [stop]
 * @property {string} [offline]  the sentence without a server
 * @property {string} mark
 * @property {(result: any, draws: number) => Node[]} drawResult
 */

/**
 * @param {Server} server
 * @param {number} draws  in each lane
 * @returns {Record<"tie" | "rerun" | "draws", CheckKind>}
 */
export function checkKinds(server, draws) {
  const { begin_difference: tie, begin_rerun: rerun, begin_sampling: sampling } = server;
  return {
    tie: {
      begin: tie && ((wish) => tie(wish)),
      ask: "A tie or a bug?",
      offline: TIE_OFFLINE,
      mark: "difference",
      drawResult: explained,
    },
    rerun: {
      begin: rerun && (({ run, trace }) => rerun({ run, trace })),
      ask: "Run it again",
      mark: "rerun",
      drawResult: rerunResult,
    },
    draws: {
      begin: sampling && ((wish, again) => sampling({ ...wish, again, draws })),
      ask: `Draw ${draws} in each lane`,
      again: "Draw again",
      stop: "Stop drawing",
      offline: DRAWS_OFFLINE,
      mark: "draws",
      drawResult: (result, drawCount) => [resultOf(result, drawCount)],
    },
  };
}

export class Check {
  node;
  #page;
  #kind;
  #makeWish;
  #button = element("button", "sv-button");
  #bar = element("progress", "", { hidden: true });
  #status = element("p", "", { role: "status" });
  #result = element("div");
  /** @type {string | null} */
  #id = null; // of the job; "" until the server has sent it; null without a job
  #count = 0; // jobs about this run so far
  #turn = 0; // identifies answers to a job that was given up

  /**
   * @param {Needs<"server" | "shownRun">} page
   * @param {CheckKind} kind
   * @param {() => object | null} makeWish  makes the request, null if there is nothing to ask about
   */
  constructor(page, kind, makeWish) {
    this.#page = page;
    this.#kind = kind;
    this.#makeWish = makeWish;
    this.#button.hidden = !kind.begin;
    this.#button.onclick = () => (this.#id === null ? this.#begin() : this.end());
    const name = `sv-experiment is-${kind.mark}`;
    this.node = element("div", name, this.#button, this.#bar, this.#status, this.#result);
    this.forget();
  }

  end() {
    if (this.#id) this.#page.server.end_job?.({ id: this.#id }).catch(() => {});
    this.#turn += 1;
    if (this.#id !== null) this.#finish({ over: true, stopped: true });
  }

  /** Another run is shown: drop the result about the previous one. */
  forget() {
    this.end();
    const { ask, begin, offline = "" } = this.#kind;
    this.#count = 0;
    this.#button.textContent = ask;
    this.#status.textContent = begin ? "" : offline;
    this.#result.replaceChildren();
  }

  async #begin() {
    const wish = this.#makeWish();
    if (!wish) return;
    if (this.#page.shownRun.busy) {
      this.#status.textContent = BUSY;
      return;
    }
    this.#turn += 1;
    const turn = this.#turn;
    this.#id = "";
    this.#result.replaceChildren();
    this.#show({ over: false, status: "Waiting for the models." });
    try {
      await this.#follow(this.#kind.begin?.(wish, this.#count), turn);
    } catch {
      if (turn === this.#turn) this.#finish({ over: true, error: NO_ANSWER });
    }
  }

  /** @type {(begun: Promise<ExperimentState> | undefined, turn: number) => Promise<void>} */
  async #follow(begun, turn) {
    this.#count += 1;
    let state = await begun;
    while (turn === this.#turn && state?.id && !state.over) {
      const { id } = state;
      this.#id = id;
      this.#show(state);
      await pause(ASK_EVERY);
      if (turn === this.#turn) state = await this.#page.server.ask_job?.({ id });
    }
    if (turn !== this.#turn) {
      if (state?.id) this.#page.server.end_job?.({ id: state.id });
    } else if (state) this.#finish(state);
    else throw new Error("the server gave no answer");
  }

  /** @param {ExperimentState} state */
  #show({ done = 0, draws = 0, status = "" }) {
    this.#button.textContent = this.#kind.stop ?? "Stop";
    this.#bar.hidden = !draws;
    Object.assign(this.#bar, { max: draws || 1, value: done });
    this.#status.textContent = done ? `${done} of ${draws} draws in each lane` : status;
  }

  /** @param {ExperimentState} state */
  #finish({ error, stopped, result, draws = 0 }) {
    const { ask, again = ask, drawResult } = this.#kind;
    this.#id = null;
    this.#bar.hidden = true;
    this.#button.textContent = this.#count ? again : ask;
    this.#status.textContent = error ?? (stopped ? "Stopped before there was a result." : "");
    if (result) this.#result.replaceChildren(...drawResult(result, draws));
  }
}

/** Whether a second run was the same. @param {{ same: boolean, lines: string[] }} result */
function rerunResult({ same, lines: [answer, ...differences] }) {
  const kind = same ? "is-tie" : "is-bug";
  return [
    element("p", `sv-lead sv-found ${kind}`, answer),
    ...differences.map((line) => element("p", "", line)),
    element("p", "", TIMES),
  ];
}

/** Why two lanes diverged: a verdict, its reasons and a table. @param {DifferenceResult} result */
function explained({ verdict, summary, ours, theirs, scored, rounding, held, judged, reasons }) {
  const head = ["scored by", `“${visible(ours)}”`, `“${visible(theirs)}”`, "apart, nats"];
  const rows = scored.map(({ name, p_ours: p, p_theirs: other, apart }) => {
    const sign = apart < 0 ? "−" : "+";
    return [name, chance(p), chance(other), sign + number(Math.abs(apart))];
  });
  const control = `Rounding changes logits by up to ${number(rounding)} nats here. As a control, the target `
    + `drafted for itself: ${held} of ${judged} guesses were accepted.`;
  const items = reasons.map((reason) => element("li", "", reason));
  return [
    element("p", `sv-lead sv-found is-${verdict}`, summary),
    ...(items.length ? [element("ul", "", ...items)] : []),
    table("sv-scored", head, rows),
    element("p", "", control),
    element("p", "", HOW),
  ];
}

/**
 * A run in the form that the server reads: without the alternatives of tokens, which are most of its bytes,
 * and without the margins that follow from them.
 * @param {Trace} trace
 */
export const bareOf = ({ schema, header, rounds, end }) => ({
  schema,
  header,
  end: end && bareEnd(end),
  rounds: rounds.map((round) => ({
    ...round,
    drafted: round.drafted.map(bare),
    last: round.last && bare(round.last),
  })),
});

/** @param {End} end */
function bareEnd(end) {
  if (!end.lanes) return { ...end };
  const lanes = Object.entries(end.lanes).map(([name, agreement]) => [name, withoutMargin(agreement)]);
  return { ...end, lanes: Object.fromEntries(lanes) };
}

/** @param {Agreement} agreement */
function withoutMargin(agreement) {
  const { divergence } = agreement;
  return divergence ? { ...agreement, divergence: { ...divergence, margin: null } } : agreement;
}

/** @param {Token} token */
const bare = ({ top_p, top_q, top_residual, ...token }) => token;
