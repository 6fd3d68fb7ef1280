// The shown run: a live one, a recording, or the rounds of an interrupted run.

import { presetFor } from "specviz/run/address.js";
import { isStill, pause } from "specviz/dom/dom.js";
import { keep, taken } from "specviz/dom/kept.js";
import { areShownOf, controlsOf, differences, pairBeside } from "specviz/run/controls.js";
import { asTrace, interrupt } from "specviz/facts/trace.js";
import { mismatchOf } from "specviz/words/moment.js";
import { Recordings, Store } from "specviz/run/store.js";

const CROWDED_AFTER = 1500; // ms without an answer to Run
const SLOW_AFTER = 4000; // ms without an answer to a plain request
const DEAD_AFTER = 60_000; // ms without an answer: a connection can break silently
const RETRY_EVERY = 2000; // ms between requests while the server is gone
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

/**
 * The phase of the newest live run. waiting: the server has begun it, without a result so far. live: its
 * rounds arrive. lost: the connection to the server is. idle: there is none, it has ended, or a recording has
 * taken its place.
 * @typedef {"idle" | "waiting" | "live" | "failed" | "lost"} Phase
 */

/**
 * What is known about the shown run besides its trace.
 * @typedef {object} Showing
 * @property {"live" | "recording"} source
 * @property {string} origin  in words
 * @property {string | null} name  of a recording of the page
 * @property {boolean} isFromFile  whether it was opened from a visitor's file
 * @property {Value[]} values  of the controls for a live run
 */

export class ShownRun {
  /** The run that the visitor waits for, from the press on Run until its header arrives. */
  pending = /** @type {PendingRun | null} */ (null);
  recordings;
  #page;
  #on;
  #store;
  #phase = /** @type {Phase} */ ("idle");
  /** The request of a run that the server has neither begun nor refused. */
  #request = /** @type {object | null} */ (null);
  #newestValues = /** @type {Value[]} */ ([]); // of the controls for the newest live run
  /** @type {Showing} */
  #showing = { source: "live", origin: "", name: null, isFromFile: false, values: [] };
  /** The recording that is being fetched: it is dropped if another run is shown before it arrives. */
  #fetchingName = /** @type {string | null} */ (null);

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
          this.#phase = "live";
          this.pending = null;
          const values = this.#newestValues;
          this.#show(trace, { source: "live", origin: "LIVE", name: null, isFromFile: false, values });
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
          if (this.pending) this.#showPending(text, left);
          else notice.wait(text);
        },
        over: (error, fallBack, remark) => this.#end(error ? "failed" : "idle", error ?? remark, fallBack),
        lost: () => this.#reconnect(),
      },
    });
    addEventListener("pagehide", () => {
      const { trace } = this;
      if (this.pending) { // the shown run is another one
        keep(UNBEGUN, true);
        return;
      }
      const isUnfinished = this.busy || this.#phase === "lost";
      if (isUnfinished && this.source === "live" && trace?.rounds.length) keep(INTERRUPTED, trace);
    });
  }

  /** Whether a live run is under way on the server. */
  get busy() {
    return this.#phase === "waiting" || this.#phase === "live";
  }

  /** Whether the newest live run has failed. */
  get failed() {
    return this.#phase === "failed" || this.#phase === "lost";
  }

  get source() {
    return this.#showing.source;
  }

  /** The origin of the shown run, in words. */
  get origin() {
    return this.#showing.origin;
  }

  /** Whether the shown run was opened from a visitor's file. */
  get isFromFile() {
    return this.#showing.isFromFile;
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
    if (this.source === "live") return this.#showing.values;
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
    const { name } = this.#showing;
    const isOwnPreset = isUsual && name !== null && address.chosen?.name === name;
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
    if (this.busy) {
      this.#store.drop();
      shell.stop();
    }
    this.#phase = "idle";
    this.#request = null;
    this.pending = null;
    interrupt(trace);
    this.#store.show(trace);
    const words = trace.end ? origin : withInterrupted(origin);
    this.#show(trace, { source: "recording", origin: words, name, isFromFile, values: [] });
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
    this.#fetchingName = name;
    try {
      const trace = await this.recordings.fetch(name);
      if (this.#fetchingName === name && !this.busy) this.show(trace, { origin, name });
      return true;
    } catch (error) {
      console.info("specviz: a recording cannot be shown:", error);
      return false;
    }
  }

  /** The visitor has requested a run: show its state until it begins, even if the server is gone. */
  async beginWaiting() {
    const request = {};
    const isWaiting = () => this.#request === request;
    this.#page.notice.clear();
    this.#page.replay.cancel();
    this.#page.timeline.pause();
    this.#request = request;
    this.pending = null;
    this.#showPending(ASKING);
    await pause(CROWDED_AFTER);
    if (!isWaiting()) return;
    this.#showPending(CROWDED);
    const isThere = await this.#isServerThere(() => { if (isWaiting()) this.#showPending(SLOW); });
    if (!isThere && isWaiting()) this.#reconnect();
  }

  /** The server has refused a run. @param {string} sentence */
  refuse(sentence) {
    this.#request = null;
    this.#giveUp();
    this.#page.notice.show(sentence, true);
  }

  /**
   * Set the state of the run that the visitor waits for.
   * @type {(status: string, left?: number | null) => void}
   */
  #showPending(status, left = null) {
    const now = performance.now();
    const prompt = String(this.#page.address.state.values[0] ?? "");
    this.pending = { prompt, since: now, ...this.pending, status, left, estimatedAt: now };
    this.#on.pending(this.pending);
  }

  /** Give the pending run up, and show the previous run again. */
  #giveUp() {
    if (!this.pending) return;
    this.pending = null;
    this.#on.restored();
  }

  /** The server has begun the requested run. */
  #begin() {
    this.#phase = "waiting";
    this.#request = null;
    this.#newestValues = this.#page.address.state.values;
    this.#page.notice.clear();
    this.#page.timeline.pause();
    this.#showPending(this.pending?.status ?? ASKING);
    this.#on.begun();
  }

  /** Another trace is shown from now on. @type {(trace: Trace, showing: Showing) => void} */
  #show(trace, showing) {
    this.#fetchingName = null;
    this.#page.notice.clear();
    this.#showing = showing;
    this.#on.shown(trace, showing.origin);
  }

  /**
   * The newest live run has ended.
   * @param {"idle" | "failed" | "lost"} phase
   * @param {string} sentence  the error, or a remark
   * @param {boolean} fallBack  whether a recording should take the run's place
   */
  async #end(phase, sentence, fallBack = false) {
    this.#phase = "idle";
    if (!this.#request) this.#giveUp(); // else an earlier run has ended
    if (this.source === "live" && this.trace) interrupt(this.trace);
    this.#page.timeline.finish();
    const recorded = phase === "idle" ? null : this.#substitute(fallBack);
    if (recorded) {
      console.info("specviz: live failed:", sentence);
      if (await this.showNamed(recorded, "RECORDED (live failed)")) {
        if (fallBack) this.#page.notice.show(sentence, true);
        return;
      }
      if (this.busy) return; // the next run has begun meanwhile
    }
    this.#phase = phase;
    this.#page.notice.show(sentence, this.failed);
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
    this.#request = null;
    await this.#end("lost", LOST);
    while (!(await this.#isServerThere())) await pause(RETRY_EVERY);
    if (this.newestRun === before && !this.busy) this.#page.notice.show(BACK);
  }

  // Only a failed request means that the server is gone: one without an answer may be in a long line.
  /** @param {() => void} [onSlow]  called if the answer is late */
  async #isServerThere(onSlow = () => {}) {
    const request = this.#page.server.missed?.({ run: "", seq: 0 });
    const waiting = setTimeout(onSlow, SLOW_AFTER);
    const answer = await Promise.race([request, pause(DEAD_AFTER)]).catch(() => null);
    clearTimeout(waiting);
    return Array.isArray(answer);
  }
}

/** @param {string} origin of a run that has no end */
const withInterrupted = (origin) =>
  (origin.endsWith(")") ? origin.replace(/\)$/, ", interrupted)") : `${origin} (interrupted)`);
