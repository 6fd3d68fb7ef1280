// What the controls would have to say for a run, and where they say something else.

import assert from "node:assert/strict";
import test from "node:test";

import { worstFirst } from "specviz/controls/doctor.js";
import { controlsOf, differences, drafterControl, isOwnPair, keptDrafter, pairTitle } from "specviz/run/controls.js";

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
  assert.ok(isOwnPair(RUN, config));
  const named = { pair: "other", target: "/models/other-2b-q4_k_m.gguf", draft: "owner/Little" };
  assert.deepEqual(said(header("Other-2B", "owner/Little"), named), {});
  assert.deepEqual(said(header("Other-2B", null), { ...named, draft: "" }), {});
});

test("of pairs that share their files a run is of the one that has its target in the same form", () => {
  const file = { target: ["Large-1.5B", 1500], draft: ["Small-0.5B", 500] };
  const shared = { ...config, defaults: { pair: "wide" }, pairs: { wide: { ...file, unpacked: "bfloat16" }, packed: file } };
  const as = (form) => ({ ...RUN, ...form, target: { ...RUN.target, ...form.target } });
  const titles = { pairTitles: { wide: "in 16 bits", packed: "in 4 bits" } };
  assert.equal(pairTitle(as({ target: { weights: "Q4_K" }, dtype: "Q4_K" }), { ...shared, ...titles }), "in 4 bits");
  assert.equal(pairTitle(as({ dtype: "bfloat16" }), { ...shared, ...titles }), "in 16 bits");
  assert.equal(isOwnPair(as({ dtype: "bfloat16" }), { ...shared, defaults: { pair: "packed" } }), false);
  assert.ok(isOwnPair(as({ dtype: "float32" }), shared)); // whatever the weights are
});

test("another pair is called by its models", () => {
  assert.deepEqual(said(header("Tiny", null), {}), { target: "pair Large-1.5B + Small-0.5B" });
  assert.deepEqual(said(RUN, { pair: "tiny" }), { target: "pair Tiny pair" });
  const named = { pair: "other", target: "owner/Else", draft: "" };
  assert.deepEqual(said(header("Other-2B", null), named), { target: "pair other" });
  assert.equal(pairTitle(header("Tiny", null), { ...config, pairs: { tiny: { target: ["Tiny", null] } } }), "Tiny pair");
  assert.equal(pairTitle(header("Unknown", null), config), "Unknown");
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
