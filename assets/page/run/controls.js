// The page's controls and the run that is shown: what the controls would have to say to give this
// run, and where they say something else. Values stand in the order of the controls: the prompt,
// then each setting of the configuration.

import { comparedIn } from "specviz/facts/lanes.js";
import { drafterKind } from "specviz/facts/vocabulary.js";
import { settingText } from "specviz/words/description.js";
import { askedIn } from "specviz/words/words.js";

// Settings of a watched server, which no control chooses.
const OF_A_SERVER = ["gamma", "gamma_policy", "drafter", "verdict", "chat", "pair"];

/**
 * The values of the controls that would give the run of this header; null where they are unknown.
 * @param {Header} header
 * @param {Config} config
 * @param {Record<string, Value>} [now]  what they say, by the names of the settings
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
 * @param {Value[]} shown what they would have to say for the shown run
 * @param {Config} config
 * @returns {Map<string, string>}
 */
export function differences([promptNow, ...now], [prompt, ...shown], config) {
  const names = Object.keys(config.defaults);
  /** @type {(values: Value[]) => (name: string) => Value} */
  const valueIn = (values) => (name) => values[names.indexOf(name)] ?? null;
  const idle = names.filter((name) => isIdle(name, valueIn(now)) && isIdle(name, valueIn(shown)));
  const changed = new Map();
  if (names.length && !isSame(String(promptNow), String(prompt))) changed.set("prompt", "another prompt");
  names.forEach((name, i) => {
    const isOther = now[i] !== null && now[i] !== undefined && now[i] !== shown[i];
    if (!isOther || idle.includes(name) || (shown[i] === null && name !== "pair")) return;
    if (name === "pair") changed.set("target", pairText(String(now[i]), shown[i], config));
    else changed.set(name, settingText(name, now[i]));
  });
  return changed;
}

// A pair that the controls name where a run is of another; of the same models in other bits, those.
/** @type {(now: string, shown: Value, config: Config) => string} */
function pairText(now, shown, { pairs, pairTitles }) {
  const bits = areSameModels(pairs[now], pairs[String(shown)]) && pairs[now].bits;
  return bits ? `target in ${bits} bits` : `pair ${pairTitles?.[now] ?? now}`;
}

// Whether a setting does nothing beside the others.
/** @type {(name: string, value: (name: string) => Value) => boolean} */
function isIdle(name, value) {
  if (name === "verdict" && value("temperature") === 0) return true; // all four keep the same guesses
  if (["gamma", "gamma_policy", "verdict"].includes(name)) return value("drafter") === "none";
  if (["target", "draft"].includes(name)) return value("pair") !== "other";
  return ["seed", "top_k", "top_p"].includes(name) && value("temperature") === 0;
}

const OTHER = "other"; // the pair whose models a visitor names
/**
 * A name without folders, and without what differs between a file and its model.
 * @param {Value | undefined} name
 */
const bare = (name) => String(name ?? "").split("/").pop()?.toLowerCase().replace(/[^a-z0-9]/g, "") ?? "";

// The pair whose models a visitor names, if they are those of a run: a file's name begins with its model's.
/** @type {(header: Header, now: Record<string, Value>) => string | null} */
function namedPair({ target, draft }, now) {
  if (now.pair !== OTHER) return null;
  const is = (/** @type {Value | undefined} */ name, /** @type {Model | null} */ model) =>
    (model ? bare(model.name) !== "" && bare(name).startsWith(bare(model.name)) : true);
  return is(now.target, target) && is(now.draft, draft) ? OTHER : null;
}

/**
 * What the pair of a run is to another one, to go on a sentence with: the same models with the target
 * in other bits are no other pair, though another speed.
 * @param {Header} header
 * @param {Config} config
 * @param {string} [pair]  the other one; that which the page was started with
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
 * Whether a run is of the models of this listed pair.
 * @type {(header: Header, pair: string, config: Config) => boolean}
 */
export function areShownOf(header, pair, config) {
  const its = pairOf(header, config);
  return its !== null && areSameModels(config.pairs[its], config.pairs[pair]);
}

/** @type {(one: PairModels | undefined, other: PairModels | undefined) => boolean} */
function areSameModels(one, other) {
  if (!one || !other) return false;
  return JSON.stringify([one.target, one.draft]) === JSON.stringify([other.target, other.draft]);
}

// The name of the listed pair with the models of a run. Several pairs may have them: then the one that
// has the target in the run's form, and of those the page's own.
/** @type {(header: Header, config: Config) => string | null} */
function pairOf({ target, draft, settings, dtype }, { pairs, defaults }) {
  const is = (/** @type {Model} */ model, /** @type {[string, number | null] | undefined} */ known) =>
    known !== undefined && model.name.split("/").pop() === known[0]
    && (known[1] === null || model.parameters === known[1]);
  const has = (/** @type {PairModels} */ models) => {
    const { needs } = drafterKind(settings.drafter);
    return draft === null || needs === "layers" || is(draft, needs === "head" ? models.head : models.draft);
  };
  const form = target.weights ? undefined : dtype; // undefined as the file has it
  const names = Object.keys(pairs).filter((name) => is(target, pairs[name].target) && has(pairs[name]));
  const inForm = names.filter((name) => pairs[name].unpacked === form);
  const likely = inForm.length ? inForm : names;
  return likely.find((name) => name === defaults.pair) ?? likely[0] ?? null;
}

/**
 * What becomes of the control of the drafter with a pair: the drafters that it offers and, if none of
 * them is wanted, its default.
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
 * Which drafter stays chosen, if the pair has it, when the doctor has looked at models; null where the
 * pair's own begins. Only models that a hand has just named begin anew: other weights of the same are none.
 * @param {object} found
 * @param {string} found.drafter  that is chosen
 * @param {string} found.pair
 * @param {string} found.models  that were examined
 * @param {string} found.before  that were examined before
 * @param {boolean} found.isByHand  whether a hand has chosen them, and not an address
 */
export function keptDrafter({ drafter, pair, models, before, isByHand }) {
  return isByHand && pair === OTHER && models !== before ? null : drafter;
}

/** @param {Settings} settings */
function plainSettings({ stop, ignore_eos: _, ...settings }) {
  return stop.length ? { ...settings, stop: stop.join(" ") } : settings;
}

// A tokenizer may put a mark before a prompt, or other blanks into it.
/** @type {(one: string, other: string) => boolean} */
function isSame(one, other) {
  const [a, b] = [one, other].map((text) => text.replace(/\s+/g, " ").trim());
  return a === b || (a !== "" && b.replace(/^<[^>]*>/, "") === a);
}
