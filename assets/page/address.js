// The page's address: what it asks for, and how the state of the page becomes one.

const LONGEST_PROMPT = 8000; // characters that the page takes
const LONGEST_WRITTEN = 1500; // characters of a prompt that still make an address to pass on
const NAMES = { max_new_tokens: "length" }; // settings that go by another name here
const WRITTEN_AFTER = 300; // ms without another change
const OURS = ["preset", "prompt", "recording", "theme", "stage"];
const WHOLE = ["gamma", "top_k", "max_new_tokens", "seed"];

const named = (setting) => NAMES[setting] ?? setting;

/**
 * What an address asks for: only what is valid, never anything else. `wrong` lists the names of
 * the parts that are not.
 */
export function readAddress(search, config) {
  const query = new URLSearchParams(search);
  const wrong = [];
  const take = (name, isValid) => {
    const text = query.get(name);
    if (text === null || isValid(text)) return text;
    wrong.push(name);
    return null;
  };
  const presets = config.presets.map((preset) => preset.name);
  const settings = {};
  for (const setting of Object.keys(config.defaults)) {
    const text = take(named(setting), (value) => isSetting(setting, value, config));
    if (text !== null) settings[setting] = Object.hasOwn(config.choices, setting) ? text : Number(text);
  }
  const asked = {
    preset: take("preset", (name) => presets.includes(name)),
    prompt: take("prompt", (text) => text.trim() !== "" && text.length <= LONGEST_PROMPT),
    recording: take("recording", (name) => Object.hasOwn(config.recordings, name)),
    theme: take("theme", (name) => ["light", "dark"].includes(name)),
    stage: take("stage", (flag) => ["0", "1"].includes(flag)) === "1",
  };
  return { ...asked, settings, wrong };
}

function isSetting(setting, text, { choices, limits }) {
  if (Object.hasOwn(choices, setting)) return choices[setting].includes(text);
  if (!/^\d{1,16}(\.\d{1,16})?$/.test(text)) return false;
  const value = Number(text), [least, most] = limits[setting];
  return value >= least && value <= most && (Number.isInteger(value) || !WHOLE.includes(setting));
}

/** The values of the page's controls, in their order, for what an address asks. */
export function controlsFor(asked, config) {
  const preset = presetFor(asked, config);
  const settings = { ...(preset?.settings ?? config.defaults), ...asked.settings };
  const prompt = asked.prompt ?? preset?.prompt ?? "";
  return [prompt, ...Object.keys(config.defaults).map((name) => settings[name])];
}

/** The preset that an address means: the first one, unless it brings another or a prompt. */
export function presetFor({ preset, prompt }, { presets }) {
  return presets.find((one) => one.name === preset) ?? (prompt === null ? presets[0] : null);
}

/** The query of the address that shows what is shown now; what is not ours in it stays. */
export function queryOf({ values, recording, theme, stage }, config, search) {
  const query = new URLSearchParams(search);
  const settings = Object.keys(config.defaults);
  for (const name of [...OURS, ...settings.map(named)]) query.delete(name);
  if (theme) query.delete("__theme");
  const [prompt, ...chosen] = values;
  const preset = config.presets.find((one) => one.prompt === prompt);
  if (preset) query.set("preset", preset.name);
  else if (prompt.length <= LONGEST_WRITTEN) query.set("prompt", prompt);
  const usual = preset?.settings ?? config.defaults;
  const changed = settings.filter((name, i) => chosen[i] !== null && chosen[i] !== usual[name]);
  for (const name of changed) query.set(named(name), chosen[settings.indexOf(name)]);
  if (preset === config.presets[0] && !changed.length) query.delete("preset");
  if (recording && recording !== preset?.name) query.set("recording", recording);
  if (theme) query.set("theme", theme);
  if (stage) query.set("stage", "1");
  return String(query) ? `?${query}` : "";
}

/** A function that writes what a page shows into its address, not at every keystroke. */
export function createWriter(config) {
  let waiting = 0;
  return (page) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const query = queryOf(page, config, location.search);
      try {
        history.replaceState(history.state, "", `${location.pathname}${query}${location.hash}`);
      } catch { /* some browsers forbid it in a file from disk */ }
    }, WRITTEN_AFTER);
  };
}
