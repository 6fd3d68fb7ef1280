// Where traces come from: the newest run, assembled from numbered deltas, and the recordings of the page.

import { once } from "specviz/dom/dom.js";
import { asEnd, asHeader, asRound, asTrace } from "specviz/facts/trace.js";

const ASK_AFTER = 4000; // ms without a delta of a live run before the server is asked
const LOST_AFTER = 60_000; // ms without a delta after which the server counts as lost

// Remove the empty fields that tokens are sent with, as the schema requires.
/** @type {(wire: WireRound) => Round} */
const rebuilt = (wire) => asRound({
  ...wire,
  drafted: wire.drafted.map(compact),
  last: wire.last && compact(wire.last),
});

/** @type {(token: WireToken) => Token} */
function compact(token) {
  const full = Object.entries(token).filter(
    ([name, value]) => value !== null && !(Array.isArray(value) && value.length === 0)
      && !(name === "id" && Number(value) < 0));
  return /** @type {Token} */ (/** @type {unknown} */ (Object.fromEntries(full)));
}

/**
 * The events of the newest run.
 * @typedef {object} StoreEvents
 * @property {(run: string) => void} begun
 * @property {(trace: Trace) => void} header
 * @property {(rounds: Round[]) => void} rounds
 * @property {(trace: Trace) => void} replaced  some rounds were sent again and replaced
 * @property {(text: string, left: number | null) => void} status  left: seconds until the run begins
 * @property {(error: string | null, fallBack: boolean, remark: string) => void} over
 * @property {() => void} lost  the server does not know the run any more, or does not answer
 */

export class Store {
  run = /** @type {string | null} */ (null); // the newest
  trace = /** @type {Trace | null} */ (null); // the shown one
  #newest = /** @type {Trace | null} */ (null); // that of the newest run
  #ask;
  #on;
  #schema;
  #next = 0; // the number of the next expected event
  #over = true;
  #isAsking = false;
  #receivedAt = 0; // ms
  #silenceTimer = 0; // timer, while a run is under way
  #dropped = /** @type {Set<string>} */ (new Set()); // runs whose deltas are dropped

  /**
   * @param {object} parts
   * @param {(run: string, seq: number) => Promise<Delta[] | null>} parts.ask
   *   the deltas from event `seq` on, or null if the run is not known
   * @param {StoreEvents} parts.on
   * @param {number} parts.schema  of the received traces
   */
  constructor({ ask, on, schema }) {
    this.#ask = ask;
    this.#on = on;
    this.#schema = schema;
  }

  /** @param {Delta} delta */
  receive(delta) {
    if (this.#dropped.has(delta.run)) return;
    if (delta.run !== this.run) this.#begin(delta.run);
    this.#receivedAt = performance.now();
    this.#take(delta);
  }

  /** @param {Trace} trace a recording */
  show(trace) {
    this.trace = trace;
  }

  /** Drop all further deltas of this run. */
  drop() {
    this.#over = true;
    if (this.run !== null) this.#dropped.add(this.run);
  }

  /** @param {string} run */
  #begin(run) {
    if (this.run !== null) this.#dropped.add(this.run);
    this.run = run;
    this.#next = 0;
    this.#over = false;
    clearInterval(this.#silenceTimer);
    this.#silenceTimer = setInterval(() => this.#checkSilence(), 1000);
    this.#on.begun(run);
  }

  /** @param {Delta} delta */
  #take(delta) {
    if (this.#over) return;
    if (delta.seq > this.#next) {
      this.#askMissed();
      return;
    }
    // A delta that was missed and fetched may arrive a second time.
    const isKnown = delta.seq < delta.next && delta.next <= this.#next;
    if (isKnown && !delta.over) return;
    this.#next = Math.max(this.#next, delta.next);
    this.#apply(isKnown ? { ...delta, header: undefined, rounds: undefined } : delta);
  }

  /** @param {Delta} delta */
  #apply(delta) {
    if (delta.status) this.#on.status(delta.status, delta.left ?? null);
    if (delta.header) {
      this.#newest = {
        schema: this.#schema,
        header: asHeader(delta.header),
        rounds: [],
        end: null,
      };
      this.trace = this.#newest;
      this.#on.header(this.#newest);
    }
    if (delta.rounds) this.#add(delta.rounds.map(rebuilt));
    if (delta.end && this.#newest) this.#newest.end = asEnd(delta.end);
    if (delta.over) {
      this.#over = true;
      this.#on.over(delta.error ?? null, Boolean(delta.fall_back), delta.remark ?? "");
    }
  }

  // A round that is sent again replaces itself and all later ones of its lane: a watched server may report
  // its counts at the end.
  /** @param {Round[]} rounds */
  #add(rounds) {
    if (!this.#newest) return;
    const { rounds: stored } = this.#newest;
    let isReplaced = false;
    for (const round of rounds) {
      const isOutdated = (/** @type {Round} */ other) =>
        other.lane === round.lane && other.index >= round.index;
      if (stored.some(isOutdated)) {
        stored.splice(0, stored.length, ...stored.filter((other) => !isOutdated(other)));
        isReplaced = true;
      }
      stored.push(round);
    }
    if (isReplaced) this.#on.replaced(this.#newest);
    else this.#on.rounds(rounds);
  }

  async #askMissed() {
    if (this.#isAsking || this.run === null) return;
    this.#isAsking = true;
    const { run } = this;
    const deltas = await this.#ask(run, this.#next).catch((error) => {
      console.warn("specviz: the server did not answer", error);
      return null;
    });
    if (run === this.run && !this.#over) {
      if (deltas) for (const delta of deltas) this.receive(delta);
      else this.#lose(); // the server does not know the run: it has restarted
    }
    this.#isAsking = false;
  }

  #lose() {
    this.drop();
    this.#on.lost();
  }

  #checkSilence() {
    const silence = performance.now() - this.#receivedAt;
    if (this.#over) clearInterval(this.#silenceTimer);
    else if (silence > LOST_AFTER) this.#lose();
    else if (silence > ASK_AFTER) this.#askMissed();
  }
}

const NOT_HERE = "This browser cannot unpack recordings; open the .json form of one.";

/** The recordings that come with the page. Each is fetched once. */
export class Recordings {
  #fetched;

  /** @param {Record<string, string>} urls by name */
  constructor(urls) {
    const entries = Object.entries(urls).map(([name, url]) => [name, once(() => fetched(url))]);
    this.#fetched = Object.fromEntries(entries);
  }

  /** @param {string} name */
  has(name) {
    return Object.hasOwn(this.#fetched, name);
  }

  /**
   * The first of these names that has a recording, or else the name of the first recording.
   * @param {(string | null | undefined)[]} names
   */
  first(...names) {
    return names.find((name) => name && this.has(name)) ?? Object.keys(this.#fetched)[0] ?? null;
  }

  /** @param {string} name */
  fetch(name) {
    return this.#fetched[name]();
  }

  /** Fetch all of them, in case the network is gone later. */
  fetchAll() {
    for (const name of Object.keys(this.#fetched)) this.fetch(name).catch(() => {});
  }
}

/** @type {(url: string) => Promise<Trace>} */
async function fetched(url) {
  const answer = await fetch(new URL(url, document.baseURI));
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const bytes = new Uint8Array(await answer.arrayBuffer());
  return asTrace(JSON.parse(await unpacked(bytes)));
}

/** @param {Uint8Array<ArrayBuffer>} bytes gzipped or not */
async function unpacked(bytes) {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return new TextDecoder().decode(bytes);
  if (!globalThis.DecompressionStream) throw new Error(NOT_HERE);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
