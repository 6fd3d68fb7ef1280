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
  const guessed = count ? (count - 1) * MOTION.stagger + MOTION.appear : 0;
  const looked = guessed + MOTION.look;
  const passed = looked + MOTION.sweep;
  const isRefused = judged > 0 && drafted[judged - 1].outcome === "rejected";
  const settled = passed + judged * MOTION.settle + (isRefused ? MOTION.drop : 0);
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
    const verdicts = Math.floor((ms - passed) / MOTION.settle) + 1;
    return { time: clock, judged: Math.min(judged, verdicts), phase: "verdict" };
  };
  return {
    ...now(),
    seen: Math.min(count, Math.floor(ms / MOTION.stagger) + 1),
    isDone: ms >= settled,
    isOver: ms >= settled + MOTION.land + MOTION.rest,
  };
}

/**
 * The round that tells most: one with an accepted guess, a rejected and an ignored one.
 * @param {Round[]} rounds  of one lane
 */
export function tellingRound(rounds) {
  const has = (/** @type {Round} */ { drafted }, /** @type {Outcome[]} */ ...outcomes) =>
    outcomes.every((outcome) => drafted.some((token) => token.outcome === outcome));
  const written = rounds.slice(2); // with some text before it
  return written.find((round) => has(round, "accepted", "rejected", "ignored"))
    ?? written.find((round) => has(round, "accepted"))
    ?? rounds[0];
}
