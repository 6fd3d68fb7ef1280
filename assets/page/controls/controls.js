// The controls of the page: the prompt with its buttons, the presets, and the panel with the settings. All
// are made from what the server offers.

import { element, find, findAll } from "specviz/dom/dom.js";
import { fieldOf } from "specviz/controls/fields.js";

const FEW_PRESETS = 3; // that stand beside the prompt
const MODELS = ["target", "draft"]; // the names of another pair
const OTHER = "other"; // the pair whose models a visitor names
const LONGEST = 8000; // characters of a prompt, where the server says nothing else

/** @typedef {import("specviz/controls/fields.js").Field} Field */

/**
 * What a visitor does with them.
 * @typedef {object} ControlEvents
 * @property {(name: string) => void} changed  by hand, with the name of the setting or "prompt"
 * @property {(preset: Preset) => void} chosen
 * @property {() => void} run
 * @property {() => void} stop
 * @property {() => void} named  the name of a model is complete
 */

export class Controls {
  #prompt;
  #fields = /** @type {Map<string, Field>} */ (new Map());
  #names;

  /**
   * @param {Config} config
   * @param {ControlEvents} on
   */
  constructor(config, on) {
    this.#names = Object.keys(config.defaults);
    this.#prompt = find(document, "#prompt textarea", HTMLTextAreaElement);
    this.#prompt.maxLength = config.mostPrompt || LONGEST;
    this.#prompt.addEventListener("input", () => on.changed("prompt"));
    this.#prompt.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      on.run();
    });
    find(document, "#run").addEventListener("click", on.run);
    find(document, "#stop").addEventListener("click", on.stop);
    this.#makePresets(config.presets, on);
    this.#makePanel(config, on);
  }

  /** What they say: the prompt, then each setting in the order of the configuration. @returns {Value[]} */
  get values() {
    return [this.#prompt.value, ...this.#names.map((name) => this.#fields.get(name)?.read() ?? null)];
  }

  /** The same by name. @returns {Record<string, Value>} */
  get record() {
    const [prompt, ...settings] = this.values;
    return { prompt, ...Object.fromEntries(this.#names.map((name, i) => [name, settings[i]])) };
  }

  /** Have them say this, which no hand has chosen; what is null stays. @param {Value[]} values */
  set values([prompt, ...settings]) {
    this.write({ prompt, ...Object.fromEntries(this.#names.map((name, i) => [name, settings[i] ?? null])) });
  }

  /** The same for some of them. @param {Record<string, Value>} values */
  write({ prompt, ...settings }) {
    if (typeof prompt === "string") this.#prompt.value = prompt;
    for (const [name, value] of Object.entries(settings)) {
      if (value !== null && value !== undefined) this.#fields.get(name)?.write(value);
    }
    this.showModels();
  }

  /**
   * Offer these choices, and choose one of them.
   * @type {(name: string, choices: [string, string][], value: string) => void}
   */
  offer(name, choices, value) {
    const field = this.#fields.get(name);
    field?.offer?.(choices);
    field?.write(value);
  }

  /** The names of models belong to another pair than those of the list. */
  showModels() {
    find(document, "#other-pair").hidden = this.#fields.get("pair")?.read() !== OTHER;
  }

  /** @type {(presets: Preset[], on: ControlEvents) => void} */
  #makePresets(presets, on) {
    const buttons = presets.map((preset) => {
      const button = element("button", "preset", preset.name);
      button.addEventListener("click", () => on.chosen(preset));
      return button;
    });
    find(document, "#presets").append(...buttons.slice(0, FEW_PRESETS));
    const more = element("div", "", { id: "more-presets" }, ...buttons.slice(FEW_PRESETS));
    find(document, "#panel").append(more);
  }

  /** @type {(config: Config, on: ControlEvents) => void} */
  #makePanel({ controls, defaults }, on) {
    const heard = (/** @type {string} */ name) => {
      this.showModels();
      on.changed(name);
    };
    for (const control of controls) {
      this.#fields.set(control.name, fieldOf(control, defaults[control.name], heard));
    }
    /** @param {ControlWords[]} some */
    const nodes = (some) => some.flatMap(({ name }) => this.#fields.get(name)?.node ?? []);
    const [pair, ...rest] = controls;
    const ofModels = rest.filter(({ name }) => MODELS.includes(name));
    const models = element("div", "", { id: "other-pair", hidden: true }, ...nodes(ofModels));
    for (const box of findAll(models, "input", HTMLInputElement)) box.addEventListener("change", on.named);
    const settings = rest.filter(({ name }) => !MODELS.includes(name));
    const doctor = element("div", "", { id: "doctor", role: "status" });
    const plain = nodes(settings.filter((control) => !control.folded));
    const folded = element("details", "", { id: "advanced" }, element("summary", "", "Advanced"),
      element("div", "sv-fields", ...nodes(settings.filter((control) => control.folded))));
    const fields = element("div", "sv-fields", ...nodes([pair]), models, doctor, ...plain, folded);
    find(document, "#panel").append(fields);
    this.showModels();
  }
}
