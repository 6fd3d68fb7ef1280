// The page's address: what it asks for, and how the state of the page is written to it.

const MAX_WRITTEN = 1500; // characters of a prompt; a longer one would make the address unusable
const WRITTEN_AFTER = 300; // ms without another change
const MAX_NAME = 300; // characters of a model's name
const OTHER = "other"; // the pair whose models a visitor names
const CHOOSE = "choose";
const PAGE_NAMES = ["preset", "prompt", "recording", "theme", "stage", "reading"]; // all else are settings

/** The name of a setting in an address. @param {string} setting */
const nameOf = (setting) => (setting === "max_new_tokens" ? "length" : setting);

/**
 * The valid parts of what an address asks for.
 * @type {(search: string, config: Config) => Asked}
 */
export function readAddress(search, config) {
  const query = new URLSearchParams(search);
  nameModels(query, config);
  const wrong = /** @type {string[]} */ ([]);
  /** @type {(name: string, isValid: (text: string) => boolean) => string | null} */
  const take = (name, isValid) => {
    const text = query.get(name);
    if (text === null || isValid(text)) return text;
    wrong.push(name);
    return null;
  };
  const presets = config.presets.map((preset) => preset.name);
  const settings = /** @type {Asked["settings"]} */ ({});
  for (const setting of Object.keys(config.defaults)) {
    const text = take(nameOf(setting), (value) => isSetting(setting, value, config));
    if (text !== null) settings[setting] = isText(setting, config) ? text : Number(text);
  }
  const asked = {
    preset: take("preset", (name) => presets.includes(name)),
    prompt: take("prompt", (text) => text.trim() !== "" && text.length <= config.mostPrompt),
    recording: take("recording", (name) => Object.hasOwn(config.recordings, name)),
    theme: take("theme", (name) => ["light", "dark"].includes(name)),
    reading: take("reading", (mode) => ["marks", "text"].includes(mode)),
    stage: take("stage", (flag) => ["0", "1"].includes(flag)) === "1",
    view: query.get("view"),
  };
  return { ...asked, settings, wrong };
}

// A pair that is not in the list, such as "owner/model+none": where visitors may name models, its parts
// become the names of target and draft.
/** @type {(query: URLSearchParams, config: Config) => void} */
function nameModels(query, { choices }) {
  const pair = query.get("pair") ?? "";
  const plus = pair.lastIndexOf("+");
  const known = choices.pair ?? [];
  if (known.includes(pair) || !known.includes(OTHER) || plus < 1 || pair.includes("://")) return;
  const draft = pair.slice(plus + 1);
  query.set("pair", OTHER);
  query.set("target", pair.slice(0, plus));
  query.set("draft", draft === "none" ? "" : draft);
}

/** @type {(setting: string, text: string, config: Config) => boolean} */
function isSetting(setting, text, config) {
  const { choices, limits, whole: integers } = config;
  if (Object.hasOwn(choices, setting)) return choices[setting].includes(text);
  if (isText(setting, config)) return text.length <= MAX_NAME && choices.pair.includes(OTHER);
  if (!/^\d{1,16}(\.\d{1,16})?$/.test(text)) return false;
  const value = Number(text);
  const [min, max] = limits[setting];
  return value >= min && value <= max && (Number.isInteger(value) || !integers.includes(setting));
}

// Whether a setting is text: a choice, or the name of a model.
/** @type {(setting: string, config: Config) => boolean} */
const isText = (setting, { choices, defaults }) =>
  Object.hasOwn(choices, setting) || typeof defaults[setting] === "string";

/**
 * The values of the page's controls, in their order, for the request of an address.
 * @type {(asked: Pick<Asked, "preset" | "prompt" | "settings">, config: Config) => Value[]}
 */
export function controlsFor(asked, config) {
  const preset = presetFor(asked, config);
  const chosen = { ...preset?.settings, ...asked.settings };
  /** @type {Record<string, Value>} */
  const settings = { ...config.defaults, temperature: usualTemperature(chosen.lanes, config), ...chosen };
  const prompt = asked.prompt ?? preset?.prompt ?? "";
  return [prompt, ...Object.keys(config.defaults).map((name) => settings[name])];
}

// Lanes that differ in these differ only in speed: they begin greedy, and write the same text.
const ONE_TEXT = ["drafters", "gammas", "policies"];

/**
 * The default temperature for these lanes.
 * @type {(lanes: Value | undefined, config: Pick<Config, "defaults">) => Value}
 */
export const usualTemperature = (lanes, { defaults }) =>
  (ONE_TEXT.includes(String(lanes)) ? 0 : defaults.temperature);

/**
 * The preset of an address: the one it names, else the first one, or none if it has a prompt.
 * @type {(asked: Pick<Asked, "preset" | "prompt">, config: Config) => Preset | null}
 */
export function presetFor({ preset, prompt }, { presets }) {
  return presets.find((candidate) => candidate.name === preset) ?? (prompt === null ? presets[0] : null);
}

/**
 * The query of the address for this state; parts that are not the page's stay.
 * @type {(state: PageState, config: Config, search: string) => string}
 */
export function queryOf({ values, recording, theme, stage, view, reading }, config, search) {
  const query = new URLSearchParams(search);
  const settings = Object.keys(config.defaults);
  for (const name of [...PAGE_NAMES, ...settings.map(nameOf)]) query.delete(name);
  if (theme) query.delete("__theme");
  if (query.get("view") === CHOOSE) query.delete("view");
  const [first, ...chosen] = values;
  const prompt = String(first);
  const preset = config.presets.find((candidate) => candidate.prompt === prompt);
  if (preset) query.set("preset", preset.name);
  else if (prompt.length <= MAX_WRITTEN) query.set("prompt", prompt);
  const lanes = chosen[settings.indexOf("lanes")];
  /** @type {Record<string, Value>} */
  const usual = {
    ...config.defaults,
    temperature: usualTemperature(lanes ?? undefined, config),
    ...preset?.settings,
  };
  const changed = settings.filter((name, i) => chosen[i] !== null && chosen[i] !== usual[name]);
  for (const name of changed) query.set(nameOf(name), String(chosen[settings.indexOf(name)]));
  if (preset === config.presets[0] && !changed.length) query.delete("preset");
  if (recording && recording !== preset?.name) query.set("recording", recording);
  if (theme) query.set("theme", theme);
  if (stage) query.set("stage", "1");
  if (reading === "text") query.set("reading", reading);
  if (view === CHOOSE) query.set("view", view);
  return String(query) ? `?${query}` : "";
}

/** The request of the address when the page opened, and the state of the page in it. */
export class Address {
  #config;
  #waiting = 0; // timer

  /** @param {Config} config */
  constructor(config) {
    this.#config = config;
    this.asked = readAddress(location.search, config);
    const { theme, stage, view, reading } = this.asked;
    /** @type {PageState} */
    this.state = { values: controlsFor(this.asked, config), recording: null, theme, stage, view, reading };
  }

  /**
   * The address follows the state, though not at every keystroke.
   * @param {Partial<PageState>} part
   */
  change(part) {
    Object.assign(this.state, part);
    clearTimeout(this.#waiting);
    this.#waiting = setTimeout(() => this.#write(), WRITTEN_AFTER);
  }

  /** The preset whose prompt is in the controls. */
  get preset() {
    return this.#config.presets.find((candidate) => candidate.prompt === this.state.values[0]);
  }

  /** The preset whose prompt and settings are in the controls. */
  get chosen() {
    const { preset, settings } = this;
    const its = Object.entries(preset?.settings ?? {});
    return its.every(([name, value]) => settings[name] === value) ? preset : undefined;
  }

  /** The values of the page's controls, by the names of their settings. */
  get settings() {
    const names = Object.keys(this.#config.defaults);
    return Object.fromEntries(names.map((name, i) => [name, this.state.values[1 + i]]));
  }

  /** The settings that select the models, which presets do not change. */
  get naming() {
    const { pair, target, draft, weights } = this.settings;
    return { pair, target, draft, weights };
  }

  #write() {
    const query = queryOf(this.state, this.#config, location.search);
    try {
      history.replaceState(history.state, "", `${location.pathname}${query}${location.hash}`);
    } catch { /* some browsers forbid it in a file from disk */ }
  }
}
