// The page's controls and the shown run: the values that would give this run, and the controls that differ.
// Values are in the order of the controls: the prompt, then each setting of the configuration.

import { comparedIn } from "specviz/facts/lanes.js";
import { drafterKind } from "specviz/facts/vocabulary.js";
import { settingText } from "specviz/words/description.js";
import { askedIn } from "specviz/words/words.js";

// Settings that no control can choose for a watched server.
const OF_A_SERVER = ["gamma", "gamma_policy", "drafter", "verdict", "chat", "pair"];

/**
 * The values of the controls that would give the run of this header; null if unknown.
 * @param {Header} header
 * @param {Config} config
 * @param {Record<string, Value>} [now]  their present values, by the names of the settings
 * @returns {Value[]}
 */
export function controlsOf(header, config, now = {}) {
  const { settings } = header;
  const prompt = askedIn(header);
  const preset = config.presets.find((candidate) => isSame(candidate.prompt, prompt));
  /** @type {Record<string, Value>} */
  const values = {
    verdict: "token",
    ...plainSettings(settings),
    pair: pairOf(header, config) ?? namedPair(header, now),
    lanes: comparedIn(header),
  };
  if (header.source) for (const name of OF_A_SERVER) delete values[name];
  return [preset?.prompt ?? prompt, ...Object.keys(config.defaults).map((name) => values[name] ?? null)];
}

/**
 * The controls that differ from the shown run: their values in words, by the name of the strip's item.
 * @param {Value[]} now
 * @param {Value[]} shownValues  the values that would give the shown run
 * @param {Config} config
 * @returns {Map<string, string>}
 */
export function differences([promptNow, ...now], [prompt, ...runValues], config) {
  const names = Object.keys(config.defaults);
  /** @type {(values: Value[]) => (name: string) => Value} */
  const valueIn = (values) => (name) => values[names.indexOf(name)] ?? null;
  const idle = names.filter((name) => isIdle(name, valueIn(now)) && isIdle(name, valueIn(runValues)));
  const changed = new Map();
  if (names.length && !isSame(String(promptNow), String(prompt))) changed.set("prompt", "another prompt");
  names.forEach((name, i) => {
    const isOther = now[i] !== null && now[i] !== undefined && now[i] !== runValues[i];
    if (!isOther || idle.includes(name) || (runValues[i] === null && name !== "pair")) return;
    if (name === "pair") changed.set("target", pairText(String(now[i]), runValues[i], config));
    else changed.set(name, settingText(name, now[i]));
  });
  return changed;
}

// The pair in the controls, in words; only its bits if the run's pair has the same models.
/** @type {(now: string, runPair: Value, config: Config) => string} */
function pairText(now, runPair, { pairs, pairTitles }) {
  const bits = areSameModels(pairs[now], pairs[String(runPair)]) && pairs[now].bits;
  return bits ? `target in ${bits} bits` : `pair ${pairTitles?.[now] ?? now}`;
}

// Whether a setting has no effect with the others.
/** @type {(name: string, value: (name: string) => Value) => boolean} */
function isIdle(name, value) {
  if (name === "verdict" && value("temperature") === 0) return true; // all rules keep the same guesses
  if (["gamma", "gamma_policy", "verdict"].includes(name)) return value("drafter") === "none";
  if (["target", "draft"].includes(name)) return value("pair") !== "other";
  return ["seed", "top_k", "top_p"].includes(name) && value("temperature") === 0;
}

const OTHER = "other"; // the pair whose models a visitor names
/**
 * A name without folders, case and punctuation, in which a file and its model differ.
 * @param {Value | undefined} name
 */
const bare = (name) => String(name ?? "").split("/").pop()?.toLowerCase().replace(/[^a-z0-9]/g, "") ?? "";

// "other" if the models that a visitor names are those of a run: a file's name begins with its model's.
/** @type {(header: Header, now: Record<string, Value>) => string | null} */
function namedPair({ target, draft }, now) {
  if (now.pair !== OTHER) return null;
  const is = (/** @type {Value | undefined} */ name, /** @type {Model | null} */ model) =>
    (model ? bare(model.name) !== "" && bare(name).startsWith(bare(model.name)) : true);
  return is(now.target, target) && is(now.draft, draft) ? OTHER : null;
}

/**
 * The pair of a run relative to another one, as a noun phrase: the same models with a target in other bits
 * are the same pair, though not the same speed.
 * @param {Header} header
 * @param {Config} config
 * @param {string} [pair]  the other one; by default the page's own
 */
export function pairBeside(header, config, pair = String(config.defaults.pair)) {
  const { pairs, pairTitles } = config;
  const its = pairOf(header, config);
  if (its === pair) return "the same pair";
  const bits = its && areSameModels(pairs[its], pairs[pair]) && pairs[its].bits;
  if (bits) return `the same pair with its target in ${bits} bits`;
  return `another pair: ${(its && pairTitles?.[its]) ?? header.target.name}`;
}

/**
 * Whether a run has the models of this listed pair.
 * @type {(header: Header, pair: string, config: Config) => boolean}
 */
export function areShownOf(header, pair, config) {
  const its = pairOf(header, config);
  return its !== null && areSameModels(config.pairs[its], config.pairs[pair]);
}

/** @type {(a: PairModels | undefined, b: PairModels | undefined) => boolean} */
function areSameModels(a, b) {
  if (!a || !b) return false;
  return JSON.stringify([a.target, a.draft]) === JSON.stringify([b.target, b.draft]);
}

// The name of the listed pair with the models of a run. Of several, one with the target in the run's form,
// preferably the page's own.
/** @type {(header: Header, config: Config) => string | null} */
function pairOf({ target, draft, settings, dtype }, { pairs, defaults }) {
  const is = (/** @type {Model} */ model, /** @type {[string, number | null] | undefined} */ known) =>
    known !== undefined && model.name.split("/").pop() === known[0]
    && (known[1] === null || model.parameters === known[1]);
  const has = (/** @type {PairModels} */ models) => {
    const { needs } = drafterKind(settings.drafter);
    return draft === null || needs === "layers" || is(draft, needs === "head" ? models.head : models.draft);
  };
  const form = target.weights ? undefined : dtype; // undefined if it is kept in its stored format
  const names = Object.keys(pairs).filter((name) => is(target, pairs[name].target) && has(pairs[name]));
  const inForm = names.filter((name) => pairs[name].unpacked === form);
  const likely = inForm.length ? inForm : names;
  return likely.find((name) => name === defaults.pair) ?? likely[0] ?? null;
}

/**
 * The choices of the drafter control for a pair, and its value: the wanted drafter if the pair offers it,
 * else the default.
 * @param {string} pair
 * @param {string | null} drafter
 * @param {Pick<Config, "drafters" | "drafterLabels">} config
 */
export function drafterControl(pair, drafter, { drafters, drafterLabels }) {
  const offered = drafters[pair] ?? drafterLabels.map(([, value]) => value);
  const value = drafter !== null && offered.includes(drafter) ? drafter : offered[0];
  return { choices: drafterLabels.filter(([, name]) => offered.includes(name)), value };
}

/**
 * The drafter to keep after the doctor has examined models; null to start with the pair's default. Only
 * newly named models start with the default; other weights of the same models do not.
 * @param {object} found
 * @param {string} found.drafter  that is chosen
 * @param {string} found.pair
 * @param {string} found.models  that were examined
 * @param {string} found.before  that were examined before
 * @param {boolean} found.isByHand  whether a visitor has chosen them, and not an address
 */
export function keptDrafter({ drafter, pair, models, before, isByHand }) {
  return isByHand && pair === OTHER && models !== before ? null : drafter;
}

/** @param {Settings} settings */
function plainSettings({ stop, ignore_eos: _, ...settings }) {
  return stop.length ? { ...settings, stop: stop.join(" ") } : settings;
}

// A tokenizer may add a special token before a prompt, or change its blanks.
/** @type {(shown: string, recorded: string) => boolean} */
function isSame(shown, recorded) {
  const normalized = (/** @type {string} */ text) => text.replace(/\s+/g, " ").trim();
  const a = normalized(shown);
  const b = normalized(recorded);
  return a === b || (a !== "" && b.replace(/^<[^>]*>/, "") === a);
}
