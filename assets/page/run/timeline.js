// The playhead over the steps of a run: the moments of its rounds, sorted by time.

import { isStill } from "specviz/dom/dom.js";
import { ALONE } from "specviz/facts/lanes.js";
import { secondsOf } from "specviz/facts/uncertainty.js";
import { momentOf } from "specviz/run/slow-motion.js";

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
  isFollowing = true;
  isPlaying = false;
  isGrowing = false; // whether the shown run is live, so that steps are still added
  #chosenSpeed = /** @type {number | null} */ (null); // by the visitor, for all runs
  #changed;
  #time = 0; // seconds on the run's clock
  #lastFrame = 0; // ms
  #waiting = false; // for a frame
  /** @type {{ round: Round, ms: number } | null} */
  #slowRound = null; // the round that plays slowly, and for how long
  moment = /** @type {Moment | null} */ (null); // of that round

  /** @param {() => void} changed called when anything moved */
  constructor(changed) {
    this.#changed = changed;
  }

  /** @param {boolean} isGrowing */
  clear(isGrowing) {
    Object.assign(this, { steps: [], position: 0, isFollowing: isGrowing, isPlaying: false, isGrowing });
    this.#endSlowRound();
    this.#time = 0;
    this.#changed();
  }

  /** @param {Round[]} rounds */
  add(rounds) {
    this.steps = [...this.steps, ...rounds.flatMap(stepsOf)].sort(compare);
    if (this.isFollowing) this.#moveTo(this.steps.length);
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
    this.#moveTo(this.isFollowing || after < 0 ? this.steps.length : after);
    this.#changed();
  }

  /** No more rounds will come. */
  finish() {
    this.isGrowing = false;
    this.#changed();
  }

  play() {
    if (!this.steps.length) return;
    if (this.position === this.steps.length) this.#moveTo(0);
    this.#endSlowRound();
    this.isPlaying = true;
    this.isFollowing = false;
    this.#lastFrame = performance.now();
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
  playRoundSlowly(round) {
    this.#moveTo(this.steps.findIndex((step) => step.round === round));
    this.play();
    this.#time = round.clock - secondsOf(round);
    this.#slowRound = { round, ms: 0 };
  }

  follow() {
    this.#hold();
    this.isFollowing = true;
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
    return this.isGrowing || !seconds ? 1 : readableSpeed(seconds);
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
    const step = this.#slowRound ? undefined : this.steps[this.position];
    const left = step ? (1000 * (step.time - this.#time)) / this.speed : 0;
    const soon = () => { if (document.hidden) next(); else this.#advance(performance.now()); };
    if (left > FRAME) setTimeout(soon, Math.min(left, MAX_WAIT)); else next();
  }

  /** @param {number} now ms */
  #advance(now) {
    this.#waiting = false;
    if (!this.isPlaying) return;
    // After it was hidden, a tab continues where it stopped.
    const passed = Math.max(0, Math.min(now - this.#lastFrame, MAX_FRAME));
    this.#lastFrame = now;
    if (this.#slowRound) {
      this.#advanceSlowly(this.#slowRound, passed);
      return;
    }
    this.#time += (this.speed * passed) / 1000;
    const before = this.position;
    while (this.position < this.steps.length && this.steps[this.position].time <= this.#time) {
      this.position += 1;
    }
    if (this.position === this.steps.length) {
      this.isPlaying = false;
      this.isFollowing = this.isGrowing;
    }
    if (this.position !== before || !this.isPlaying) this.#changed();
    if (this.isPlaying) this.#requestFrame();
  }

  /**
   * @param {{ round: Round, ms: number }} slowRound
   * @param {number} passed ms
   */
  #advanceSlowly(slowRound, passed) {
    slowRound.ms += passed;
    const moment = momentOf(slowRound.round, slowRound.ms);
    const { time, seen, judged, isDone } = moment;
    this.moment = moment;
    this.#time = time;
    const isPast = (/** @type {PlayStep} */ step) => {
      if (step.round !== slowRound.round) return step.time <= time;
      if (step.done) return isDone;
      return step.judged ? step.judged <= judged : step.seen <= seen;
    };
    while (this.position < this.steps.length && isPast(this.steps[this.position])) this.position += 1;
    if (moment.isOver) {
      this.#hold();
      this.isFollowing = false;
    } else this.#requestFrame();
    this.#changed();
  }

  #endSlowRound() {
    this.#slowRound = null;
    this.moment = null;
  }

  /** @param {number} position */
  #moveTo(position) {
    this.position = Math.max(0, Math.min(position, this.steps.length));
    this.#time = this.position ? this.steps[this.position - 1].time : 0;
  }

  #hold() {
    this.isFollowing = false;
    this.isPlaying = false;
    this.#endSlowRound();
  }
}

// A short live run is played again by itself, at a readable speed.

const READ_AFTER = 2600; // ms for which the result is shown before the replay
const FAST = 5; // seconds; longer runs get no replay
const MEANT = ["pointerdown", "keydown", "wheel", "touchstart"]; // events of an active visitor

export class AutoReplay {
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
