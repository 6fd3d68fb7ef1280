// What people often get wrong about speed, answered with the numbers of the shown run.

import { element } from "specviz/dom/dom.js";
import { fixed } from "specviz/words/words.js";

/** @import { Explanation } from "specviz/facts/costs.js" */

/**
 * @param {Explanation} why
 */
export function misreadings({ m, costs, speeds }) {
  const list = element("dl", "sv-misreadings");
  /** @type {[string, string | null][]} */
  const answers = [
    ["Is a longer τ always faster?", `No: τ = ${fixed(m.tau, 2)} is what a round yields, and it was paid for: a round took ${
      fixed(costs.price, 2)} times as long as one of the target alone. More guesses raise both, and the later ones hold less often.`],
    ["Is checking free?", `No: the pass over the guesses, with the rest of a round, costs ${fixed(costs.judging, 2)} passes of `
      + "the target alone here. With experts or a long text it can cost much more."],
    ["Is accepted over drafted α?", `No: α = ${fixed(m.alpha, 2)} counts judged guesses only. Guesses after a rejected one were `
      + `drafted and paid, but not judged: accepted over drafted is ${fixed(m.efficiency, 2)}.`],
    ["Can a single guess help?", speeds[1] === undefined ? null : `${speeds[1] > 1 ? "Yes" : "Not here"}: with γ = 1 a round `
      + `writes up to two tokens for one draft step and one pass, by the formula ${fixed(speeds[1], 2)}×.`],
  ];
  for (const [question, answer] of answers) {
    if (answer !== null) list.append(element("dt", "", question), element("dd", "", answer));
  }
  const box = element("div");
  box.append(list);
  if (document.querySelector(".has-questions")) {
    const more = element("button", "sv-link", "Guess first: these and more, each as a recorded run");
    Object.assign(more, { type: "button" }).dataset.question = "";
    box.append(more);
  }
  return box;
}
