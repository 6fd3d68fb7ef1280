// Which runs are compared, and how they are called.

import assert from "node:assert/strict";
import test from "node:test";

import { lastTwo, newest } from "specviz/words/moment.js";

const run = (isVisitors, rounds = [{}]) => ({ isVisitors, trace: { rounds } });
const recorded = () => run(false), own = () => run(true);
const names = (runs) => lastTwo(runs)?.map(({ name }) => name) ?? null;

test("a recording is never taken for a visitor's run", () => {
  const both = [own(), own()];
  assert.deepEqual(lastTwo([both[0], recorded(), both[1], recorded()]).map(({ run: one }) => one), both);
  assert.deepEqual(names([own(), recorded(), own()]), ["Your earlier run", "Your latest run"]);
  assert.deepEqual(names([recorded(), own()]), ["Recording", "Your run"]);
  assert.deepEqual(names([own(), recorded()]), ["Recording", "Your run"]);
  assert.deepEqual(names([recorded(), recorded()]), ["Earlier recording", "Latest recording"]);
  assert.equal(names([own()]), null);
});

test("a run without a round is passed over, and recordings push out no run of a visitor", () => {
  assert.equal(names([own(), run(true, [])]), null);
  const mine = own();
  const kept = newest([mine, ...Array.from({ length: 9 }, recorded)]);
  assert.ok(kept.includes(mine) && kept.length === 5);
});
