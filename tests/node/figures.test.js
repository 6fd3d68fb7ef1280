// Figures as people read them, and the speed at which a run can be read.

import assert from "node:assert/strict";
import test from "node:test";

import { stepsOf } from "specviz/explain/steps.js";
import { ALONE, OURS } from "specviz/facts/lanes.js";
import { measure, unguessed } from "specviz/facts/metrics.js";
import { asRound } from "specviz/facts/trace.js";
import { Timeline } from "specviz/run/timeline.js";
import { perSecond, written } from "specviz/words/words.js";

import { runOf, slowed } from "./runs.js";

const short = runOf("easy.json.gz");
const slow = slowed(slowed(short, OURS, 300), ALONE, 300); // such as a pair of billions on a processor
const copies = runOf("copies.json.gz"); // n-grams, which often find nothing to copy

function timelineOf(run, timeline = new Timeline(() => {})) {
  timeline.clear(false);
  timeline.add(run.rounds);
  return timeline;
}

test("each run is played at the speed at which it can be read, whatever was shown before", () => {
  const timeline = timelineOf(short);
  const first = timeline.speed;
  assert.ok(first < 1 && timeline.seconds() / first < 100);
  timelineOf(slow, timeline);
  assert.ok(timeline.seconds() > 30);
  assert.equal(timeline.speed, 1);
  assert.equal(timelineOf(short, timeline).speed, first);
});

test("a live run of many seconds is played again at its own speed", () => {
  const timeline = timelineOf(short);
  timeline.clear(true);
  assert.equal(timeline.speed, 1);
  timeline.add(slow.rounds);
  timeline.finish();
  assert.equal(timeline.speed, 1);
});

test("the speed that a visitor has set stays", () => {
  const timeline = timelineOf(short);
  timeline.setSpeed(0.5);
  assert.equal(timelineOf(slow, timeline).speed, 0.5);
});

test("tokens per second have a decimal below 20", () => {
  const told = [[null, "–"], [4.04, "4.0"], [7.05, "7.0"], [19.94, "19.9"], [19.96, "20"], [20.4, "20"], [411.7, "412"]];
  for (const [rate, text] of told) assert.equal(perSecond(rate), text);
});

test("a lane that stopped at the limit says so", () => {
  assert.equal(written(128, 300, "length"), "300 drafted, stopped at 128 tokens");
  assert.equal(written(128, null, "length"), "stopped at 128 tokens");
  assert.equal(written(107, 118, "eos"), "118 drafted, 107 written · end of text");
  assert.equal(written(40, 44), "44 drafted, 40 written"); // it goes on
});

test("tokens of rounds without a guess are told apart from those that came free", () => {
  const { counts } = measure(copies.rounds, copies.header);
  const own = unguessed(copies.rounds, OURS);
  const rounds = copies.rounds.filter(({ lane, drafted }) => lane === OURS && !drafted.length);
  assert.ok(own > 0 && own < counts.bonus);
  assert.equal(own, rounds.length);
});

test("what checking costs is said by the measured times of this very round", () => {
  const round = short.rounds.find(({ lane, drafted }) => lane === OURS && drafted.length > 1);
  const alone = short.rounds.filter(({ lane }) => lane === ALONE);
  const single = alone.reduce((sum, { verify_seconds: seconds }) => sum + seconds, 0) / alone.length;
  const noteAt = (seconds) => {
    const told = asRound({ ...round, verify_seconds: seconds });
    return stepsOf(told, { ...short, rounds: [told, ...alone] }).find(({ chapter }) => chapter === "Check").note;
  };
  assert.match(noteAt(2 * single), /^Checking is not free: a pass over one token takes .*ms here on average/);
  for (const seconds of [0.9 * single, single]) {
    assert.match(noteAt(seconds), /^Checking cost nothing extra here/);
    assert.doesNotMatch(noteAt(seconds), /not free|costs more than one/);
  }
});
