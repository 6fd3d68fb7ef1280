// Runs for tests, and changed copies of them.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

import { asRound, asTrace } from "specviz/facts/trace.js";
import { learn } from "specviz/facts/vocabulary.js";

const here = new URL("./", import.meta.url);
const recordings = new URL("../../assets/recordings/", import.meta.url);

learn(JSON.parse(readFileSync(new URL("../../assets/page/vocabulary.json", here), "utf8")));

/** A trace by the name of its file: a recording of the page, or one beside this module. */
export function runOf(name) {
  const raw = readFileSync(new URL(name, name.endsWith(".gz") ? recordings : here));
  return asTrace(JSON.parse(name.endsWith(".gz") ? gunzipSync(raw) : raw));
}

/** A run as it was after so many rounds; all of them are a finished run. */
export const cutOff = (trace, rounds) =>
  (rounds === null ? trace : { ...trace, rounds: trace.rounds.slice(0, rounds), end: null });

/** The run with every round of a lane so many times as long. */
export function slowed(trace, lane, times) {
  const clocks = {};
  const rounds = trace.rounds.map((round) => {
    const factor = round.lane === lane ? times : 1;
    const parts = ["draft_seconds", "verify_seconds", "overhead_seconds"];
    const longer = Object.fromEntries(parts.map((part) => [part, factor * round[part]]));
    clocks[round.lane] = (clocks[round.lane] ?? 0) + parts.reduce((sum, part) => sum + longer[part], 0);
    return asRound({ ...round, ...longer, clock: clocks[round.lane] });
  });
  return { ...trace, rounds };
}

/** Numbers may differ in their last bits: sums are taken in another order. */
export function close(actual, expected, path = "") {
  if (typeof expected === "number" && typeof actual === "number") {
    const off = Math.abs(actual - expected);
    assert.ok(off <= 1e-9 * Math.max(1, Math.abs(expected)), `${path}: ${actual} instead of ${expected}`);
  } else if (expected !== null && typeof expected === "object") {
    assert.ok(actual !== null && typeof actual === "object", `${path} is missing`);
    for (const name of Object.keys(expected)) close(actual[name], expected[name], `${path}.${name}`);
    if (Array.isArray(expected)) assert.equal(actual.length, expected.length, path);
  } else assert.equal(actual ?? null, expected, path);
}
