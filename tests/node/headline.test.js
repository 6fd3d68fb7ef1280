// What is said of a run: no verdict before it can be one, and none that a replay takes back.

import assert from "node:assert/strict";
import test from "node:test";

import { draftedLanes, lanesOf } from "specviz/facts/lanes.js";
import { measure } from "specviz/facts/metrics.js";
import { asRound, interrupt } from "specviz/facts/trace.js";
import { uncertainty } from "specviz/facts/uncertainty.js";
import { adapts, detail, doubt, MIN_ROUNDS, headlineOf, isFinished, verdict } from "specviz/words/verdict.js";
import { helper } from "specviz/words/words.js";

import { cutOff, runOf, slowed } from "./runs.js";

const JUDGES = /slower|same text|about even/;
const ADVISES = /γ = \d|no γ/;

function said(shown, race, lane = draftedLanes(race.header)[0]) {
  const ratios = new Map(draftedLanes(race.header).map((name) => [name, measure(race.rounds, race.header, name).speedup]));
  return headlineOf(shown, race, lane, ratios);
}

const easy = runOf("easy.json.gz"), loses = runOf("loses.json.gz");
// Its passes of the smallest of models were disturbed: here every round has its price.
const several = ["gamma 1", "gamma 3", "gamma 6"].reduce((run, lane) => slowed(run, lane, 4), runOf("several.json"));

test("a finished run's own ratio, verdict and doubt stay while it is played again", () => {
  for (const run of [easy, loses, runOf("high-temperature.json.gz"), several]) {
    const whole = said(run.rounds, run);
    for (const count of [0, 1, 3, 7, 20, run.rounds.length - 1]) {
      const { beside, ...others } = said(run.rounds.slice(0, count), run);
      const { beside: _, ...wanted } = whole;
      assert.deepEqual(others, wanted);
      assert.match(beside, /^replay/);
    }
    assert.doesNotMatch(whole.beside, /so far|replay/);
  }
});

test("a replay's running ratio is small, and told from ten rounds on", () => {
  const ours = easy.rounds.filter(({ lane }) => lane === "speculative");
  const until = easy.rounds.indexOf(ours[MIN_ROUNDS - 1]) + 1;
  assert.equal(said(easy.rounds.slice(0, until - 1), easy).beside, "replay");
  const { speedup } = measure(easy.rounds.slice(0, until), easy.header);
  assert.equal(said(easy.rounds.slice(0, until), easy).beside, `replay: ${speedup.toFixed(2)}× so far`);
});

test("a run that is not over has no verdict and no advice, and no ratio before ten rounds", () => {
  const slow = slowed(loses, "speculative", 4);
  for (let count = 0; count <= slow.rounds.length; count += 1) {
    const run = { ...cutOff(slow, count), end: null };
    const { ratio, verdict: sentence, detail: cause } = said(run.rounds, run);
    assert.doesNotMatch(sentence + cause, JUDGES);
    assert.doesNotMatch(sentence + cause, ADVISES);
    const ours = run.rounds.filter(({ lane }) => lane === "speculative").length;
    if (ours < MIN_ROUNDS) assert.equal(ratio, "?");
  }
  assert.match(said(slow.rounds, slow).verdict, /here speculation is slower/);
});

test("a run that was stopped, or that has few rounds, is not judged either", () => {
  const stopped = { ...loses, end: { ...loses.end, reasons: { speculative: "stopped", baseline: "stopped" } } };
  assert.ok(isFinished(loses) && !isFinished(stopped));
  assert.match(said(stopped.rounds, stopped).verdict, /so far/);
  assert.match(said([], { ...stopped, rounds: [] }).verdict, /^Stopped too early/);
  const m = measure(loses.rounds.slice(0, 12), loses.header);
  assert.ok(m.rounds < MIN_ROUNDS);
  assert.doesNotMatch(verdict(m, loses, null, true), JUDGES);
  assert.doesNotMatch(detail(m, true), ADVISES);
});

const stoppedAt = (run, count) => ({
  ...cutOff(run, count), end: { reasons: { speculative: "stopped", baseline: "stopped" } },
});

/** The number of a run's rounds up to this many of its lane with drafts. */
const upTo = (run, count) =>
  run.rounds.indexOf(run.rounds.filter(({ lane }) => lane === "speculative")[count - 1]) + 1;

test("a ratio that the running page did not tell is not told after a stop either", () => {
  for (const count of [1, 2, 5, MIN_ROUNDS - 1]) {
    const stopped = stoppedAt(easy, upTo(easy, count));
    const { ratio, verdict: sentence, doubt: why } = said(stopped.rounds, stopped);
    assert.deepEqual([ratio, sentence, why], ["?", "Stopped too early to compare.", ""]);
  }
  const later = stoppedAt(easy, upTo(easy, MIN_ROUNDS));
  assert.match(said(later.rounds, later).ratio, /^\d/);
});

test("a run that was cut off is not told as one that is written", () => {
  const slow = ["speculative", "baseline"].reduce((run, lane) => slowed(run, lane, 99), easy);
  const running = cutOff(slow, 60);
  const { ratio: before, beside: left } = said(running.rounds, running);
  assert.match(left, /s left$/);
  for (const count of [3, 60]) {
    const cut = cutOff(slow, count);
    interrupt(cut);
    const { verdict: sentence, beside, ratio } = said(cut.rounds, cut);
    assert.match(sentence, count === 3 ? /^Interrupted too early/ : /until it was interrupted\.$/);
    assert.doesNotMatch(beside + sentence, /left|writing|so far/);
    if (count === 60) assert.equal(ratio, before);
    assert.match(said(cut.rounds.slice(0, 1), cut).beside, /^replay/);
    assert.ok(!("isInterrupted" in JSON.parse(JSON.stringify(cut))));
  }
});

test("losing is said as plainly as winning, with its cause", () => {
  const { verdict: sentence, detail: cause } = said(loses.rounds, loses);
  assert.match(sentence, /slower/);
  assert.match(cause, /^\d+ of \d+ judged guesses accepted, [\d.]+ tokens per pass\. /);
  const trace = { header: { settings: { temperature: 0 }, target: { form: "eager" } }, end: { reasons: {} } };
  const even = verdict({ speedup: 0.98, drafted: 50, rounds: 20 }, trace, null, true);
  assert.equal(even, "the speed of the target alone: about even.");
});

test("no price of a round is a headline", () => {
  for (const run of [easy, loses]) assert.doesNotMatch(said(run.rounds, run).detail, /price|steps/);
});

test("the opening sentence says where the guesses of a run come from", () => {
  assert.match(helper(runOf("rewrite.json.gz").header), /copied from the text so far/);
  assert.match(helper(runOf("several.json").header), /^a helper guesses/);
});

test("a ratio outside of what the parts of a run give is uncertain", () => {
  // One part of the baseline takes long: the mean moves, the quartiles do not.
  const alone = easy.rounds.filter(({ lane }) => lane === "baseline");
  const slow = new Set(alone.slice(0, Math.floor(alone.length / 8)));
  let late = 0;
  const rounds = easy.rounds.map((round) => {
    if (round.lane !== "baseline") return round;
    const more = slow.has(round) ? 2 * round.verify_seconds : 0;
    late += more;
    return asRound({ ...round, verify_seconds: round.verify_seconds + more, clock: round.clock + late });
  });
  const m = measure(rounds, easy.header), found = uncertainty(rounds);
  assert.ok(m.speedup < found.spread.low || m.speedup > found.spread.high);
  assert.ok(found.doubt !== null);
  assert.match(doubt(m, found, true), /uncertain/);
  assert.match(doubt(m, { ...found, doubt: "outside" }, true), /most parts of the run give a different one\.$/);
});

test("a race of several lanes says which lane it is about, and which is the fastest", () => {
  const names = lanesOf(several.header).slice(0, -1);
  const speeds = names.map((name) => measure(several.rounds, several.header, name).speedup);
  const best = names[speeds.indexOf(Math.max(...speeds))];
  for (const name of names) {
    const { verdict: sentence, detail: about } = said(several.rounds, several, name);
    assert.ok(sentence.startsWith(`${name}: ${speeds[names.indexOf(name)].toFixed(2)} times`), sentence);
    assert.match(about, name === best ? /^The fastest of 3 lanes/ : new RegExp(`^The fastest is ${best}, `));
  }
});

test("no gamma is called the one in use where rounds drafted another number", () => {
  const fixed = { gamma: 5, gamma_policy: "fixed" };
  assert.ok(adapts({ ...fixed, gamma_policy: "optimal" }, 5) && adapts(fixed, 2) && !adapts(fixed, 5));
});
