// The doctor's findings about the chosen pair, under the list of pairs, the worst first.

import { element, find } from "specviz/dom/dom.js";

const READING = "Reading configs and tokenizers; no weights are fetched.";
const NO_ANSWER = "The server did not answer: choose the pair again.";
const MARKS = { stop: "✕", warning: "!", good: "✓" };

export class Doctor {
  #node = find(document, "#doctor");
  #server;
  #turn = 0; // identifies answers about an earlier choice, which are not shown
  /** The latest examined models. */
  examined = "";

  /** @param {Server} server */
  constructor(server) {
    this.#server = server;
  }

  /** Remove the findings. */
  clear() {
    this.#turn += 1;
    this.examined = "";
    this.#node.replaceChildren();
  }

  /**
   * Examine a pair and show the findings; null if another pair was chosen meanwhile.
   * @param {Record<string, Value>} naming
   */
  async examine(naming) {
    this.#turn += 1;
    const turn = this.#turn;
    this.#node.replaceChildren(element("p", "sv-reading", READING));
    const report = await this.#server.examine?.(naming).catch(() => null);
    if (turn !== this.#turn) return null;
    if (!report || "error" in report) {
      const error = report?.error ?? NO_ANSWER;
      this.#node.replaceChildren(element("p", "stop", error));
      return { verdict: "stop", error };
    }
    this.#node.replaceChildren(...reportNodes(report));
    return report;
  }
}

/** @param {DoctorReport["findings"]} findings */
export function worstFirst(findings) {
  const levels = Object.keys(MARKS);
  return [...findings].sort((a, b) => levels.indexOf(a.level) - levels.indexOf(b.level));
}

/** @param {DoctorReport} report */
function reportNodes({ verdict, summary, findings, fetch }) {
  const nodes = [element("p", verdict, summary)];
  if (fetch) {
    const advice = "Run fetches it if the hub can be reached. The operator can fetch it beforehand with ";
    nodes.push(element("p", "sv-reading", advice, element("code", "", fetch), "."));
  }
  const rows = worstFirst(findings).map(({ level, topic, sentence }) => element("li", level,
    element("i", "", { role: "img", "aria-label": level }, MARKS[level]),
    element("span", "", element("b", "", topic), ` ${sentence}`)));
  return rows.length ? [...nodes, element("ul", "", ...rows)] : nodes;
}
