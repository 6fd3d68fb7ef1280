// The playhead over the events of a trace, in the order of their times.

import { isStill } from "specviz/dom/dom.js";
import { ALONE } from "specviz/facts/lanes.js";
import { secondsOf } from "specviz/facts/uncertainty.js";

const FRAME = 16; // ms
const MAX_FRAME = 500; // ms
const MAX_WAIT = 100; // ms without a frame: what a visitor does meanwhile begins with the next one
export const SPEEDS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10];
const SLOWEST = 0.005; // at which a recording plays by itself
const READABLE = 12; // seconds that a recording should take to play

/**
 * What happens in a round, one event after the other: each draft appears, each verdict follows,
 * then the round is done. Drafts are spread evenly over the measured time of their run; those of a
 * watched server, whose time is not told, appear when they came.
 * @type {(round: Round) => PlayEvent[]}
 */
export function eventsOf(round) {
  const { drafted, clock, draft_seconds: drafting } = round;
  const start = clock - secondsOf(round);
  const seen = drafted.length;
  const verdicts = drafted.filter((token) => token.outcome !== "ignored");
  const timeOf = (/** @type {number} */ i) => (drafting ? start + (drafting * (i + 1)) / seen : clock);
  return [
    ...drafted.map((_, i) => ({ round, seen: i + 1, judged: 0, done: false, time: timeOf(i) })),
    ...verdicts.map((_, i) => ({ round, seen, judged: i + 1, done: false, time: clock })),
    { round, seen, judged: verdicts.length, done: true, time: clock },
  ];
}

/** @type {(one: PlayEvent, other: PlayEvent) => number} */
function compare(one, other) {
  // Of what happens at the same time, the target alone comes last.
  return one.time - other.time || Number(one.round.lane === ALONE) - Number(other.round.lane === ALONE);
}

/**
 * A speed at which people can read along: no faster than the run was.
 * @param {number} seconds that the run took
 */
function readableSpeed(seconds) {
  const fit = SPEEDS.filter((times) => times >= SLOWEST && times <= 1 && seconds / times >= READABLE);
  return fit.pop() ?? SLOWEST;
}

/**
 * A playhead: how many events are shown. While a run is live it follows the newest one, unless
 * the viewer holds it back. Others read its fields and write none of them.
 */
export class Timeline {
  events = /** @type {PlayEvent[]} */ ([]);
  position = 0;
  following = true;
  playing = false;
  live = false;
  #chosenSpeed = /** @type {number | null} */ (null); // by the visitor, for all runs
  #changed;
  #time = 0; // seconds on the run's clock
  #last = 0; // ms, of the last frame
  #waiting = false; // for a frame
  /** @type {{ round: Round, ms: number } | null} */
  #story = null; // the round that is told slowly
  moment = /** @type {Moment | null} */ (null); // of that story

  /** @param {() => void} changed called when anything moved */
  constructor(changed) {
    this.#changed = changed;
  }

  /** @param {boolean} live */
  clear(live) {
    Object.assign(this, { events: [], position: 0, following: live, playing: false, live });
    this.#endStory();
    this.#time = 0;
    this.#changed();
  }

  /** @param {Round[]} rounds */
  add(rounds) {
    this.events = [...this.events, ...rounds.flatMap(eventsOf)].sort(compare);
    if (this.following) this.#moveTo(this.events.length);
    this.#changed();
  }

  /**
   * Rounds that are known better now, in the place of all that there were; the playhead stays.
   * @param {Round[]} rounds
   */
  replace(rounds) {
    const time = this.#time;
    this.events = rounds.flatMap(eventsOf).sort(compare);
    const after = this.events.findIndex((event) => event.time > time);
    this.#moveTo(this.following || after < 0 ? this.events.length : after);
    this.#changed();
  }

  /** No more rounds will come. */
  finish() {
    this.live = false;
    this.#changed();
  }

  play() {
    if (!this.events.length) return;
    if (this.position === this.events.length) this.#moveTo(0);
    this.#endStory();
    this.playing = true;
    this.following = false;
    this.#last = performance.now();
    this.#requestFrame();
    this.#changed();
  }

  pause() {
    this.#hold();
    this.#changed();
  }

  /** @param {number} position */
  seek(position) {
    this.#hold();
    this.#moveTo(position);
    this.#changed();
  }

  /** @param {number} by events */
  step(by) {
    this.seek(this.position + by);
  }

  /**
   * To the end of the next round of the lane with drafts, or of the one before.
   * @param {1 | -1} by
   */
  stepRound(by) {
    let place = this.position - 1;
    let event;
    do event = this.events[place += by]; while (event && !(event.done && event.round.lane !== ALONE));
    this.seek(place + 1);
  }

  restart() {
    this.#moveTo(0);
    this.play();
  }

  /** From the first token of a lane with drafts on, so that there is something to see at once. */
  begin() {
    const first = this.events.findIndex(({ done, round }) =>
      done && round.lane !== ALONE && round.drafted.length);
    this.#moveTo(first + 1);
    this.play();
  }

  /**
   * One round slowly, and then a pause; the other lanes go on while it guesses and is judged.
   * @param {Round} round
   */
  tell(round) {
    this.#moveTo(this.events.findIndex((event) => event.round === round));
    this.play();
    this.#time = round.clock - secondsOf(round);
    this.#story = { round, ms: 0 };
  }

  follow() {
    this.#hold();
    this.following = true;
    this.#moveTo(this.events.length);
    this.#changed();
  }

  /** A visitor chooses how fast runs play from now on. @param {number} speed */
  setSpeed(speed) {
    this.#chosenSpeed = speed;
    this.#changed();
  }

  /** Times the speed of the run: what the visitor chose, or at which this very run can be read. */
  get speed() {
    if (this.#chosenSpeed !== null) return this.#chosenSpeed;
    const seconds = this.seconds();
    return this.live || !seconds ? 1 : readableSpeed(seconds);
  }

  /** The duration of the run, on its own clocks. */
  seconds() {
    return this.events[this.events.length - 1]?.time ?? 0;
  }

  /**
   * The finished rounds at the playhead, and the event inside an unfinished one by lane.
   * @returns {Shown}
   */
  shown() {
    /** @type {Shown} */
    const shown = { rounds: [], partial: Object.create(null) }; // a lane may have any name
    for (const event of this.events.slice(0, this.position)) {
      shown.partial[event.round.lane] = event.done ? null : event;
      if (event.done) shown.rounds.push(event.round);
    }
    return shown;
  }

  #requestFrame() {
    if (this.#waiting) return;
    this.#waiting = true;
    const next = () => requestAnimationFrame((now) => this.#advance(now));
    // Between two events no frame is needed: one in which nothing comes costs nearly as much as a word. A
    // hidden tab gets none, and stands still.
    const event = this.#story ? undefined : this.events[this.position];
    const left = event ? (1000 * (event.time - this.#time)) / this.speed : 0;
    const soon = () => { if (document.hidden) next(); else this.#advance(performance.now()); };
    if (left > FRAME) setTimeout(soon, Math.min(left, MAX_WAIT)); else next();
  }

  /** @param {number} now ms */
  #advance(now) {
    this.#waiting = false;
    if (!this.playing) return;
    // A tab that was hidden goes on where it was.
    const passed = Math.max(0, Math.min(now - this.#last, MAX_FRAME));
    this.#last = now;
    if (this.#story) {
      this.#advanceStory(this.#story, passed);
      return;
    }
    this.#time += (this.speed * passed) / 1000;
    const before = this.position;
    while (this.position < this.events.length && this.events[this.position].time <= this.#time) {
      this.position += 1;
    }
    if (this.position === this.events.length) {
      this.playing = false;
      this.following = this.live;
    }
    if (this.position !== before || !this.playing) this.#changed();
    if (this.playing) this.#requestFrame();
  }

  /**
   * @param {{ round: Round, ms: number }} story
   * @param {number} passed ms
   */
  #advanceStory(story, passed) {
    story.ms += passed;
    const moment = momentOf(story.round, story.ms);
    const { time, seen, judged, isDone } = moment;
    this.moment = moment;
    this.#time = time;
    const isPast = (/** @type {PlayEvent} */ event) => {
      if (event.round !== story.round) return event.time <= time;
      if (event.done) return isDone;
      return event.judged ? event.judged <= judged : event.seen <= seen;
    };
    while (this.position < this.events.length && isPast(this.events[this.position])) this.position += 1;
    if (moment.isOver) {
      this.#hold();
      this.following = false;
    } else this.#requestFrame();
    this.#changed();
  }

  #endStory() {
    this.#story = null;
    this.moment = null;
  }

  /** @param {number} position */
  #moveTo(position) {
    this.position = Math.max(0, Math.min(position, this.events.length));
    this.#time = this.position ? this.events[this.position - 1].time : 0;
  }

  #hold() {
    this.following = false;
    this.playing = false;
    this.#endStory();
  }
}

const READ_AFTER = 2600; // ms for which the result stands before it is played again
const FAST = 5; // seconds: whoever watched a longer run has seen it
const MEANT = ["pointerdown", "keydown", "wheel", "touchstart"]; // a visitor who does something

export class SlowReplay {
  #timeline;
  #waiting = 0; // timer

  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.#timeline = timeline;
    for (const name of MEANT) addEventListener(name, () => this.cancel(), { capture: true, passive: true });
  }

  /** The live run has ended, well. */
  offer() {
    this.cancel();
    const seconds = this.#timeline.seconds();
    if (isStill() || !seconds || seconds > FAST) return;
    this.#waiting = setTimeout(() => this.#timeline.restart(), READ_AFTER);
  }

  cancel() {
    clearTimeout(this.#waiting);
  }
}

// How one round is told when it is played slowly: guesses one by one, a look, one pass over all of
// them, verdicts from left to right, the target's own token. Guessing and the pass run on the race's
// clock, so the other lanes go on meanwhile; the verdict costs no time there, so the clock stands.

/** In ms of the viewer's time; the style sheet moves the tokens in as much. */
export const MOTION = {
  stagger: 190,
  appear: 260,
  look: 260,
  sweep: 1050,
  settle: 230,
  drop: 380,
  land: 360,
  rest: 900,
};

const UNHURRIED = 16; // guesses: a longer round takes as long as one of so many

/** @typedef {"guess" | "check" | "verdict"} Phase */

/**
 * A moment of the story.
 * @typedef {object} Moment
 * @property {number} time  on the race's clock
 * @property {number} seen  guesses that are there
 * @property {number} judged  guesses that have their verdict
 * @property {Phase} phase
 * @property {boolean} isDone  all of the round is there
 * @property {boolean} isOver  and has been seen for a while
 */

/**
 * @param {Round} round
 * @param {number} ms  into its story
 * @returns {Moment}
 */
export function momentOf(round, ms) {
  const { drafted, clock } = round;
  const { draft_seconds: drafting, verify_seconds: verifying, overhead_seconds: overhead } = round;
  const count = drafted.length;
  const judged = drafted.filter(({ outcome }) => outcome !== "ignored").length;
  const pace = Math.min(1, UNHURRIED / count);
  const stagger = pace * MOTION.stagger;
  const settle = pace * MOTION.settle;
  const guessed = count ? (count - 1) * stagger + MOTION.appear : 0;
  const looked = guessed + MOTION.look;
  const passed = looked + MOTION.sweep;
  const isRefused = judged > 0 && drafted[judged - 1].outcome === "rejected";
  const settled = passed + judged * settle + (isRefused ? MOTION.drop : 0);
  const start = clock - drafting - verifying - overhead;
  const share = (/** @type {number} */ from, /** @type {number} */ lasts) =>
    Math.max(0, Math.min(1, (ms - from) / lasts));
  /** @returns {Pick<Moment, "time" | "judged" | "phase">} */
  const now = () => {
    if (ms < looked) {
      const time = start + drafting * (guessed ? share(0, guessed) : 1);
      return { time: Math.min(time, clock), judged: 0, phase: "guess" };
    }
    if (ms < passed) {
      const time = start + drafting + (verifying + overhead) * share(looked, MOTION.sweep);
      return { time: Math.min(time, clock), judged: 0, phase: "check" };
    }
    const verdicts = Math.floor((ms - passed) / settle) + 1;
    return { time: clock, judged: Math.min(judged, verdicts), phase: "verdict" };
  };
  return {
    ...now(),
    seen: Math.min(count, Math.floor(ms / stagger) + 1),
    isDone: ms >= settled,
    isOver: ms >= settled + MOTION.land + MOTION.rest,
  };
}

/**
 * The round that tells most: one with an accepted guess, a rejected and an ignored one, where the rejected
 * one and the target's own are words if there is such a round; else any with a rejected guess.
 * @param {Round[]} rounds  of one lane
 */
export function tellingRound(rounds) {
  const has = (/** @type {Round} */ { drafted }, /** @type {Outcome[]} */ ...outcomes) =>
    outcomes.every((outcome) => drafted.some((token) => token.outcome === outcome));
  const written = rounds.slice(2); // with some text before it
  const telling = written.filter((round) => has(round, "accepted", "rejected", "ignored"));
  return telling.find(partsAtWords)
    ?? telling[0]
    ?? written.find((round) => has(round, "rejected"))
    ?? rounds.find((round) => has(round, "rejected"))
    ?? written.find((round) => has(round, "accepted"))
    ?? rounds[0];
}

const LETTER = /\p{L}/u;

/** @param {Round} round  with a rejected guess */
function partsAtWords({ drafted, emitted }) {
  const rejected = drafted.find((token) => token.outcome === "rejected");
  const own = emitted[emitted.length - 1];
  return [rejected, own].every((token) => token && LETTER.test(token.text));
}
