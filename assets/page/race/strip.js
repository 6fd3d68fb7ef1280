// The line that describes the shown run: its origin, its models and its drafter; the rest is under
// "details". All of it comes from the run's header, never from the controls; settings that differ from the
// controls are marked.

import { closable, element, find } from "specviz/dom/dom.js";
import { defined } from "specviz/race/definitions.js";
import { describe } from "specviz/words/description.js";
import { lastTwo } from "specviz/words/moment.js";
import { TERMS } from "specviz/race/definitions.js";
import { dayOf, provenance, UNVERIFIED } from "specviz/words/words.js";

const ADOPT = "This run used settings that differ from the controls. Press to set the controls to those of "
  + "this run.";

const NOT_HERE = "THIS PAIR IS NOT HERE YET";
/** The items under "details". */
const LATER = ["shared", "memory", "top_k", "top_p", "seed", "max_new_tokens", "chat", "stop", "ignore_eos"];

export class Strip {
  #page;
  #run;
  #more = element("div", "sv-details-box");
  /** Closes the details. @type {() => boolean} */
  close;
  #differs;
  #badge;
  #asked;
  #twoRuns = element("button", "sv-link sv-two-runs", "Compare runs", {
    type: "button",
    hidden: true,
    dataset: { compare: "" },
  });

  /** @param {Needs<"root" | "shownRun" | "runs">} page */
  constructor(page) {
    const { root } = this.#page = page;
    this.#run = find(root, "[data-run]");
    this.#differs = find(root, "[data-differs]", HTMLButtonElement);
    this.#badge = find(root, "[data-badge]");
    this.#asked = find(root, ".sv-asked");
    this.#differs.title = ADOPT;
    this.#differs.before(this.#twoRuns);
    const title = "All settings, the machine, and what the models read";
    const summary = element("summary", "", "details", { title });
    const details = element("details", "sv-details", summary, this.#more);
    this.#run.after(details);
    this.close = closable(details);
  }

  /**
   * Another run is shown.
   * @param {Trace} trace
   * @param {string} origin  LIVE or RECORDED, and further remarks on the run's origin
   */
  show(trace, origin) {
    const { header } = trace;
    const { isFromFile } = this.#page.shownRun;
    const [question, ...items] = describe(header);
    this.#asked.textContent = question.text;
    const isLater = (/** @type {Item} */ { name }) => LATER.includes(name);
    this.#run.replaceChildren(...items.filter((item) => !isLater(item)).map(itemNode));
    const { machine, made } = provenance(header);
    this.#badge.replaceChildren(
      element("span", "sv-pill", this.#page.shownRun.isOfAwaited ? `${origin}, ${NOT_HERE}` : origin),
      element("span", "sv-machine", ` · ${machine}${made}`), // for print, where nothing can be pressed
    );
    this.close();
    this.#more.replaceChildren(...detailsOf(header, isFromFile, items.filter(isLater)));
    this.#run.title = [question, ...items].map(({ text }) => text).concat(machine).join(" · ");
    this.#badge.hidden = false;
    this.#badge.title = isFromFile ? UNVERIFIED : "";
    this.compare();
  }

  /** Offer the comparison of two runs once there are two. */
  offerComparison() {
    const pair = lastTwo(this.#page.runs);
    this.#twoRuns.hidden = !pair;
    if (pair) this.#twoRuns.title = `${pair.map(({ name }) => name).join(" and ")}, side by side (C)`;
  }

  /** Mark the settings that differ from the controls. */
  compare() {
    const { root, shownRun } = this.#page;
    const others = shownRun.differences;
    if (!shownRun.trace) return;
    for (const node of [...this.#run.children, ...this.#more.querySelectorAll("[data-item]")]) {
      if (node instanceof HTMLElement) node.classList.toggle("is-other", others.has(node.dataset.item ?? ""));
    }
    const differing = [...others.values()].join(" · ");
    this.#asked.classList.toggle("is-other", others.has("prompt"));
    this.#differs.textContent = `the controls say ${differing}`;
    this.#differs.hidden = !others.size;
    root.toggleAttribute("data-other-controls", others.size > 0);
  }
}

/** @typedef {import("specviz/words/description.js").Item} Item */

/**
 * An item of the description; a defined term shows its definition.
 * @param {Item} item
 */
function itemNode({ name, text, title, isInexact }) {
  const content = name in TERMS ? defined(name, text) : text;
  const node = element("span", isInexact ? "sv-inexact" : "", content, { dataset: { item: name } });
  if (title) node.title = title;
  return node;
}

/**
 * All settings, the machine, and for a question the text that the models read, with the target's chat
 * template.
 * @type {(header: Header, isFromFile: boolean, items: Item[]) => HTMLElement[]}
 */
function detailsOf(header, isFromFile, items) {
  const { device, processor, versions, date, dtype, question, prompt } = header;
  const { machine } = provenance(header);
  const software = Object.entries(versions ?? {}).map(([name, version]) => `${name} ${version}`);
  /** @type {[string, import("specviz/dom/dom.js").Content[]][]} */
  const rows = [
    ["Settings", [element("p", "sv-run", ...items.map(itemNode))]],
    ["Machine", [machine || [device, processor, dtype].filter(Boolean).join(" · ")]],
    ["Software", [software.join(" · ")]],
    ["Date", [dayOf(date)]],
  ];
  if (isFromFile) rows.push(["Origin", [UNVERIFIED]]);
  const lines = rows
    .filter(([, [first]]) => first !== "")
    .map(([name, content]) => element("div", "", element("dt", "", name), element("dd", "", ...content)));
  const nodes = /** @type {HTMLElement[]} */ ([element("dl", "", ...lines)]);
  if (question != null) {
    nodes.push(element("p", "sv-details-head", "The models read"), element("pre", "", prompt));
  }
  return nodes;
}
