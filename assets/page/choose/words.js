// The names of configurations, the same in the table, in the charts and in sentences from Python.

const FIXED = /([\w-]+), gamma (\d+)/g;
const ADAPTIVE = /([\w-]+), gamma (\w+) up to (\d+)/g;

/** @typedef {{ drafters: Record<string, string>, policies: Record<string, string> }} Labels */

/**
 * @param {Pick<Configuration, "drafter" | "gamma" | "policy">} one
 * @param {Labels} labels
 */
export function nameOf({ drafter, gamma, policy }, { drafters, policies }) {
  const limit = policy === "fixed" ? `γ ${gamma}` : `γ ≤ ${gamma}, ${(policies[policy] ?? policy).toLowerCase()}`;
  return `${drafters[drafter] ?? drafter}, ${limit}`;
}

/**
 * The same inside of a sentence, if it does not begin one.
 * @param {string} name
 * @param {number} place
 */
const inside = (name, place) => (place ? name[0].toLowerCase() + name.slice(1) : name);

/**
 * A text of Python with the names that the page has for configurations and drafters.
 * @param {string} text
 * @param {Labels} labels
 */
export function worded(text, labels) {
  const label = labels.drafters[text.split(",")[0]];
  const named = text
    .replace(ADAPTIVE, (_, drafter, policy, gamma, place) => inside(nameOf({ drafter, gamma, policy }, labels), place))
    .replace(FIXED, (_, drafter, gamma, place) => inside(nameOf({ drafter, gamma, policy: "fixed" }, labels), place));
  return named === text && label ? text.replace(/^[^,]+/, label) : named;
}
