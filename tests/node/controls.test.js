// What the controls would have to say for a run, and where they say something else.

import assert from "node:assert/strict";
import test from "node:test";

import { worstFirst } from "specviz/controls/doctor.js";
import { promptHint } from "specviz/words/words.js";
import { controlsOf, differences, drafterControl, keptDrafter, pairBeside } from "specviz/run/controls.js";

const OWN = "/models/large.gguf+/models/small.gguf";
const config = {
  presets: [],
  defaults: { pair: OWN, target: "", draft: "", gamma: 5 },
  pairs: {
    listed: { target: ["Large-1.5B", 1500], draft: ["Small-0.5B", 500] },
    [OWN]: { target: ["Large-1.5B", null], draft: ["Small-0.5B", null] },
    tiny: { target: ["Tiny", 10] },
  },
  pairTitles: { listed: "Listed", [OWN]: "Large-1.5B + Small-0.5B", tiny: "Tiny pair" },
};
const header = (target, draft) => ({
  prompt: "p", target: { name: target, parameters: 1500 }, draft: draft && { name: draft, parameters: 500 },
  lanes: { speculative: {} }, settings: { gamma: 5, drafter: "model", stop: [] },
});
const RUN = header("Large-1.5B", "owner/Small-0.5B");
/** What is said against a run by controls with these values. */
function said(run, now) {
  const values = { pair: OWN, target: "", draft: "", gamma: 5, ...now };
  const shown = controlsOf(run, config, values);
  return Object.fromEntries(differences(["p", ...Object.values(values)], shown, config));
}

test("nothing is said against a run of the very pair that the controls hold", () => {
  assert.deepEqual(said(RUN, {}), {});
  assert.equal(pairBeside(RUN, config), "the same pair");
  const named = { pair: "other", target: "/models/other-2b-q4_k_m.gguf", draft: "owner/Little" };
  assert.deepEqual(said(header("Other-2B", "owner/Little"), named), {});
  assert.deepEqual(said(header("Other-2B", null), { ...named, draft: "" }), {});
});

test("of pairs that share their files a run is of the one that has its target in the same form", () => {
  const file = { target: ["Large-1.5B", 1500], draft: ["Small-0.5B", 500] };
  const pairs = { wide: { ...file, unpacked: "bfloat16", bits: 16 }, packed: { ...file, bits: 4 }, tiny: config.pairs.tiny };
  const of = (pair) => ({ ...config, pairs, defaults: { pair } });
  const packed = { ...RUN, target: { ...RUN.target, weights: "Q4_K" }, dtype: "Q4_K" };
  const wide = { ...RUN, dtype: "bfloat16" };
  assert.equal(pairBeside(packed, of("packed")), "the same pair");
  assert.equal(pairBeside(wide, of("wide")), "the same pair");
  assert.equal(pairBeside({ ...RUN, dtype: "float32" }, of("wide")), "the same pair"); // whatever the weights are
  // In other bits it is no other pair, though its speed is another.
  assert.equal(pairBeside(wide, of("packed")), "the same pair with its target in 16 bits");
  assert.equal(pairBeside(packed, of("wide")), "the same pair with its target in 4 bits");
  assert.equal(pairBeside(wide, of("tiny"), "packed"), "the same pair with its target in 16 bits");
  assert.equal(pairBeside(wide, of("tiny")), "another pair: Large-1.5B");
  const controls = (run, pair) => differences(["p", pair], controlsOf(run, of(pair)), of(pair)).get("target");
  assert.equal(controls(wide, "packed"), "target in 4 bits");
  assert.equal(controls(packed, "wide"), "target in 16 bits");
  assert.equal(controls(wide, "tiny"), "pair Tiny pair");
});

test("another pair is called by its models", () => {
  assert.deepEqual(said(header("Tiny", null), {}), { target: "pair Large-1.5B + Small-0.5B" });
  assert.deepEqual(said(RUN, { pair: "tiny" }), { target: "pair Tiny pair" });
  const named = { pair: "other", target: "owner/Else", draft: "" };
  assert.deepEqual(said(header("Other-2B", null), named), { target: "pair other" });
  assert.equal(pairBeside(header("Tiny", null), { ...config, pairs: { tiny: { target: ["Tiny", null] } } }), "another pair: Tiny pair");
  assert.equal(pairBeside(header("Unknown", null), config), "another pair: Unknown");
});

test("models that are named begin with their own drafter, and other weights of them change no choice", () => {
  const named = { drafter: "ngram", pair: "other", models: "a/b+c/d", before: "a/b+none", isByHand: true };
  assert.equal(keptDrafter(named), null);
  assert.equal(keptDrafter({ ...named, before: "a/b+c/d" }), "ngram");
  assert.equal(keptDrafter({ ...named, isByHand: false }), "ngram"); // an address may name a drafter as well
  assert.equal(keptDrafter({ ...named, pair: "listed" }), "ngram");
});

test("a pair's drafters are offered, and one of them is chosen", () => {
  const labels = [["Draft model", "model"], ["n-grams", "ngram"], ["None", "none"]];
  const some = { drafterLabels: labels, drafters: { small: ["ngram", "none"], unknown: null } };
  assert.deepEqual(drafterControl("small", "model", some), { choices: labels.slice(1), value: "ngram" });
  assert.equal(drafterControl("small", "none", some).value, "none");
  assert.deepEqual(drafterControl("unknown", "model", some), { choices: labels, value: "model" });
});

test("of a report the worst is told first", () => {
  const told = ["good", "stop", "warning", "good"].map((level, place) => ({ level, place }));
  assert.deepEqual(worstFirst(told).map(({ place }) => place), [1, 2, 0, 3]);
});

test("an empty prompt asks a chat model a question, and has any other go on from a beginning", () => {
  assert.match(promptHint({ chat: true }, "auto"), /^Ask something; both lanes answer/);
  assert.match(promptHint({ chat: false }, "literal"), /^Ask something; both lanes answer/);
  assert.match(promptHint({ chat: true }, "off"), /continue it$/);
  assert.match(promptHint({ chat: false }, "auto"), /continue it$/);
  assert.match(promptHint(undefined, "auto"), /question|ask.*beginning/i);
});
