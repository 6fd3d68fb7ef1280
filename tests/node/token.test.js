// The tokens of a round as a lane shows them.

import assert from "node:assert/strict";
import test from "node:test";

import { restOfWord } from "specviz/race/token.js";

const of = (...texts) => texts.map((text) => ({ text }));

test("the room that a word needs is known up to its end, over several tokens", () => {
  assert.equal(restOfWord(of("ing", "ly", " then")), "ingly");
  assert.equal(restOfWord(of(" then", "ce")), "");
  assert.equal(restOfWord(of("\n", "Then")), "");
  assert.equal(restOfWord(of(".", "<|im_end|>")), ".");
  assert.equal(restOfWord([]), "");
});
