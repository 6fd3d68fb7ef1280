// The form of a sweep: chips for its values, and its prompts.

import { element, find, findAll } from "specviz/dom/dom.js";
import { drafterKind } from "specviz/facts/vocabulary.js";
import { plural } from "specviz/words/words.js";

const NO_PROMPTS = "Write at least one prompt, or choose a file.";
const NOT_SENT = "The prompts did not reach the server: try again.";
const READ_AFTER = 500; // ms without another key

/** @type {[name: keyof ChooseConfig["usual"], legend: string, note: string][]} */
const LISTS = [
  ["drafters", "Drafters", "Where guesses come from."],
  ["gammas", "γ, guesses per round", "One run predicts all smaller γ; only promising ones are measured."],
  ["policies", "γ policy", "Fixed, or adapted up to γ: by verdicts, or by how sure the draft is."],
  ["temperatures", "Temperature", "0 is greedy. Each has its own best row."],
];

export class Form {
  node = element("form", "sc-form", { "aria-label": "What to sweep" });
  #config;
  #server;
  #changed;
  #kinds = /** @type {Record<string, number>} */ ({}); // of prompts, with their counts
  #filePrompts = /** @type {[kind: string, text: string][]} */ ([]); // the visitor's prompts
  #reading = 0; // timer
  #turn = 0;
  #text = element("textarea", "", {
    rows: 5,
    spellcheck: false,
    "aria-label": "My own prompts",
    oninput: () => this.#readSoon(),
    placeholder: "One prompt per line, JSON, JSONL with “prompt”, “turns” or “messages”, "
      + "or CSV with a column “prompt”",
  });
  #status = element("p", "sc-found", { role: "status" });

  /**
   * @param {ChooseConfig} config
   * @param {Server} server
   * @param {{ changed: () => void, begin: () => void }} on
   */
  constructor(config, server, on) {
    this.#config = config;
    this.#kinds = config.kinds;
    this.#server = server;
    this.#changed = on.changed;
    this.node.append(
      ...LISTS.map(([name, legend, note]) => this.#chips(name, legend, note, this.#optionsOf(name))),
      this.#prompts(), this.#amounts());
    this.node.addEventListener("submit", (event) => { event.preventDefault(); on.begin(); });
    this.node.addEventListener("change", () => { this.#showSource(); on.changed(); });
    this.#showSource();
  }

  /** The number of rows that would be tried. */
  get rows() {
    const gammas = this.#chosen("gammas").length;
    const temperatures = this.#chosen("temperatures").length;
    const policies = this.#chosen("policies");
    if (!gammas || !policies.length) return 0;
    const rowsOf = (/** @type {string} */ drafter) => {
      const { has_model: isModel } = drafterKind(drafter);
      const usable = policies.filter((policy) => policy !== "confidence" || isModel);
      // An adaptive policy has one row, up to the largest gamma; so has a drafter without a usable policy.
      const rows = usable.reduce((sum, policy) => sum + (policy === "fixed" ? gammas : 1), 0);
      return temperatures * (rows || 1);
    };
    return this.#chosen("drafters").reduce((sum, drafter) => sum + rowsOf(drafter), 0);
  }

  /** The number of prompts. */
  get prompts() {
    if (this.#isOwn) return this.#filePrompts.length;
    return this.#chosen("kinds").reduce((sum, kind) => sum + (this.#kinds[kind] ?? 0), 0);
  }

  /** The request of a sweep, without the models. */
  get wish() {
    const numbers = (/** @type {string} */ name) => this.#chosen(name).map(Number);
    return {
      drafters: this.#chosen("drafters"),
      gammas: numbers("gammas"),
      policies: this.#chosen("policies"),
      temperatures: numbers("temperatures"),
      kinds: this.#isOwn ? [] : this.#chosen("kinds"),
      prompts: this.#isOwn ? this.#filePrompts : null,
      length: this.#amount("length"),
      seconds: this.#amount("seconds"),
    };
  }

  /** Set the form to an earlier request. @param {SweepWish} wish */
  set(wish) {
    for (const [name] of [...LISTS, /** @type {const} */ (["kinds"])]) {
      const values = /** @type {(string | number)[]} */ (wish[/** @type {"kinds"} */ (name)]).map(String);
      const areAll = name === "kinds" && !values.length;
      for (const box of this.#boxes(name)) box.checked = areAll || values.includes(box.value);
    }
    for (const name of /** @type {const} */ (["length", "seconds"])) {
      find(this.node, `[name=${name}]`, HTMLSelectElement).value = String(wish[name]);
    }
  }

  /**
   * Show only the drafters that the pair has, and the kinds of prompts that suit it.
   * @param {string[] | null} [drafters]  null or undefined if unknown
   * @param {Record<string, number>} [kinds]  number of prompts by kind; by default of the page's first pair
   */
  offer(drafters, kinds = this.#config.kinds) {
    if (JSON.stringify(kinds) !== JSON.stringify(this.#kinds)) {
      this.#kinds = kinds;
      const chips = this.#kindChips();
      chips.hidden = this.#isOwn;
      find(this.node, "[data-source=built-in]").replaceWith(chips);
    }
    for (const box of this.#boxes("drafters")) {
      box.disabled = !(drafters?.includes(box.value) ?? true);
      box.parentElement?.toggleAttribute("hidden", box.disabled);
    }
  }

  get #isOwn() {
    return find(this.node, "[name=source][value=own]", HTMLInputElement).checked;
  }

  /** @param {string} name */
  #boxes(name) {
    return findAll(this.node, `input[name=${name}]`, HTMLInputElement);
  }

  /** @param {string} name */
  #chosen(name) {
    return this.#boxes(name).filter((box) => box.checked && !box.disabled).map((box) => box.value);
  }

  /** @param {"length" | "seconds"} name */
  #amount(name) {
    return Number(find(this.node, `[name=${name}]`, HTMLSelectElement).value);
  }

  /** @type {(name: keyof ChooseConfig["usual"]) => [value: string, label: string][]} */
  #optionsOf(name) {
    const options = this.#config[/** @type {"drafters" | "gammas"} */ (name)];
    if (!Array.isArray(options)) return Object.entries(options);
    return options.map((value) => {
      const isGreedy = name === "temperatures" && value === 0;
      return [String(value), isGreedy ? "0, greedy" : String(value)];
    });
  }

  /**
   * A list of chips with any number of choices.
   * @param {string} name
   * @param {string} legend
   * @param {string} note
   * @param {[value: string, label: string][]} options
   */
  #chips(name, legend, note, options) {
    const usual = /** @type {Record<string, unknown>} */ (this.#config.usual)[name];
    /** @param {string} value */
    const isUsual = (value) => !Array.isArray(usual) || usual.map(String).includes(value);
    return element("fieldset", "", element("legend", "", legend),
      element("div", "sc-chips", ...options.map(([value, label]) =>
        chip(label, { type: "checkbox", name, value, checked: isUsual(value) }))),
      ...note ? [element("small", "", note)] : []);
  }

  #prompts() {
    const builtIn = this.#kindChips();
    const source = { type: "radio", name: "source" };
    return element("fieldset", "", element("legend", "", "Prompts"), element("div", "sc-chips",
      chip("Built-in set", { ...source, value: "built-in", checked: true }),
      chip("My own", { ...source, value: "own" })), builtIn, this.#ownPrompts());
  }

  #kindChips() {
    /** @type {[value: string, label: string][]} */
    const kinds = Object.entries(this.#kinds).map(([kind, count]) => [kind, `${kind} ${count}`]);
    const chips = this.#chips("kinds", "Kinds of prompt", "", kinds);
    chips.dataset.source = "built-in";
    return chips;
  }

  #ownPrompts() {
    const input = element("input", "", {
      type: "file",
      accept: ".txt,.json,.jsonl,.csv,.tsv,text/plain,application/json",
      hidden: true,
      "aria-label": "File of prompts",
      onchange: () => this.#open(input),
    });
    return element("div", "sc-own", { dataset: { source: "own" } }, this.#text,
      element("button", "", "Choose a file…", { onclick: () => input.click() }), input, this.#status);
  }

  #amounts() {
    const { usual, lengths, seconds } = this.#config;
    return element("div", "sc-amounts",
      choice("length", "Tokens per run", lengths.map((tokens) => [tokens, String(tokens)]), usual.length),
      choice("seconds", "Time budget", seconds.map((time) => [time, timeText(time)]), usual.seconds));
  }

  #showSource() {
    for (const part of findAll(this.node, "[data-source]", HTMLElement)) {
      part.hidden = (part.dataset.source === "own") !== this.#isOwn;
    }
    const isEmpty = this.#isOwn && !this.#filePrompts.length;
    if (isEmpty && !this.#status.textContent) this.#status.textContent = NO_PROMPTS;
  }

  #readSoon() {
    clearTimeout(this.#reading);
    this.#reading = setTimeout(() => this.#read(new Blob([this.#text.value])), READ_AFTER);
  }

  /** @param {HTMLInputElement} input */
  async #open(input) {
    const file = input.files?.[0];
    input.value = ""; // so that the same file can be chosen again
    if (!file) return;
    this.#text.value = "";
    await this.#read(file, file.name);
  }

  /**
   * Have the server read the prompts, and show their counts or an error.
   * @param {Blob} blob
   * @param {string} [name] of the file
   */
  async #read(blob, name = "") {
    this.#turn += 1;
    const turn = this.#turn;
    const maxBytes = this.#config.mostFile;
    this.#filePrompts = [];
    if (!blob.size) {
      this.#status.textContent = NO_PROMPTS;
    } else if (blob.size > maxBytes) {
      const size = (blob.size / 2 ** 20).toFixed(1);
      this.#status.textContent = `This file has ${size} MiB: use one of up to ${maxBytes / 2 ** 20} MiB.`;
    } else {
      this.#status.textContent = "Reading the prompts…";
      try {
        const answer = await this.#server.find_prompts?.(blob, name);
        if (turn !== this.#turn) return;
        this.#take(answer ?? { error: NOT_SENT }, name);
      } catch {
        if (turn === this.#turn) this.#status.textContent = NOT_SENT;
      }
    }
    this.#changed();
  }

  /** @type {(found: FoundPrompts, name: string) => void} */
  #take({ error, prompts = [], kinds = {}, left_out: leftOut = 0 }, name) {
    const from = name && `${name}: `;
    if (error !== undefined) {
      this.#status.textContent = `${from}${error}`;
      return;
    }
    this.#filePrompts = prompts;
    const counts = Object.entries(kinds).slice(0, 12).map(([kind, count]) => `${kind} ${count}`).join(", ");
    const more = leftOut === 1 ? "1 more is" : `${leftOut} more are`;
    const rest = leftOut
      ? `; ${more} left out, because the limit here is ${this.#config.mostPrompts}` : "";
    this.#status.textContent = `${from}${plural(prompts.length, "prompt")} (${counts})${rest}.`;
  }
}

/** @type {(label: string, given: Partial<HTMLInputElement>) => HTMLLabelElement} */
function chip(label, attributes) {
  return element("label", "", element("input", "", attributes), element("span", "", label));
}

/** @type {(name: string, label: string, options: [number, string][], chosen: number) => HTMLElement} */
function choice(name, label, options, chosen) {
  return element("label", "", element("span", "", label), element("select", "", { name },
    ...options.map(([value, text]) => element("option", "", text, { value, selected: value === chosen }))));
}

/** @param {number} time seconds */
const timeText = (time) => (time < 60 ? `${time} s` : `${time / 60} min`);
