// The page's figures of small runs are those that were worked out by hand; test_figures.py reads the same table.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { bestGamma, breakEvenOf, explain } from "specviz/facts/costs.js";
import { ALONE, lanesOf, WITH_DRAFTS, twoOf, twoRounds } from "specviz/facts/lanes.js";
import { measure, series } from "specviz/facts/metrics.js";
import { asHeader, asRound } from "specviz/facts/trace.js";
import { spreadOf, uncertainty } from "specviz/facts/uncertainty.js";

import { close, runOf } from "./runs.js";

const MAX_GAMMA = 16; // as the page is told
const OUTCOMES = { a: "accepted", r: "rejected", i: "ignored" };
const table = JSON.parse(readFileSync(new URL("../figures.json", import.meta.url), "utf8"), (_, value) => {
  const [, part, whole] = /^(\d+)\/(\d+)$/.exec(value) ?? [];
  return whole ? part / whole : value;
});

/** The run that a case describes. */
function traceOf({ lanes = [WITH_DRAFTS], prefill, source = null, rounds }) {
  const noPrefill = Object.fromEntries([...lanes, ALONE].map((lane) => [lane, {}]));
  const header = asHeader({
    lanes: Object.fromEntries(lanes.map((lane) => [lane, { gamma: 1 }])),
    drafts: Object.fromEntries(lanes.map((lane) => [lane, null])),
    prefill_seconds: source && prefill ? prefill : { ...noPrefill, ...prefill },
    source,
  });
  return { header, rounds: [...lanes, ALONE].flatMap((lane) => roundsOf(rounds.filter((round) => round.lane === lane))) };
}

function roundsOf(described) {
  let clock = 0;
  return described.flatMap((round) => Array(round.times ?? 1).fill(round)).map((round, index) => {
    const { lane, drafted, last, betas = [], chances = [], seconds, wall, exchanged } = round;
    const [draft, verify, overhead] = seconds;
    clock += draft + verify + overhead;
    return asRound({
      lane, index, clock, wall, exchanged, draft_seconds: draft, verify_seconds: verify, overhead_seconds: overhead,
      drafted: [...drafted].map((letter, i) => ({ outcome: OUTCOMES[letter], beta: betas[i], chance: chances[i] })),
      last: last && { outcome: last },
    });
  });
}

for (const { name, figures, series: points, ...described } of table.runs) {
  test(name, () => {
    const { header, rounds } = traceOf(described);
    for (const [lane, wanted] of Object.entries(figures)) {
      close(measure(rounds, header, lane), wanted.metrics ?? {}, "metrics");
      if ("uncertainty" in wanted) {
        const { delays: { [lane]: ours, ...others } = {}, ...rest } = wanted.uncertainty ?? {};
        const delays = ours === undefined ? {} : { [WITH_DRAFTS]: ours, ...others };
        const found = uncertainty(twoRounds(rounds, lane));
        close(found, wanted.uncertainty && { ...rest, delays }, "uncertainty");
      }
      if ("why" in wanted) close(explain(rounds, header, MAX_GAMMA), wanted.why, "why");
    }
    close(series(rounds, lanesOf(header)), points ?? {}, "series");
  });
}

test("a spread is the median and the quartiles", () => {
  for (const { values, ...wanted } of table.spreads) close(spreadOf(values), wanted);
});

test("what would pay, for given prices and an alpha of 0.8", () => {
  for (const { gamma, c, judging, break_even: even, best_gamma: best, best_speedup: speedup } of table.prices) {
    close(breakEvenOf(new Map([[gamma, 1]]), gamma * c + judging), even);
    close(bestGamma(0.8, c, judging, gamma, MAX_GAMMA), { gamma: best, speedup });
  }
});

test("one lane of several is measured as if it had raced the target alone", () => {
  const race = runOf("several.json");
  for (const lane of lanesOf(race.header).slice(0, -1)) {
    const two = twoOf(race, lane);
    assert.equal(measure(two.rounds, two.header).speedup, measure(race.rounds, race.header, lane).speedup);
  }
});
