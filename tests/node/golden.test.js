// The page's figures are those of Python, on every recording and on parts of it.

import assert from "node:assert/strict";
import test from "node:test";

import { bestGamma, breakEvenOf, explain } from "specviz/facts/costs.js";
import { lanesOf, OURS, twoOf, twoRounds } from "specviz/facts/lanes.js";
import { measure, series } from "specviz/facts/metrics.js";
import { uncertainty } from "specviz/facts/uncertainty.js";

import { close, cutOff, golden, runOf } from "./runs.js";

for (const wanted of golden.cases) {
  const { run, rounds, lane } = wanted;
  test(`${run}, ${rounds ?? "all"} rounds, ${lane}`, () => {
    const trace = cutOff(runOf(run), rounds), { header } = trace;
    close(measure(trace.rounds, header, lane), wanted.metrics, "metrics");
    close(series(trace.rounds, lanesOf(header)), wanted.series, "series");
    const found = uncertainty(twoRounds(trace.rounds, lane));
    assert.equal(found === null, wanted.uncertainty === null);
    if (found) {
      const { delays, ...others } = wanted.uncertainty;
      close(found, others, "uncertainty");
      close(found.delays, { speculative: delays[lane], baseline: delays.baseline }, "delays");
    }
    if (lane === OURS) close(explain(trace.rounds, header, golden.most_gamma), wanted.why, "why");
  });
}

test("what would pay, for given prices", () => {
  for (const { given: [gamma, c, judging], break_even: even, best: [best, speedup] } of golden.prices) {
    close(breakEvenOf(new Map([[gamma, 1]]), gamma * c + judging), even);
    const found = bestGamma(0.8, c, judging, gamma, golden.most_gamma);
    assert.equal(found.gamma, best);
    close(found.speedup, speedup);
  }
});

test("one lane of several is measured as if it had raced the target alone", () => {
  const race = runOf("several.json");
  for (const lane of lanesOf(race.header).slice(0, -1)) {
    const two = twoOf(race, lane);
    assert.equal(measure(two.rounds, two.header).speedup, measure(race.rounds, race.header, lane).speedup);
  }
});
