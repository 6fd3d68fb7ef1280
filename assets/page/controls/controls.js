// The controls of the page: the prompt with its buttons, the presets, and the panel with the settings. All
// are built from the server's offer.

import { PromptBox } from "specviz/controls/prompt-box.js";
import { element, find, findAll } from "specviz/dom/dom.js";

const FEW_PRESETS = 3; // presets next to the prompt
const MODELS = ["target", "draft"]; // the controls that name another pair
const OTHER = "other"; // the pair whose models a visitor names
const MAX_CHARACTERS = 8000; // of a prompt, unless the server sets another limit

/**
 * The events of the controls.
 * @typedef {object} ControlEvents
 * @property {(name: string) => void} changed  by the visitor, with the name of the setting or "prompt"
 * @property {(preset: Preset) => void} chosen
 * @property {() => void} run
 * @property {() => void} stop
 * @property {() => void} modelNamed  the visitor has completed the name of a model
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
    this.#prompt = new PromptBox();
    const area = find(document, "#prompt textarea", HTMLTextAreaElement);
    area.maxLength = config.mostPrompt || MAX_CHARACTERS;
    area.addEventListener("input", () => on.changed("prompt"));
    area.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#prompt.close(); // it would cover the race
      on.run();
    });
    find(document, "#run").addEventListener("click", on.run);
    find(document, "#stop").addEventListener("click", on.stop);
    this.#makePresets(config.presets, on);
    this.#makePanel(config, on);
  }

  /** Set the prompt's placeholder. @param {string} text */
  set hint(text) {
    this.#prompt.placeholder = text;
  }

  /** Their values: the prompt, then each setting in the order of the configuration. @returns {Value[]} */
  get values() {
    return [this.#prompt.value, ...this.#names.map((name) => this.#fields.get(name)?.read() ?? null)];
  }

  /** The same by name. @returns {Record<string, Value>} */
  get record() {
    const [prompt, ...settings] = this.values;
    return { prompt, ...Object.fromEntries(this.#names.map((name, i) => [name, settings[i]])) };
  }

  /** Set them from code; a null value keeps its control. @param {Value[]} values */
  set values([prompt, ...settings]) {
    this.write({ prompt, ...Object.fromEntries(this.#names.map((name, i) => [name, settings[i] ?? null])) });
  }

  /** Set some of them from code. @param {Record<string, Value>} values */
  write({ prompt, ...settings }) {
    if (typeof prompt === "string") this.#prompt.value = prompt;
    for (const [name, value] of Object.entries(settings)) {
      if (value !== null && value !== undefined) this.#fields.get(name)?.write(value);
    }
    this.showModels();
  }

  /**
   * Offer these choices, and choose one of them.
   * @type {(name: string, choices: ListedChoice[], value: string) => void}
   */
  offer(name, choices, value) {
    const field = this.#fields.get(name);
    field?.offer?.(choices);
    field?.write(value);
  }

  /** Show the names of models only if the pair is not from the list. */
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
    const onChange = (/** @type {string} */ name) => {
      this.showModels();
      on.changed(name);
    };
    for (const control of controls) {
      this.#fields.set(control.name, fieldOf(control, defaults[control.name], onChange));
    }
    /** @param {ControlWords[]} group */
    const nodes = (group) => group.flatMap(({ name }) => this.#fields.get(name)?.node ?? []);
    const [pair, ...rest] = controls;
    const ofModels = rest.filter(({ name }) => MODELS.includes(name));
    const models = element("div", "", { id: "other-pair", hidden: true }, ...nodes(ofModels));
    for (const box of findAll(models, "input", HTMLInputElement)) {
      box.addEventListener("change", on.modelNamed);
    }
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

// Fields of the panel, one for each kind of control. They are native elements, so that keys and screen
// readers work as usual.

/**
 * A field of the panel.
 * @typedef {object} Field
 * @property {string} name  of its setting
 * @property {HTMLElement} node
 * @property {() => Value} read
 * @property {(value: Value) => void} write
 * @property {(choices: ListedChoice[]) => void} [offer]
 */

/** @typedef {(name: string) => void} Heard  called when a visitor has changed a field */

let ids = 0;

/**
 * The field of a control.
 * @type {(control: ControlWords, usual: Value, heard: Heard) => Field}
 */
function fieldOf(control, usual, onChange) {
  const make = { list, choice, range, number, text }[control.kind];
  return make(control, usual, onChange);
}

/** @type {(control: ControlWords, label: HTMLElement, ...content: Node[]) => HTMLElement} */
function block({ name, info }, label, ...content) {
  const description = info ? [element("small", "", info)] : [];
  return element("div", "sv-field", { dataset: { field: name } }, label, ...description, ...content);
}

/** @type {(control: ControlWords, usual: Value, heard: Heard) => Field} */
function list(control, usual, onChange) {
  const { name } = control;
  const id = newId();
  const select = element("select", "", { id });
  const label = element("label", "sv-label-of", { htmlFor: id }, control.label);
  const field = {
    name,
    node: block(control, label, select),
    read: () => select.value,
    write: (/** @type {Value} */ value) => { select.value = String(value); },
    offer: (/** @type {ListedChoice[]} */ choices) => {
      const { value } = select;
      select.replaceChildren(...optionsOf(choices));
      select.value = value;
    },
  };
  field.offer(control.choices ?? []);
  field.write(usual);
  select.addEventListener("change", () => onChange(name));
  return field;
}

/** The options of a list, with the choices of a group under its name. */
/** @type {(choices: ListedChoice[]) => HTMLElement[]} */
function optionsOf(choices) {
  const groups = /** @type {Map<string, HTMLElement>} */ (new Map());
  const options = [];
  for (const [text, value, group] of choices) {
    const option = element("option", "", { value }, text);
    if (group === undefined) {
      options.push(option);
      continue;
    }
    const known = groups.get(group);
    const heading = known ?? element("optgroup", "", { label: group });
    heading.append(option);
    groups.set(group, heading);
    if (!known) options.push(heading);
  }
  return options;
}

/** @type {(control: ControlWords, usual: Value, heard: Heard) => Field} */
function choice(control, usual, onChange) {
  const { name, label, info } = control;
  const group = `sv-${name}`;
  const options = element("div", "sv-options");
  const description = info ? [element("small", "", info)] : [];
  const inputs = () => [...options.querySelectorAll("input")];
  const legend = element("legend", "", label);
  const field = {
    name,
    node: element("fieldset", "sv-field", { dataset: { field: name } }, legend, ...description, options),
    read: () => inputs().find((input) => input.checked)?.value ?? null,
    write: (/** @type {Value} */ value) => {
      for (const input of inputs()) input.checked = input.value === value;
    },
    offer: (/** @type {ListedChoice[]} */ choices) => {
      const value = field.read();
      options.replaceChildren(...choices.map(([text, option]) => element("label", "",
        element("input", "", { type: "radio", name: group, value: option }), element("span", "", text))));
      field.write(value);
    },
  };
  field.offer(control.choices ?? []);
  field.write(usual);
  options.addEventListener("change", () => onChange(name));
  return field;
}

/** @type {(control: ControlWords, usual: Value, heard: Heard) => Field} */
function range(control, usual, onChange) {
  const { name, label, limits = [0, 1], step = 1 } = control;
  const [min, max] = limits;
  const bounds = { min: String(min), max: String(max), step: String(step) };
  const called = (/** @type {string} */ kind) => ({ "aria-label": `${kind} for ${label}` });
  const box = element("input", "", { type: "number", ...bounds, ...called("number input") });
  const slider = element("input", "", { type: "range", ...bounds, ...called("range slider") });
  const resetLabels = { "aria-label": `Reset ${label}`, title: "Reset to the default" };
  const reset = element("button", "sv-reset", resetLabels, "↺");
  const follow = () => {
    slider.value = box.value === "" ? String(usual) : box.value;
    slider.style.setProperty("--done", `${((Number(slider.value) - min) / (max - min)) * 100}%`);
  };
  const field = numeric(control, box, usual, onChange, follow);
  box.addEventListener("change", () => {
    const nearest = within(box.value === "" ? Number(usual) : Number(box.value), control);
    if (String(nearest) === box.value) return;
    field.write(nearest);
    onChange(name);
  });
  slider.addEventListener("input", () => { field.write(Number(slider.value)); onChange(name); });
  reset.addEventListener("click", () => { field.write(usual); onChange(name); });
  const info = control.info ? [element("small", "", control.info)] : [];
  const head = element("div", "sv-range-head",
    element("div", "", element("span", "sv-label-of", label), ...info),
    element("div", "sv-range-box", box, reset));
  const line = element("div", "sv-range-line",
    element("span", "", String(min)), slider, element("span", "", String(max)));
  return { ...field, node: element("div", "sv-field", { dataset: { field: name } }, head, line) };
}

/** @type {(control: ControlWords, usual: Value, heard: Heard) => Field} */
function number(control, usual, onChange) {
  const id = newId();
  const [min, max] = control.limits ?? [0, 1];
  const box = element("input", "", { id, type: "number", min: String(min), max: String(max), step: "1" });
  const label = element("label", "sv-label-of", { htmlFor: id }, control.label);
  return { ...numeric(control, box, usual, onChange), node: block(control, label, box) };
}

/** The nearest value that a control can have. @type {(value: number, control: ControlWords) => number} */
function within(value, { limits: [min, max] = [0, 1], step = 1 }) {
  const nearest = min + Math.round((value - min) / step) * step;
  return Math.min(max, Math.max(min, Number(nearest.toFixed(4))));
}

/**
 * A field whose value is that of a number box. A typed number counts at once. When the box is left, a range
 * moves its value within the limits; other invalid numbers are reported by the server.
 * @param {ControlWords} control
 * @param {HTMLInputElement} box
 * @param {Value} usual
 * @param {Heard} onChange
 * @param {() => void} [follow]  called whenever the value changes
 * @returns {Field}
 */
function numeric({ name }, box, usual, onChange, follow = () => {}) {
  const write = (/** @type {Value} */ value) => {
    box.value = value === null ? "" : String(value);
    follow();
  };
  box.addEventListener("input", () => { follow(); onChange(name); });
  write(usual);
  return { name, node: box, read: () => (box.value === "" ? null : Number(box.value)), write };
}

/** @type {(control: ControlWords, usual: Value, heard: Heard) => Field} */
function text(control, usual, onChange) {
  const { name } = control;
  const id = newId();
  const box = element("input", "", {
    id,
    type: "text",
    maxLength: control.longest ?? 300,
    placeholder: control.placeholder ?? "",
    spellcheck: false,
    autocomplete: "off",
  });
  const label = element("label", "sv-label-of", { htmlFor: id }, control.label);
  box.addEventListener("input", () => onChange(name));
  const write = (/** @type {Value} */ value) => { box.value = String(value ?? ""); };
  write(usual);
  return { name, node: block(control, label, box), read: () => box.value, write };
}

function newId() {
  ids += 1;
  return `sv-field-${ids}`;
}
