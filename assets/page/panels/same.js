// The panel "Is it the same text?": token by token when greedy, by many draws when sampled.

import { element } from "specviz/dom/dom.js";
import { ALONE, WITH_DRAFTS, ruleOf, writtenBy } from "specviz/facts/lanes.js";
import { verdictKind } from "specviz/facts/vocabulary.js";
import { codeIn } from "specviz/words/code.js";
import { chance } from "specviz/words/reasons.js";
import { arithmeticOf, comparison, fixed, sameness, visible } from "specviz/words/words.js";

const BEFORE = 120; // shared tokens that are shown before the lanes diverge
const AFTER = 14; // tokens of each lane that are shown from there on
const GREEDY = "In a greedy run exactness is visible: a draft is accepted only if it is the target’s own "
  + "first choice.";
const MAY_DIVERGE = "In fp32 the lanes must agree; with fewer bits a pass over several tokens rounds a "
  + "little differently from a pass over one, and a near-tie may go the other way.";
const MUST_AGREE = "A token’s numbers have the same bits in a pass over one token and over several, so the "
  + "lanes must agree.";
const ONE_RUN = "One run cannot show that, but many draws can: how often does each lane write each "
  + "beginning?";

/**
 * Fill `body` for a greedy run: the text that both lanes share, and where they diverge.
 * @param {HTMLElement} body
 * @param {Round[]} rounds
 * @param {Trace} trace
 * @param {HTMLElement} check  finds out whether a difference is a tie
 */
export function showGreedy(body, rounds, trace, check) {
  const same = comparison(rounds);
  const { compared, differAt } = same;
  /** @type {HTMLElement[]} */
  const parts = [element("p", "sv-lead", sameness(same, trace) || "Nothing can be compared yet.")];
  if (compared) {
    const drafted = writtenBy(rounds, WITH_DRAFTS);
    const alone = writtenBy(rounds, ALONE);
    const end = differAt ?? compared;
    const code = codeIn(rounds.filter(({ lane }) => lane === WITH_DRAFTS), trace.header);
    const codeAlone = codeIn(rounds.filter(({ lane }) => lane === ALONE), trace.header);
    const shared = drafted.slice(Math.max(0, end - BEFORE), end);
    parts.push(flow("both lanes", shared, { code, isCut: end > BEFORE }));
    if (differAt === null) {
      parts.push(element("p", "", closestCall(alone.slice(0, compared))));
    } else {
      parts.push(flow("with drafts", drafted.slice(end, end + AFTER), { code, isApart: true }),
        flow("target alone", alone.slice(end, end + AFTER), { code: codeAlone, isApart: true }),
        element("p", "", nearTie("There", alone[end])), check);
    }
    parts.push(element("p", "", `${GREEDY} ${rounding(trace.header)}`));
  }
  body.replaceChildren(...parts);
}

/**
 * The arithmetic of both lanes, and whether they may diverge with it.
 * @param {Header} header
 */
function rounding(header) {
  const agreement = header.target.form === "compiled" ? MUST_AGREE : MAY_DIVERGE;
  if (header.source) return agreement;
  return `Both lanes compute with ${arithmeticOf(header)}. ${agreement}`;
}

/**
 * A text with visible token borders.
 * @param {string} name
 * @param {Token[]} tokens
 * @param {{ code: Set<Token>, isCut?: boolean, isApart?: boolean }} how  code: the tokens that are code,
 *   which keep their lines. isCut: whether there is more text before them. isApart: whether the lanes
 *   diverge here
 */
function flow(name, tokens, { code, isCut = false, isApart = false }) {
  const words = tokens.map((token) => {
    if (code.has(token)) return element("span", "is-code", token.text.replaceAll("\n", "¶\n"));
    return element("span", "", token.text.replaceAll("\n", "¶"));
  });
  const className = isApart ? "sv-flow is-apart" : "sv-flow";
  return element("div", className, element("small", "", name), element("p", "", isCut ? "… " : "", ...words));
}

/**
 * The distance of the target's first two choices in nats; null if only one is known.
 * @param {Token} token
 */
export function margin(token) {
  const [first, second] = token.top_p ?? [];
  return first && second ? Math.log(first.probability / second.probability) : null;
}

/** @type {(where: string, token: Token) => string} */
function nearTie(where, token) {
  const apart = margin(token);
  if (apart === null) return "";
  const choice = (/** @type {Choice} */ { text, probability }) =>
    `“${visible(text)}” with ${chance(probability)}`;
  const [first, second] = (token.top_p ?? []).slice(0, 2).map(choice);
  const nats = fixed(apart, 3);
  return `${where} the target’s first two choices were ${first} and ${second}, ${nats} nats apart.`;
}

/** @param {Token[]} tokens */
function closestCall(tokens) {
  const margins = tokens.map((token) => margin(token) ?? Infinity);
  const smallest = Math.min(...margins);
  if (!Number.isFinite(smallest)) return "";
  const index = margins.indexOf(smallest);
  return nearTie(`The closest call was token ${index + 1}:`, tokens[index]);
}

/**
 * Fill `body` for a sampled run, once.
 * @type {(body: HTMLElement, trace: Trace, experiment: HTMLElement) => void}
 */
export function showSampled(body, trace, experiment) {
  const { temperature } = trace.header.settings;
  const lead = `At temperature ${temperature} both lanes draw each token at random, so two texts may differ, `
    + "like two throws of one die.";
  const { exact, law: sentence } = verdictKind(ruleOf(trace.header.settings));
  const law = element("p", exact ? "" : "sv-inexact", sentence);
  body.replaceChildren(element("p", "sv-lead", lead), law, element("p", "", ONE_RUN), experiment);
}

/**
 * Both distributions as paired bars, the test, and how to read it.
 * @type {(result: ExperimentResult, draws: number) => HTMLDivElement}
 */
export function resultOf(result, draws) {
  const { cells, length, tokens, shortened } = result;
  const named = cells.filter(({ text }) => text !== null);
  const maxCount = Math.max(1, ...named.flatMap(({ ours, theirs }) => [ours, theirs]));
  const what = length === 1 ? "the first token" : `the first ${length} tokens`;
  const from = shortened ? ` after the last ${tokens} tokens of the prompt` : " after the prompt";
  return element(
    "div",
    "sv-result",
    element("p", "sv-pairs-key", keyOf("ours", "with drafts"), keyOf("theirs", "target alone")),
    element("ol", "sv-pairs", ...cells.map((cell) => cellRow(cell, maxCount))),
    element("p", "", `${draws} draws of ${what}${from}, in each lane.`),
    element("p", "sv-lead", reading(result)),
  );
}

/** @type {(lane: string, name: string) => HTMLSpanElement} */
const keyOf = (lane, name) => element("span", "", element("i", lane), name);

/**
 * @param {ExperimentResult["cells"][number]} cell
 * @param {number} maxCount draws of a named cell in one lane
 */
function cellRow({ text, ours, theirs }, maxCount) {
  if (text === null) {
    // The rest may have most draws: on the same scale it would make the named bars tiny.
    const counts = element("small", "", `${ours} and ${theirs}`);
    return element("li", "is-rest", element("b", "", "all others"), element("span", "sv-pair", counts));
  }
  const bar = (/** @type {string} */ lane, /** @type {number} */ count) => {
    const length = element("i", lane, { style: { width: `${(100 * count) / maxCount}%` } });
    return element("span", "", length, element("small", "", String(count)));
  };
  const bars = element("span", "sv-pair", bar("ours", ours), bar("theirs", theirs));
  return element("li", "", element("b", "", visible(text)), bars);
}

/**
 * A p-value in words, for readers who do not know p-values.
 * @param {Pick<ExperimentResult, "statistic" | "degrees" | "p_value">} result
 */
export function reading({ statistic, degrees, p_value: p }) {
  if (p === null) {
    return "There is nothing to compare: no beginning is common enough for a cell of its own, or there is "
      + "only one.";
  }
  const value = p < 0.001 ? "below 0.001" : fixed(p, 3);
  const finding = `χ² = ${fixed(statistic, 1)} with ${degrees} degrees of freedom, p = ${value}. `
    + `Two samples of the same distribution differ this much or more in ${chance(p)} of such experiments`;
  if (p >= 0.05) return `${finding}: this is no evidence against exactness.`;
  if (p >= 0.001) {
    return `${finding}: rare, but it happens to exact samplers too. Draw again: if p stays low, something `
      + "is wrong.";
  }
  return `${finding}: too rare for chance. The lanes do not draw from the same distribution.`;
}
