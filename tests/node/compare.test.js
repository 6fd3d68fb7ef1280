// Which runs are compared, and how they are called.

import assert from "node:assert/strict";
import test from "node:test";

import { lastTwo, newest } from "specviz/run/session.js";

const run = (origin, rounds = [{}]) => ({ origin, trace: { rounds } });
const recorded = () => run("RECORDED"), live = () => run("LIVE"), opened = () => run("RECORDED (opened from a file)");
const names = (runs) => lastTwo(runs)?.map(({ name }) => name) ?? null;

test("a recording is never taken for a visitor's run", () => {
  const own = [live(), live()];
  assert.deepEqual(lastTwo([own[0], recorded(), own[1], recorded()]).map(({ run: one }) => one), own);
  assert.deepEqual(names([live(), recorded(), opened()]), ["Your earlier run", "Your latest run"]);
  assert.deepEqual(names([recorded(), live()]), ["Recording", "Your run"]);
  assert.deepEqual(names([live(), recorded()]), ["Recording", "Your run"]);
  assert.deepEqual(names([recorded(), recorded()]), ["Earlier recording", "Latest recording"]);
  assert.equal(names([live()]), null);
});

test("a run without a round is passed over, and recordings push out no run of a visitor", () => {
  assert.equal(names([live(), run("LIVE", [])]), null);
  const own = live();
  const kept = newest([own, ...Array.from({ length: 9 }, recorded)]);
  assert.ok(kept.includes(own) && kept.length === 5);
});
