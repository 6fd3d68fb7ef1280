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
