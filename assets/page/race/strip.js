// The line that says what the shown run is: models, settings, machine. All of it comes from the
// run's own header, never from the controls; where those say something else, a mark tells so.

import { element, find } from "specviz/dom/dom.js";
import { defined } from "specviz/race/definitions.js";
import { lastTwo } from "specviz/run/session.js";
import { describe } from "specviz/words/description.js";
import { TERMS } from "specviz/race/definitions.js";
import { FROM_FILE, provenance, UNVERIFIED } from "specviz/words/words.js";

const ADOPT = "This run was made with other settings than the controls hold. Press to set the controls to "
  + "those of this run.";

const NOT_HERE = "THIS PAIR IS NOT HERE YET";

export class Strip {
  #page;
  #run;
  #differs;
  #badge;
  #asked;
  #twoRuns = element("button", "sv-link sv-two-runs", "Compare runs", {
    type: "button",
    hidden: true,
    dataset: { compare: "" },
  });

  /** @param {PageParts} page */
  constructor(page) {
    const { root } = this.#page = page;
    this.#run = find(root, "[data-run]");
    this.#differs = find(root, "[data-differs]", HTMLButtonElement);
    this.#badge = find(root, "[data-badge]");
    this.#asked = find(root, ".sv-asked");
    this.#differs.title = ADOPT;
    this.#differs.before(this.#twoRuns);
  }

  /**
   * Another run is shown.
   * @param {Trace} trace
   * @param {string} origin LIVE or RECORDED, and what else must be said of where a run comes from
   */
  show(trace, origin) {
    const { header } = trace;
    const [question, ...items] = describe(header);
    this.#asked.textContent = question.text;
    this.#run.replaceChildren(...items.map(itemNode));
    this.#page.root.querySelector(".sv-template")?.remove();
    // The text that the models read: the question within the target's chat template.
    const summary = element("summary", "", "template");
    const template = element("details", "sv-template", summary, element("pre", "", header.prompt));
    if (header.question != null) this.#run.after(template);
    const { machine, made } = provenance(header);
    const dot = element("span", "sv-dot", " · ");
    this.#badge.replaceChildren(
      element("span", "sv-pill", this.#page.session.isOfAwaited ? `${origin}, ${NOT_HERE}` : origin),
      element("span", "sv-machine", dot, `${machine}${made}`),
    );
    this.#run.title = [question, ...items].map(({ text }) => text).concat(machine).join(" · ");
    this.#badge.hidden = false;
    this.#badge.title = madeWith(header, origin);
    this.compare();
  }

  /** Offer the two runs that would be compared, once there are two. */
  offerComparison() {
    const pair = lastTwo(this.#page.runs);
    this.#twoRuns.hidden = !pair;
    if (pair) this.#twoRuns.title = `${pair.map(({ name }) => name).join(" and ")}, side by side (C)`;
  }

  /** Mark what the controls say otherwise. */
  compare() {
    const { root, session } = this.#page;
    const others = session.differences;
    if (!session.trace) return;
    for (const node of this.#run.children) {
      if (node instanceof HTMLElement) node.classList.toggle("is-other", others.has(node.dataset.item ?? ""));
    }
    const said = [...others.values()].join(" · ");
    this.#asked.classList.toggle("is-other", others.has("prompt"));
    this.#differs.textContent = `the controls say ${said}`;
    this.#differs.hidden = !others.size;
    root.toggleAttribute("data-other-controls", others.size > 0);
  }
}

/**
 * One thing that the run is; a word of the field says what it means.
 * @param {import("specviz/words/description.js").Item} item
 */
function itemNode({ name, text, title, isInexact }) {
  const content = name in TERMS ? defined(name, text) : text;
  const node = element("span", isInexact ? "sv-inexact" : "", content, { dataset: { item: name } });
  if (title) node.title = title;
  return node;
}

/** Versions, and what cannot be vouched for. @type {(header: Header, origin: string) => string} */
function madeWith(header, origin) {
  const made = Object.entries(header.versions ?? {}).map(([name, version]) => `${name} ${version}`);
  return [...made, ...(origin.includes(FROM_FILE) ? [UNVERIFIED] : [])].join("\n");
}
