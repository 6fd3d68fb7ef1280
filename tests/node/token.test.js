// The tokens of a round as a lane shows them.

import assert from "node:assert/strict";
import test from "node:test";

import { restOfWord } from "specviz/race/token.js";
import { instructiveRound } from "specviz/run/slow-motion.js";
import { visible } from "specviz/words/words.js";

const of = (...texts) => texts.map((text) => ({ text }));

test("the room that a word needs is known up to its end, over several tokens", () => {
  assert.equal(restOfWord(of("ing", "ly", " then")), "ingly");
  assert.equal(restOfWord(of(" then", "ce")), "");
  assert.equal(restOfWord(of("\n", "Then")), "");
  assert.equal(restOfWord(of(".", "<|im_end|>")), ".");
  assert.equal(restOfWord([]), "");
});

test("blanks are told apart where a token has nothing else", () => {
  const shown = [" ", "   ", " ".repeat(8), "\n", "\n\n", "\n    ", "\n" + " ".repeat(8), "\t\t", " \u00a0"];
  assert.deepEqual(shown.map(visible),
    ["␣", "␣␣␣", "␣×8", "¶", "¶¶", "¶␣␣␣␣", "¶␣×8", "⇥⇥", "␣␣"]);
  assert.deepEqual(["", " def", ".\n", "\u200b"].map(visible), ["◌", "def", ".¶", "\u200b"]);
});

test("the round that tells most is one whose models part at words", () => {
  const round = (rejected, own) => ({
    drafted: [
      { text: "a", outcome: "accepted" }, { text: rejected, outcome: "rejected" }, { text: "b", outcome: "ignored" },
    ],
    emitted: [{ text: "a", outcome: "accepted" }, { text: own, outcome: "corrected" }],
  });
  const first = [round(" test", " verify"), round(" test", " verify")]; // nothing stands before these
  const blank = round("\n", "  ");
  const half = round("(", " that");
  const words = round(" word", " string");
  assert.equal(instructiveRound([...first, blank, half, words, words]), words);
  assert.equal(instructiveRound([...first, blank, half]), blank);
});
