// Figures as people read them, and the speed at which a run can be read.

import assert from "node:assert/strict";
import test from "node:test";

import { labelsOf, timePlaces } from "specviz/charts/live.js";
import { sharedLine } from "specviz/race/lane.js";
import { layOut } from "specviz/share/film-text.js";
import { fitted, inLines } from "specviz/share/paint.js";
import { stepsOf } from "specviz/explain/steps.js";
import { ALONE, WITH_DRAFTS } from "specviz/facts/lanes.js";
import { measure, unguessed } from "specviz/facts/metrics.js";
import { remaining } from "specviz/words/verdict.js";
import { asRound } from "specviz/facts/trace.js";
import { Timeline } from "specviz/run/timeline.js";
import { headlineOf } from "specviz/words/verdict.js";
import { perSecond, written } from "specviz/words/words.js";

import { cutOff, runOf, slowed } from "./runs.js";

const short = runOf("easy.json.gz");
const slow = slowed(slowed(short, WITH_DRAFTS, 300), ALONE, 300); // such as a pair of billions on a processor
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
  const own = unguessed(copies.rounds, WITH_DRAFTS);
  const rounds = copies.rounds.filter(({ lane, drafted }) => lane === WITH_DRAFTS && !drafted.length);
  assert.ok(own > 0 && own < counts.bonus);
  assert.equal(own, rounds.length);
});

test("what checking costs is said by the measured times of this very round", () => {
  const round = short.rounds.find(({ lane, drafted }) => lane === WITH_DRAFTS && drafted.length > 1);
  const alone = short.rounds.filter(({ lane }) => lane === ALONE);
  const single = alone.reduce((sum, { verify_seconds: seconds }) => sum + seconds, 0) / alone.length;
  const noteAt = (seconds) => {
    const told = asRound({ ...round, verify_seconds: seconds });
    return stepsOf(told, { ...short, rounds: [told, ...alone] }).find(({ chapter }) => chapter === "Check").note;
  };
  assert.match(noteAt(2 * single), /^Checking is not free: a one-token pass takes .*ms here on average/);
  for (const seconds of [0.9 * single, single]) {
    assert.match(noteAt(seconds), /^Checking cost nothing extra here/);
    assert.doesNotMatch(noteAt(seconds), /not free|costs more than one/);
  }
});

test("a guess that ends because the draft is not sure says so", () => {
  const ends = (drafted, changes = {}) => {
    const settings = { ...short.header.settings, gamma_policy: "confidence", ...changes };
    const rounds = short.rounds.filter(({ lane }) => lane === WITH_DRAFTS).slice(0, 3);
    const told = asRound({ ...rounds[2], drafted: rounds[2].drafted.slice(0, drafted) });
    const all = [rounds[0], rounds[1], told];
    return /by its own estimate/.test(stepsOf(told, { ...short, header: { ...short.header, settings }, rounds: all })[0].sentence);
  };
  const { gamma } = short.header.settings;
  const before = short.rounds.filter(({ lane }) => lane === WITH_DRAFTS).slice(0, 2).flatMap(({ emitted }) => emitted).length;
  assert.ok(ends(gamma - 1));
  assert.ok(!ends(gamma), "it drafted all that it may");
  assert.ok(!ends(gamma - 1, { gamma_policy: "optimal" }));
  assert.ok(!ends(gamma - 1, { drafter: "ngram" }), "copies are never unsure");
  assert.ok(!ends(gamma - 1, { max_new_tokens: before + gamma }), "there was no room for more");
  assert.ok(ends(gamma - 1, { max_new_tokens: before + gamma + 1 }));
});

test("the time at the end of a line lies over no dot and over no other time", () => {
  const width = 388, text = "1.53 s";
  const boxOf = ({ x, y }, { box }) => {
    const [left, up, right, down] = box(8 * text.length);
    return [x + left, y + up, x + right, y + down];
  };
  const overlap = ([l, u, r, d], [left, up, right, down]) => l < right && left < r && u < down && up < d;
  for (let x = 60; x <= 374; x += 7) {
    for (const y of [20, 26, 34, 44, 60]) {
      const dots = [{ x, y }, { x: 374, y: 26 }];
      for (const [one, other] of [dots, [...dots].reverse()].map((pair) => [pair, timePlaces(pair, [text, text], width)])) {
        const boxes = one.map((dot, i) => boxOf(dot, other[i]));
        const around = one.map((dot) => [dot.x - 4, dot.y - 4, dot.x + 4, dot.y + 4]);
        if (Math.hypot(one[0].x - one[1].x, one[0].y - one[1].y) < 14) continue; // one dot lies over the other
        assert.ok(!overlap(boxes[0], boxes[1]), `times at ${x}, ${y}`);
        assert.ok(!overlap(boxes[0], around[1]) && !overlap(boxes[1], around[0]), `a dot at ${x}, ${y}`);
      }
    }
  }
});

test("a long run says about how long it will still take, and a short or a finished one does not", () => {
  const ratios = new Map([[WITH_DRAFTS, null]]);
  const told = (trace) => headlineOf(trace.rounds, trace, WITH_DRAFTS, ratios).beside;
  const secondsOfLanes = (rounds) => [WITH_DRAFTS, ALONE]
    .map((name) => Math.max(0, ...rounds.filter(({ lane }) => lane === name).map(({ clock }) => clock)))
    .reduce((sum, seconds) => sum + seconds, 0);
  const whole = secondsOfLanes(slow.rounds);
  assert.ok(whole > 20);
  for (const share of [0.3, 0.5, 0.7, 0.9]) {
    const rounds = slow.rounds.slice(0, Math.floor(share * slow.rounds.length));
    const going = { ...slow, rounds, end: null };
    const [, seconds] = /^about (\d+) s left$/.exec(told(going));
    const left = whole - secondsOfLanes(rounds);
    assert.ok(Math.abs(Number(seconds) - left) < 5 + 0.25 * left, `${seconds} s instead of ${left}`);
  }
  assert.equal(told(cutOff(slow, 4)), ""); // too little is known
  assert.doesNotMatch(told(slow), /left/);
  assert.equal(told(cutOff(short, 30)), "");
});

test("a lane whose text has ended takes no more time", () => {
  const until = slow.rounds.filter(({ lane, index }) => lane === ALONE || index < 8);
  const going = { ...slow, rounds: until.slice(0, -20), end: null };
  const { left } = remaining(going);
  const alone = until.filter(({ lane }) => lane === ALONE);
  const rest = alone[alone.length - 1].clock - alone[alone.length - 21].clock;
  assert.ok(Math.abs(left - rest) < 0.3 * rest, `${left} s instead of ${rest}`);
});


test("a label of the large chart lies over no dot and within the chart, or is left out", () => {
  const size = { width: 388, height: 320 };
  const line = (seconds, tokens) => Array.from({ length: 20 }, (_, i) => ({ x: (seconds * i) / 19, y: (tokens * i) / 19 }));
  const overlap = ([l, u, r, d], [left, up, right, down]) => l < right && left < r && u < down && up < d;
  for (const clock of [10, 40]) {
    for (const share of [0.02, 0.1, 0.3, 0.5, 0.8, 0.97, 1]) {
      for (const lag of [0.2, 0.5, 0.8, 0.95, 1.3]) {
        for (const isWhole of [false, true]) {
          const drafted = line(share * clock, Math.min(100, 100 * share));
          const alone = line(Math.min(clock, share * clock * (isWhole ? 1 / lag : 1)), Math.min(100, 100 * share * (isWhole ? 1 : lag)));
          const parts = { drafted, alone, isWhole, ratio: "1.53", clock, tokens: 100, name: "with drafts", isAhead: lag < 1, size };
          const place = ({ x, y }) => ({ x: 38 + (x / clock) * (388 - 52), y: 294 - (y / 100) * 268 });
          const dots = [drafted, alone].map((points) => place(points.at(-1)));
          if (Math.hypot(dots[0].x - dots[1].x, dots[0].y - dots[1].y) < 14) continue; // one dot lies over the other
          for (const { at, text, className, by } of labelsOf(parts).filter((label) => !label.className.includes("is-ratio"))) {
            const wide = 8 * text.length;
            const point = place(at);
            const left = point.x + by[0] - (className.includes("is-left") ? wide : /is-(above|below)/.test(className) ? wide / 2 : 0);
            assert.ok(left >= -1 && left + wide <= 389, `${text} is within the chart`);
            const high = className.includes("is-above") ? -17 : 0;
            const box = [left, point.y + by[1] - 8 + high / 2, left + wide, point.y + by[1] + 8 + high / 2];
            for (const dot of dots) {
              assert.ok(!overlap(box, [dot.x - 4, dot.y - 4, dot.x + 4, dot.y + 4]), `${text} lies over a dot at ${share}, ${lag}, ${clock}`);
            }
          }
        }
      }
    }
  }
});

test("a line is cut between words, and broken between its parts", () => {
  const upTo = (most) => (text) => text.length <= most;
  assert.equal(fitted("Write only the code: a Python function", upTo(20)), "Write only the code…");
  assert.equal(fitted("short", upTo(20)), "short");
  assert.equal(fitted("unbreakable", upTo(6)), "unbre…");
  assert.deepEqual(inLines("one model + another · γ 4 · greedy", upTo(22)), ["one model + another ·", "γ 4 · greedy"]);
  assert.deepEqual(inLines("a name of many words", upTo(8)), ["a name", "of many", "words"]);
});

test("lines of a lane share its room, near their usual height", () => {
  for (let room = 90; room < 900; room += 7) {
    const { height, spare } = sharedLine(room, 31);
    assert.ok(height >= 29 && height <= 39, `${height} px`);
    assert.ok(Number.isInteger(height) && spare < height);
    if (room > 200) assert.ok(spare < room / height + 1, `${spare} px are left of ${room}`);
  }
});


test("the film of an answer sets code as code and prints no sign of a template", () => {
  const context = { font: "", measureText: (text) => ({ width: 10 * text.length }) };
  const token = (text, outcome) => ({ text, outcome });
  const round = (index, drafted, last) => ({ lane: WITH_DRAFTS, index, drafted, last, emitted: [...drafted, last], clock: index + 1, draft_seconds: 0.1 });
  const rounds = [
    round(0, [token("Run:\n", "accepted")], token("```\n", "bonus")),
    round(1, [token("x = 1\n", "accepted")], token("```", "bonus")),
    round(2, [], token("<|im_end|>", "bonus")),
  ];
  const placed = layOut(context, rounds, { prompt: "asked", question: "?" }, 400);
  const fontOf = (text) => placed.find((piece) => piece.text === text).font;
  assert.ok(!placed.some(({ text }) => text.includes("im_end")));
  assert.match(fontOf("x"), /Mono/);
  assert.doesNotMatch(fontOf("Run:"), /Mono/);
});
