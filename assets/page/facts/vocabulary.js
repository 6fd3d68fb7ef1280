// Names, labels and sentences of drafters, verdicts and lanes. Python writes them to vocabulary.json; a
// served page gets its own, with the kinds of other packages.

/** @type {Vocabulary} */
let words = { drafters: {}, verdicts: {}, policies: {}, compared: {}, lanes: {} };

/** A kind from a package that this page does not know is called by its own name. */
const UNKNOWN = {
  guessed: "",
  guessed_greedy: "",
  needs: null,
  certain: false,
  has_model: false,
  exact: true,
  warning: "",
  law: "",
  note: "",
  left: "",
  chance: false,
  threshold: null,
  together: false,
  draws: true,
};

/** @param {Vocabulary} vocabulary that is used from now on */
export function learn(vocabulary) {
  words = vocabulary;
}

/** @type {(name: string) => DrafterWords} */
export const drafterKind = (name) => entryOf(words.drafters, name) ?? {
  ...UNKNOWN,
  label: name,
  choice: name,
  clause: `guesses come from ${name}`,
  who: "The drafter guesses",
  unguessed: "Nothing was drafted in this round.",
};

/** @type {(name: string) => VerdictWords} */
export const verdictKind = (name) => entryOf(words.verdicts, name) ?? { ...UNKNOWN, label: name };

/**
 * The label of an entry.
 * @type {(table: "policies" | "compared" | "lanes", name: string) => string}
 */
export const labelIn = (table, name) => entryOf(words[table], name)?.label ?? name;

/**
 * The label of an entry in a control.
 * @type {(table: "drafters" | "policies", name: string) => string}
 */
export const choiceIn = (table, name) => entryOf(words[table], name)?.choice ?? name;

/**
 * The entry of this name. Lanes may have any name, also one of an inherited property.
 * @template Words
 * @param {Record<string, Words>} table
 * @param {string} name
 * @returns {Words | undefined}
 */
const entryOf = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined);
