// The line that says what the shown run is: models, settings, machine. All of it comes from the
// run's own header, never from the controls; where those say something else, a mark tells so.

import { element, find } from "specviz/dom/dom.js";
import { describe } from "specviz/words/description.js";
import { FROM_FILE, provenance, UNVERIFIED } from "specviz/words/words.js";

const ADOPT = "This run was made with other settings than the controls hold. Press to set the controls to those of "
  + "this run.";

export class Strip {
  #root;
  #run;
  #differs;
  #badge;
  #asked;
  #others;
  /** @type {Trace | null} */
  #trace = null;

  /**
   * @param {HTMLElement} root
   * @param {() => Map<string, string>} others  what the controls say otherwise, by item
   */
  constructor(root, others) {
    this.#root = root;
    this.#others = others;
    this.#run = find(root, "[data-run]");
    this.#differs = find(root, "[data-differs]", HTMLButtonElement);
    this.#badge = find(root, "[data-badge]");
    this.#asked = find(root, ".sv-asked");
    this.#differs.title = ADOPT;
  }

  /**
   * Another run is shown.
   * @param {Trace} trace
   * @param {string} origin LIVE or RECORDED, and what else must be said of where a run comes from
   */
  show(trace, origin) {
    this.#trace = trace;
    const { header } = trace;
    const items = describe(header), question = items.find(({ name }) => name === "prompt");
    this.#asked.textContent = question?.text ?? "";
    this.#run.replaceChildren(...items.filter((item) => item !== question).map(({ name, text, title, isInexact = false }) => {
      return element("span", isInexact ? "sv-inexact" : "", text, { dataset: { item: name }, ...title && { title } });
    }));
    this.#root.querySelector(".sv-template")?.remove();
    if (header.question != null) this.#run.after(wholePrompt(header.prompt));
    const { machine, made } = provenance(header);
    this.#badge.replaceChildren(element("span", "sv-pill", origin), element("span", "sv-machine", element("span", "sv-dot", " · "), `${machine}${made}`));
    this.#run.title = [question?.text, ...items.filter((item) => item !== question).map(({ text }) => text), machine].join(" · ");
    this.#badge.hidden = false;
    this.#badge.title = madeWith(header, origin);
    this.compare();
  }

  /** Mark what the controls say otherwise. */
  compare() {
    if (!this.#trace) return;
    const others = this.#others();
    for (const node of this.#run.children) {
      if (node instanceof HTMLElement) node.classList.toggle("is-other", others.has(node.dataset.item ?? ""));
    }
    const said = [...others.values()].join(" · ");
    this.#asked.classList.toggle("is-other", others.has("prompt"));
    this.#differs.textContent = `the controls say ${said}`;
    this.#differs.hidden = !others.size;
    this.#root.toggleAttribute("data-other-controls", others.size > 0);
  }
}

/**
 * The text that the models read, behind a click: the question within the target's chat template.
 * @param {string} prompt
 */
const wholePrompt = (prompt) =>
  element("details", "sv-template", element("summary", "", "template"), element("pre", "", prompt));

/**
 * Versions, and what cannot be vouched for.
 * @param {Header} header
 * @param {string} origin
 */
function madeWith(header, origin) {
  const made = Object.entries(header.versions ?? {}).map(([name, version]) => `${name} ${version}`);
  return [...made, ...(origin.includes(FROM_FILE) ? [UNVERIFIED] : [])].join("\n");
}
