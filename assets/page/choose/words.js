// The names of configurations, the same in the table, in the charts and in sentences from Python.

import { choiceIn } from "specviz/facts/vocabulary.js";

const FIXED = /([\w-]+), gamma (\d+)/g;
const ADAPTIVE = /([\w-]+), gamma (\w+) up to (\d+)/g;

/** @param {Pick<Configuration, "drafter" | "gamma" | "policy">} one */
export function nameOf({ drafter, gamma, policy }) {
  const limit = policy === "fixed" ? `γ ${gamma}` : `γ ≤ ${gamma}, ${choiceIn("policies", policy).toLowerCase()}`;
  return `${choiceIn("drafters", drafter)}, ${limit}`;
}

/**
 * The same inside of a sentence, if it does not begin one.
 * @type {(name: string, place: number) => string}
 */
const inside = (name, place) => (place ? name[0].toLowerCase() + name.slice(1) : name);

/**
 * A text of Python with the names that the page has for configurations and drafters.
 * @param {string} text
 */
export function worded(text) {
  const named = text
    .replace(ADAPTIVE, (_, drafter, policy, gamma, place) => inside(nameOf({ drafter, gamma, policy }), place))
    .replace(FIXED, (_, drafter, gamma, place) => inside(nameOf({ drafter, gamma, policy: "fixed" }), place));
  return named === text ? text.replace(/^[^,]+/, (name) => choiceIn("drafters", name)) : named;
}
