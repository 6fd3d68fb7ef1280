// The shown run: a live one, a recording, or the rounds of an interrupted run.

import { presetFor } from "specviz/run/address.js";
import { isStill, pause } from "specviz/dom/dom.js";
import { keep, taken } from "specviz/dom/kept.js";
import { areShownOf, controlsOf, differences, pairBeside } from "specviz/run/controls.js";
import { asTrace, interrupt } from "specviz/facts/trace.js";
import { Recordings } from "specviz/run/recordings.js";
import { mismatchOf } from "specviz/words/moment.js";
import { Store } from "specviz/run/store.js";

const CROWDED_AFTER = 1500; // ms without an answer to Run
const SLOW_AFTER = 4000; // ms without an answer to a plain question
const DEAD_AFTER = 60_000; // ms without an answer: a connection can break silently
const RETRY_EVERY = 2000; // ms between questions whether the server is back
const ASKING = "Asking the server.";
const CROWDED = "The server is busy: your run is in line.";
const SLOW = "The server is slow to answer: your run is in line and begins as soon as possible.";
const LOST = "The connection to the server was lost. Received results are kept; waiting for the server.";
const BACK = "The server is back, but your run is gone: press Run to start it again.";
const RELOADED = "Reloading the page ended your run; this is the part that had arrived. "
  + "Press Run to start it again.";
const RELOADED_EARLY = "Reloading the page ended your run before its first token. "
  + "Press Run to start it again.";
const INTERRUPTED = "specviz-interrupted"; // the received part of a run
const UNBEGUN = "specviz-unbegun"; // whether a run was left before its first token
const FROM_FILE = "RECORDED (opened from a file)";
const LEFT_OUT = "Parts of this link are not valid here and were ignored";
const NOT_LISTED = "This page runs only the pairs in its list, so the pair in the link was ignored";

/**
 * The events of the shown run.
 * @typedef {object} ShownRunEvents
 * @property {() => void} begun  a live run has begun, without a result so far
 * @property {(pending: PendingRun) => void} pending  the state of that run has changed, without a result
 * @property {() => void} restored  that run is given up: the previous one is shown again
 * @property {(trace: Trace, origin: string) => void} shown  another trace is shown from now on
 * @property {(rounds: Round[]) => void} rounds  the live run has new rounds
 * @property {(trace: Trace) => void} replaced  some rounds of the live run were replaced
 * @property {() => void} over  the live run has ended, with or without an error
 */

export class ShownRun {
  busy = false; // a live run is under way
  failed = false; // whether the newest live run has failed
  pending = /** @type {PendingRun | null} */ (null); // the requested run, until its header arrives
  origin = ""; // the origin of the shown run, in words
  /** @type {"live" | "recording"} */
  source = "live";
  isFromFile = false; // whether the shown run was opened from a visitor's file
  recordings;
  #ran = /** @type {Value[]} */ ([]); // the values of the controls for the shown live run
  #wanted = /** @type {Value[]} */ ([]); // the same for the newest live run
  #page;
  #on;
  #store;
  #lost = false; // the connection, while a run was under way
  #isAsked = false; // whether a requested run has not begun on the server
  #refusals = 0; // runs that the server has refused
  #name = /** @type {string | null} */ (null); // of the shown recording of the page
  #showings = 0; // counts shown runs: a recording that arrives after another run was shown is dropped

  /**
   * @param {PageGround & Needs<"timeline" | "replay" | "controls">} page
   *   its timeline gets the rounds of the shown run
   * @param {ShownRunEvents} on
   */
  constructor(page, on) {
    this.#page = page;
    this.#on = on;
    const { address, config, notice, server, timeline } = page;
    this.recordings = new Recordings(config.recordings);
    this.#store = new Store({
      schema: config.schema,
      ask: async (run, seq) => (await server.missed?.({ run, seq })) ?? null,
      on: {
        begun: () => this.#begin(),
        header: (trace) => {
          this.#showings += 1;
          this.pending = null;
          this.#name = null;
          this.#ran = this.#wanted;
          this.isFromFile = false;
          this.#announce(trace, "live", "LIVE");
          timeline.clear(true);
          address.change({ recording: null });
        },
        rounds: (rounds) => {
          notice.clear();
          timeline.add(rounds);
          on.rounds(rounds);
        },
        replaced: (trace) => {
          timeline.replace(trace.rounds);
          on.replaced(trace);
        },
        status: (text, left) => {
          if (this.pending) this.#await(text, left);
          else notice.wait(text);
        },
        over: (error, fallBack, remark) => this.#finish(error, fallBack, remark),
        lost: () => this.#reconnect(),
      },
    });
    addEventListener("pagehide", () => {
      const { trace } = this;
      if (this.pending) { // the shown run is another one
        keep(UNBEGUN, true);
        return;
      }
      const isLeft = (this.busy || this.#lost) && this.source === "live";
      if (isLeft && trace?.rounds.length) keep(INTERRUPTED, trace);
    });
  }

  /** The shown trace. */
  get trace() {
    return this.#store.trace;
  }

  /** The id of the newest live run. */
  get newestRun() {
    return this.#store.run;
  }

  /** The id of the shown run if it is live, else null. */
  get liveRun() {
    return this.source === "live" ? this.newestRun : null;
  }

  /** Whether the shown run is the visitor's, not a recording of the page. */
  get isVisitors() {
    return this.source === "live" || this.isFromFile;
  }

  /** The values of the controls that would give the shown run; empty without one. */
  get controls() {
    if (!this.trace) return [];
    if (this.source === "live") return this.#ran;
    const { address, config } = this.#page;
    return controlsOf(this.trace.header, config, address.settings);
  }

  /** The controls that differ from them. */
  get differences() {
    const { controls } = this;
    const { address, config } = this.#page;
    return controls.length ? differences(address.state.values, controls, config) : new Map();
  }

  /** Whether the shown recording is of the pair that is not here yet. */
  get isOfAwaited() {
    const { config } = this.#page;
    const { pending, source, trace } = this;
    if (!config.awaited || pending || !trace || source !== "recording") return false;
    return areShownOf(trace.header, config.awaited.pair, config);
  }

  /** The note on a shown run that does not match the controls. */
  get mismatch() {
    const { address, config } = this.#page;
    const { busy, differences, source, trace } = this;
    if (!config.served || this.pending || !trace) return { text: "", isFaded: false };
    const isUsual = ["pair", "weights"].every((name) => address.settings[name] === config.defaults[name]);
    const isOwnPreset = isUsual && this.#name !== null && address.chosen?.name === this.#name;
    if (isOwnPreset && this.isOfAwaited) return { text: "", isFaded: false }; // there is a note by the lanes
    const isOther = differences.has("target")
      && !areShownOf(trace.header, String(address.settings.pair), config); // or only the target's bits differ
    const pair = pairBeside(trace.header, config);
    return mismatchOf({ source, differences, isOtherPair: isOther, isOwnPreset, isBusy: busy, pair });
  }

  /** @param {Delta} delta */
  receive(delta) {
    this.#store.receive(delta);
  }

  /** Begin a visit with the received part of a run before a reload, or with a recording. */
  async open() {
    const { address: { asked }, config, notice, timeline } = this.#page;
    const interrupted = config.trace ? null : taken(INTERRUPTED);
    const name = this.recordings.first(asked.recording, presetFor(asked, config)?.name);
    if (config.trace) this.show(asTrace(config.trace));
    else if (interrupted) {
      this.show(asTrace(interrupted));
      timeline.seek(Infinity);
      notice.show(RELOADED);
    } else if (name) await this.showNamed(name);
    if (taken(UNBEGUN)) notice.show(RELOADED_EARLY);
    const others = asked.wrong.filter((name) => !["pair", "target", "draft"].includes(name));
    const remarks = asked.wrong.length > others.length ? [`${NOT_LISTED}.`] : [];
    if (others.length) remarks.push(`${LEFT_OUT}: ${others.join(", ")}.`);
    if (remarks.length) notice.mention(remarks.join(" "));
  }

  /**
   * Play a finished trace.
   * @param {Trace} trace
   * @param {object} [about]
   * @param {string} [about.origin]  the words of its badge
   * @param {string | null} [about.name]  of the recording
   * @param {boolean} [about.isFromFile]
   */
  show(trace, { origin = "RECORDED", name = null, isFromFile = false } = {}) {
    const { address, shell, timeline } = this.#page;
    this.#showings += 1;
    if (this.busy) {
      this.busy = false;
      this.#store.drop();
      shell.stop();
    }
    this.failed = false;
    this.pending = null;
    this.#name = name;
    interrupt(trace);
    this.#store.show(trace);
    this.isFromFile = isFromFile;
    this.#announce(trace, "recording", trace.end ? origin : withInterrupted(origin));
    timeline.clear(false);
    timeline.add(trace.rounds);
    if (isStill()) timeline.seek(Infinity);
    else timeline.begin();
    address.change({ recording: name });
  }

  /** Play a trace from a visitor's file, which sets the prompt and the settings. @param {Trace} trace */
  showFile(trace) {
    this.show(trace, { origin: FROM_FILE, isFromFile: true });
    this.#page.controls?.adopt(this.controls);
  }

  /**
   * Show a recording of the page; false if it could not be fetched.
   * @type {(name: string, origin?: string) => Promise<boolean>}
   */
  async showNamed(name, origin) {
    this.#showings += 1;
    const showing = this.#showings;
    try {
      const trace = await this.recordings.fetch(name);
      if (showing === this.#showings && !this.busy) this.show(trace, { origin, name });
      return true;
    } catch (error) {
      console.info("specviz: a recording cannot be shown:", error);
      return false;
    }
  }

  /** Wait for a run to begin, and show its state even if the server is gone. */
  async awaitRun() {
    const { newestRun: before } = this;
    const refusals = this.#refusals;
    const isAwaited = () => this.pending !== null && this.newestRun === before && this.#refusals === refusals;
    this.#page.notice.clear();
    this.#page.replay.cancel();
    this.#page.timeline.pause();
    this.pending = null;
    this.#isAsked = true;
    this.#await(ASKING);
    await pause(CROWDED_AFTER);
    if (!isAwaited()) return;
    this.#await(CROWDED);
    const isThere = await this.#isServerThere(() => { if (isAwaited()) this.#await(SLOW); });
    if (!isThere && isAwaited()) this.#reconnect();
  }

  /** The server has refused a run. @param {string} sentence */
  refuse(sentence) {
    this.#refusals += 1;
    this.#isAsked = false;
    this.#giveUp();
    this.#page.notice.show(sentence, true);
  }

  /**
   * Set the state of the requested run, which has not begun.
   * @type {(phase: string, left?: number | null) => void}
   */
  #await(phase, left = null) {
    const now = performance.now();
    const prompt = String(this.#page.address.state.values[0] ?? "");
    this.pending = { prompt, since: now, ...this.pending, phase, left, estimatedAt: now };
    this.#on.pending(this.pending);
  }

  /** Give the requested run up, and show the previous run again. */
  #giveUp() {
    if (!this.pending) return;
    this.pending = null;
    this.#on.restored();
  }

  #begin() {
    this.busy = true;
    this.#isAsked = false;
    this.#wanted = this.#page.address.state.values;
    this.failed = false;
    this.#lost = false;
    this.#page.notice.clear();
    this.#page.timeline.pause();
    this.#await(this.pending?.phase ?? ASKING);
    this.#on.begun();
  }

  /** @type {(trace: Trace, source: "live" | "recording", origin: string) => void} */
  #announce(trace, source, origin) {
    this.#page.notice.clear();
    this.source = source;
    this.origin = origin;
    this.#on.shown(trace, origin);
  }

  /**
   * @param {string | null} error
   * @param {boolean} fallBack whether a recording should take the run's place
   * @param {string} remark
   */
  async #finish(error, fallBack = false, remark = "") {
    this.busy = false;
    if (!this.#isAsked) this.#giveUp(); // else an earlier run has ended
    if (this.source === "live" && this.trace) interrupt(this.trace);
    this.#page.timeline.finish();
    const recorded = error ? this.#substitute(fallBack) : null;
    if (error && recorded) {
      console.info("specviz: live failed:", error);
      if (await this.showNamed(recorded, "RECORDED (live failed)")) {
        if (fallBack) this.#page.notice.show(error, true);
        return;
      }
    }
    this.failed = Boolean(error);
    this.#page.notice.show(error ?? remark, this.failed);
    this.#on.over();
  }

  // The recording to show for a failed run. Without a machine, another preset's is better than none; on
  // stage, a recording is better than an error.
  /** @param {boolean} fallBack */
  #substitute(fallBack) {
    const name = this.#page.address.preset?.name;
    if (fallBack) return this.recordings.first(name);
    return this.#page.address.state.stage && name && this.recordings.has(name) ? name : null;
  }

  /** Show that the server is gone, and later that it is back. */
  async #reconnect() {
    const before = this.newestRun;
    this.#lost = true;
    this.#isAsked = false;
    await this.#finish(LOST);
    while (!(await this.#isServerThere())) await pause(RETRY_EVERY);
    if (this.newestRun === before && !this.busy) this.#page.notice.show(BACK);
  }

  // Only a failed question means that the server is gone: one without an answer may be in a long line.
  /** @param {() => void} [onSlow]  called if the answer is late */
  async #isServerThere(onSlow = () => {}) {
    const question = this.#page.server.missed?.({ run: "", seq: 0 });
    const waiting = setTimeout(onSlow, SLOW_AFTER);
    const answer = await Promise.race([question, pause(DEAD_AFTER)]).catch(() => null);
    clearTimeout(waiting);
    return Array.isArray(answer);
  }
}

/** @param {string} origin of a run that has no end */
const withInterrupted = (origin) =>
  (origin.endsWith(")") ? origin.replace(/\)$/, ", interrupted)") : `${origin} (interrupted)`);
