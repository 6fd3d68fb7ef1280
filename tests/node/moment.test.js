// What is said between two runs: of a run that is not the one asked for, of one that has not begun, and of a
// pair that is not here yet.

import assert from "node:assert/strict";
import test from "node:test";

import { fetchedShare, fetchedWords, offerWords } from "specviz/words/fetched.js";
import { mismatchOf, waitingTime } from "specviz/words/moment.js";

const SHOWN = { source: "recording", isOtherPair: false, isOwnPreset: false, isBusy: false, pair: "another pair: Tiny" };
const said = (names, shown = {}) =>
  mismatchOf({ ...SHOWN, differences: new Map(names.map((name) => [name, "x"])), ...shown });

test("whatever differs from the controls fades what is shown, and is named, the prompt first", () => {
  assert.deepEqual(said([]), { text: "", isFaded: false });
  assert.deepEqual(said(["gamma", "prompt", "target"], { isOtherPair: true }),
    { text: "Recording of another prompt: press Run.", isFaded: true });
  assert.deepEqual(said(["gamma", "target"], { isOtherPair: true }),
    { text: "Recording of another pair: press Run.", isFaded: true });
  assert.deepEqual(said(["target"]), // of the same models, the target in other bits
    { text: "Recording with other settings: press Run.", isFaded: true });
  assert.deepEqual(said(["seed"], { source: "live" }),
    { text: "Run with other settings: press Run.", isFaded: true });
});

test("a page's own recording of another pair says so, and is not faded until something is changed", () => {
  const own = { isOwnPreset: true };
  assert.deepEqual(said(["target", "drafter"], own), { text: "Recording of another pair: Tiny.", isFaded: false });
  assert.ok(said(["gamma"], own).isFaded);
});

test("while a run goes on, nobody is told to press Run", () => {
  assert.equal(said(["prompt"], { source: "live", isBusy: true }).text, "Run of another prompt is under way.");
});

test("what has passed and what is left have their names, and nothing is left of what takes longer", () => {
  const since = 1000, estimatedAt = 3000;
  assert.equal(waitingTime({ since, estimatedAt, left: null }, 5500), "4 s elapsed · time left unknown");
  assert.equal(waitingTime({ since, estimatedAt, left: 10 }, 5500), "4 s elapsed · about 8 s left");
  assert.equal(waitingTime({ since, estimatedAt, left: 2 }, 5500), "4 s elapsed · longer than usual");
});

test("a pair that is not here says its size and its minutes, and a fetch how far it is", () => {
  const state = {
    state: "idle", title: "Large + Small", running: "Tiny", mayFetch: true, bytes: 1.6e9, done: 0, step: "",
    elapsed: null, left: 128, error: null,
  };
  const { about, beside, button } = offerWords(state, true);
  assert.equal(about, "Large + Small: not on this machine yet.");
  assert.equal(beside, "This is a recording of it. Run races Tiny.");
  assert.equal(button, "Get this pair: 1.6 GB, about 2 min");
  assert.equal(offerWords({ ...state, mayFetch: false }, false).about, "Large + Small: not here yet.");
  assert.equal(offerWords(state, false).beside, "Run races Tiny.");
  assert.equal(fetchedWords(state), "");
  const running = { ...state, state: "running", done: 4e8, step: "fetching it", elapsed: 10.7, left: 31 };
  assert.equal(fetchedWords(running), "Fetching it · 400 MB of 1.6 GB · 10 s elapsed · about 31 s left");
  assert.equal(fetchedShare(running), 0.25);
  const stopped = { ...running, state: "stopped", elapsed: null, left: 96 };
  assert.equal(fetchedWords(stopped), "Stopped. 400 MB of 1.6 GB are here and stay.");
  assert.equal(offerWords(stopped, false).button, "Resume: 1.2 GB, about 2 min");
  assert.equal(fetchedWords({ ...running, state: "failed", error: "The disk is full." }), "The disk is full.");
  assert.equal(offerWords({ ...running, state: "failed", left: null }, false).button, "Try again: 1.2 GB");
});
