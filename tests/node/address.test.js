// What an address may name.

import assert from "node:assert/strict";
import test from "node:test";

import { readAddress } from "specviz/run/address.js";

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
