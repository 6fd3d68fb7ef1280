// What an address may name.

import assert from "node:assert/strict";
import test from "node:test";

import { controlsFor, queryOf, readAddress } from "specviz/run/address.js";

const config = (pairs) => ({
  presets: [], recordings: {}, limits: {}, whole: [], mostPrompt: 100,
  defaults: { pair: "builtin", target: "", draft: "" }, choices: { pair: pairs },
});
const asked = (search, pairs) => {
  const { settings, wrong } = readAddress(search, config(pairs));
  return { settings, wrong };
};
const LISTED = ["builtin", "smollm2-135m"], OPEN = [...LISTED, "other"];

test("a pair of the list is taken, wherever it is named", () => {
  for (const pairs of [LISTED, OPEN]) {
    assert.deepEqual(asked("?pair=smollm2-135m", pairs), { settings: { pair: "smollm2-135m" }, wrong: [] });
  }
});

test("a pair of a visitor's own is taken apart where visitors may name models", () => {
  const whole = (target, draft) => ({ settings: { pair: "other", target, draft }, wrong: [] });
  assert.deepEqual(asked("?pair=owner/one%2Bowner/two", OPEN), whole("owner/one", "owner/two"));
  assert.deepEqual(asked("?pair=/models/a%2Bb%2Bnone", OPEN), whole("/models/a+b", ""));
  assert.deepEqual(asked("?pair=other&target=a&draft=b", OPEN), whole("a", "b"));
});

test("where they may not, or for an address of a server, the link is told to be wrong", () => {
  assert.deepEqual(asked("?pair=owner/one%2Bowner/two", LISTED), { settings: {}, wrong: ["pair"] });
  assert.deepEqual(asked("?pair=http://host/v1%23m%2Bd", OPEN), { settings: {}, wrong: ["pair"] });
  assert.deepEqual(asked("?pair=nonsense", OPEN), { settings: {}, wrong: ["pair"] });
});

const racing = {
  presets: [], recordings: {}, whole: [], mostPrompt: 100, limits: { temperature: [0, 2] },
  defaults: { temperature: 0.7, lanes: "one" },
  choices: { lanes: ["one", "drafters", "gammas", "policies", "verdicts"] },
};
const temperatureOf = (search) => controlsFor(readAddress(search, racing), racing)[1];

test("lanes that differ in speed alone begin greedy, and write one text", () => {
  for (const lanes of ["drafters", "gammas", "policies"]) {
    assert.equal(temperatureOf(`?lanes=${lanes}`), 0);
    assert.equal(temperatureOf(`?lanes=${lanes}&temperature=0.5`), 0.5);
  }
  for (const search of ["", "?lanes=one", "?lanes=verdicts"]) assert.equal(temperatureOf(search), 0.7);
});

test("the address of such a race brings its temperature back", () => {
  for (const values of [["x", 0, "drafters"], ["x", 0.7, "drafters"], ["x", 0.7, "one"], ["x", 0, "one"]]) {
    const query = queryOf({ values, recording: null, theme: null, stage: false, view: null }, racing, "");
    assert.equal(temperatureOf(query), values[1], query);
  }
});
