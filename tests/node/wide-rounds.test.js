// A round of 64 guesses is told in as little time, and in as few steps, as one of a dozen.

import assert from "node:assert/strict";
import test from "node:test";

import { stepsOf } from "specviz/explain/steps.js";
import { momentOf } from "specviz/run/slow-motion.js";

/** @param {number} count @param {number} kept */
function roundOf(count, kept) {
  const drafted = Array.from({ length: count }, (_, i) => ({
    id: i,
    text: ` w${i}`,
    outcome: i < kept ? "accepted" : i === kept ? "rejected" : "ignored",
  }));
  const own = { id: 99, text: " own", outcome: kept < count ? "corrected" : "bonus" };
  return {
    lane: "speculative", index: 0, drafted, emitted: [...drafted.slice(0, kept), own],
    draft_seconds: 0.1, verify_seconds: 0.2, overhead_seconds: 0, clock: 0.3, wall: 0.3,
  };
}

const traceOf = (round) => ({
  header: { settings: { drafter: "ngram", temperature: 0, gamma: 64, verdict: "token" }, lanes: {} },
  rounds: [round],
});

function lengthOf(round) {
  let ms = 0;
  while (!momentOf(round, ms).isOver) ms += 50;
  return ms;
}

test("a wide round takes no longer than one of sixteen guesses", () => {
  const sixteen = lengthOf(roundOf(16, 16));
  assert.ok(Math.abs(lengthOf(roundOf(64, 64)) - sixteen) < 400);
  assert.ok(lengthOf(roundOf(4, 4)) < sixteen - 2000);
});

test("of many verdicts the first and the last have a step of their own", () => {
  for (const kept of [50, 64]) {
    const round = roundOf(64, kept);
    const judged = stepsOf(round, traceOf(round)).filter(({ chapter }) => chapter === "Judge");
    const all = Math.min(64, kept + 1);
    const parts = judged.map(({ part }) => part);
    const firsts = ["position 1 of 64", "position 2 of 64", "position 3 of 64"];
    const between = `positions 4 to ${all - 2} of 64`;
    assert.deepEqual(parts, [...firsts, between, `position ${all - 1} of 64`, `position ${all} of 64`]);
    const shown = judged[3].tokens.filter(({ outcome }) => outcome !== "pending");
    assert.equal(shown.length, all - 2);
    assert.ok(shown.every(({ outcome }) => outcome === "accepted"));
  }
  const narrow = roundOf(12, 11);
  const steps = stepsOf(narrow, traceOf(narrow)).filter(({ chapter }) => chapter === "Judge");
  assert.equal(steps.length, 12);
});
