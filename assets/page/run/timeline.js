// The playhead over the steps of a run: the moments of its rounds, sorted by time.

import { isStill } from "specviz/dom/dom.js";
import { ALONE } from "specviz/facts/lanes.js";
import { secondsOf } from "specviz/facts/uncertainty.js";

const FRAME = 16; // ms
const MAX_FRAME = 500; // ms
const MAX_WAIT = 100; // ms without a frame; a visitor's action takes effect with the next one
export const SPEEDS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10];
const SLOWEST = 0.005; // of the speeds that are chosen automatically
const READABLE = 12; // seconds that playing a recording should take

/**
 * The steps of a round: each draft appears, each verdict follows, then the round is done. Drafts are spread
 * evenly over their measured time; a watched server reports no time, so its drafts appear when they arrived.
 * @type {(round: Round) => PlayStep[]}
 */
export function stepsOf(round) {
  const { drafted, clock, draft_seconds: drafting } = round;
  const start = clock - secondsOf(round);
  const count = drafted.length;
  const verdicts = drafted.filter((token) => token.outcome !== "ignored");
  const timeOf = (/** @type {number} */ i) => (drafting ? start + (drafting * (i + 1)) / count : clock);
  return [
    ...drafted.map((_, i) => ({ round, seen: i + 1, judged: 0, done: false, time: timeOf(i) })),
    ...verdicts.map((_, i) => ({ round, seen: count, judged: i + 1, done: false, time: clock })),
    { round, seen: count, judged: verdicts.length, done: true, time: clock },
  ];
}

/** @type {(a: PlayStep, b: PlayStep) => number} */
function compare(a, b) {
  // At the same time, the steps of the target alone come last.
  return a.time - b.time || Number(a.round.lane === ALONE) - Number(b.round.lane === ALONE);
}

/**
 * A speed at which a visitor can read along, no faster than the run.
 * @param {number} seconds  of the run
 */
function readableSpeed(seconds) {
  const fit = SPEEDS.filter((times) => times >= SLOWEST && times <= 1 && seconds / times >= READABLE);
  return fit.pop() ?? SLOWEST;
}

/**
 * A playhead: the number of shown steps. In a live run it follows the newest one, unless the visitor holds
 * it back. Other modules only read its fields.
 */
export class Timeline {
  steps = /** @type {PlayStep[]} */ ([]);
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
  #story = null; // the round that plays slowly
  moment = /** @type {Moment | null} */ (null); // of that round

  /** @param {() => void} changed called when anything moved */
  constructor(changed) {
    this.#changed = changed;
  }

  /** @param {boolean} live */
  clear(live) {
    Object.assign(this, { steps: [], position: 0, following: live, playing: false, live });
    this.#endStory();
    this.#time = 0;
    this.#changed();
  }

  /** @param {Round[]} rounds */
  add(rounds) {
    this.steps = [...this.steps, ...rounds.flatMap(stepsOf)].sort(compare);
    if (this.following) this.#moveTo(this.steps.length);
    this.#changed();
  }

  /**
   * Replace all rounds; the playhead stays at its time.
   * @param {Round[]} rounds
   */
  replace(rounds) {
    const time = this.#time;
    this.steps = rounds.flatMap(stepsOf).sort(compare);
    const after = this.steps.findIndex((step) => step.time > time);
    this.#moveTo(this.following || after < 0 ? this.steps.length : after);
    this.#changed();
  }

  /** No more rounds will come. */
  finish() {
    this.live = false;
    this.#changed();
  }

  play() {
    if (!this.steps.length) return;
    if (this.position === this.steps.length) this.#moveTo(0);
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

  /** @param {number} by steps */
  step(by) {
    this.seek(this.position + by);
  }

  /**
   * Move to the end of the next or the previous round of a lane with drafts.
   * @param {1 | -1} by
   */
  stepRound(by) {
    let index = this.position - 1;
    let step;
    do step = this.steps[index += by]; while (step && !(step.done && step.round.lane !== ALONE));
    this.seek(index + 1);
  }

  restart() {
    this.#moveTo(0);
    this.play();
  }

  /** Play from the first round with drafts on, so that there is something to see at once. */
  begin() {
    const first = this.steps.findIndex(({ done, round }) =>
      done && round.lane !== ALONE && round.drafted.length);
    this.#moveTo(first + 1);
    this.play();
  }

  /**
   * Play one round slowly, and then pause; the other lanes continue meanwhile.
   * @param {Round} round
   */
  playSlowly(round) {
    this.#moveTo(this.steps.findIndex((step) => step.round === round));
    this.play();
    this.#time = round.clock - secondsOf(round);
    this.#story = { round, ms: 0 };
  }

  follow() {
    this.#hold();
    this.following = true;
    this.#moveTo(this.steps.length);
    this.#changed();
  }

  /** Set the visitor's speed for all runs. @param {number} speed */
  setSpeed(speed) {
    this.#chosenSpeed = speed;
    this.#changed();
  }

  /** Times the speed of the run: the visitor's choice, or a readable speed for this run. */
  get speed() {
    if (this.#chosenSpeed !== null) return this.#chosenSpeed;
    const seconds = this.seconds();
    return this.live || !seconds ? 1 : readableSpeed(seconds);
  }

  /** The seconds of the run, on its own clocks. */
  seconds() {
    return this.steps[this.steps.length - 1]?.time ?? 0;
  }

  /**
   * The finished rounds at the playhead, and the step inside an unfinished one by lane.
   * @returns {Shown}
   */
  shown() {
    /** @type {Shown} */
    const content = { rounds: [], partial: Object.create(null) }; // a lane may have any name
    for (const step of this.steps.slice(0, this.position)) {
      content.partial[step.round.lane] = step.done ? null : step;
      if (step.done) content.rounds.push(step.round);
    }
    return content;
  }

  #requestFrame() {
    if (this.#waiting) return;
    this.#waiting = true;
    const next = () => requestAnimationFrame((now) => this.#advance(now));
    // Skip frames between two steps: an empty one costs nearly as much as one with a word. A hidden tab gets
    // no frames and stops.
    const step = this.#story ? undefined : this.steps[this.position];
    const left = step ? (1000 * (step.time - this.#time)) / this.speed : 0;
    const soon = () => { if (document.hidden) next(); else this.#advance(performance.now()); };
    if (left > FRAME) setTimeout(soon, Math.min(left, MAX_WAIT)); else next();
  }

  /** @param {number} now ms */
  #advance(now) {
    this.#waiting = false;
    if (!this.playing) return;
    // After it was hidden, a tab continues where it stopped.
    const passed = Math.max(0, Math.min(now - this.#last, MAX_FRAME));
    this.#last = now;
    if (this.#story) {
      this.#advanceStory(this.#story, passed);
      return;
    }
    this.#time += (this.speed * passed) / 1000;
    const before = this.position;
    while (this.position < this.steps.length && this.steps[this.position].time <= this.#time) {
      this.position += 1;
    }
    if (this.position === this.steps.length) {
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
    const isPast = (/** @type {PlayStep} */ step) => {
      if (step.round !== story.round) return step.time <= time;
      if (step.done) return isDone;
      return step.judged ? step.judged <= judged : step.seen <= seen;
    };
    while (this.position < this.steps.length && isPast(this.steps[this.position])) this.position += 1;
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
    this.position = Math.max(0, Math.min(position, this.steps.length));
    this.#time = this.position ? this.steps[this.position - 1].time : 0;
  }

  #hold() {
    this.following = false;
    this.playing = false;
    this.#endStory();
  }
}

const READ_AFTER = 2600; // ms for which the result is shown before the replay
const FAST = 5; // seconds; longer runs get no replay
const MEANT = ["pointerdown", "keydown", "wheel", "touchstart"]; // events of an active visitor

export class SlowReplay {
  #timeline;
  #waiting = 0; // timer

  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.#timeline = timeline;
    for (const name of MEANT) addEventListener(name, () => this.cancel(), { capture: true, passive: true });
  }

  /** The live run has ended without an error. */
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

// One round in slow motion: guesses one by one, a look, one pass over all of them, verdicts from left to
// right, the target's token. Guessing and the pass run on the race's clock, so the other lanes continue
// meanwhile; the verdicts take no time there, so the clock stops.

/** In ms of the viewer's time; the style sheet moves the tokens in the same time. */
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

const UNHURRIED = 16; // guesses; a longer round takes no more time than this many

/** @typedef {"guess" | "check" | "verdict"} Phase */

/**
 * A moment of a round in slow motion.
 * @typedef {object} Moment
 * @property {number} time  on the race's clock
 * @property {number} seen  visible guesses
 * @property {number} judged  guesses with their verdict
 * @property {Phase} phase
 * @property {boolean} isDone  whether the whole round is visible
 * @property {boolean} isOver  whether it has also been visible for a while
 */

/**
 * @param {Round} round
 * @param {number} ms  since its beginning
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
 * The most instructive round: one with an accepted, a rejected and an ignored guess, preferably one where the
 * rejected guess and the target's token are words; else any round with a rejected guess.
 * @param {Round[]} rounds  of one lane
 */
export function instructiveRound(rounds) {
  const has = (/** @type {Round} */ { drafted }, /** @type {Outcome[]} */ ...outcomes) =>
    outcomes.every((outcome) => drafted.some((token) => token.outcome === outcome));
  const written = rounds.slice(2); // with some text before it
  const telling = written.filter((round) => has(round, "accepted", "rejected", "ignored"));
  return telling.find(divergesAtWords)
    ?? telling[0]
    ?? written.find((round) => has(round, "rejected"))
    ?? rounds.find((round) => has(round, "rejected"))
    ?? written.find((round) => has(round, "accepted"))
    ?? rounds[0];
}

const LETTER = /\p{L}/u;

/** @param {Round} round  with a rejected guess */
function divergesAtWords({ drafted, emitted }) {
  const rejected = drafted.find((token) => token.outcome === "rejected");
  const targetToken = emitted[emitted.length - 1];
  return [rejected, targetToken].every((token) => token && LETTER.test(token.text));
}
