// The panel "Is it the same text?": token by token when greedy, by many draws when sampled.

import { element } from "./lane.js";
import { chance } from "./reasons.js";
import { comparison, fixed, sameness, visible } from "./words.js";

const BEFORE = 120; // shared tokens that are shown before the lanes part
const AFTER = 14; // tokens of each lane that are shown from there on

/** Fill `body` for a greedy run: what both lanes share, and where they part. */
export function showGreedy(body, rounds, trace) {
  const found = comparison(rounds);
  const parts = [element("p", "sv-lead", sameness(found, trace) || "Nothing can be compared yet.")];
  if (found.compared) {
    const [ours, theirs] = ["speculative", "baseline"].map((lane) => written(rounds, lane));
    const end = found.parted ?? found.compared;
    parts.push(flow("both lanes", ours.slice(Math.max(0, end - BEFORE), end), end > BEFORE));
    if (found.parted !== null) {
      parts.push(flow("draft + target", ours.slice(end, end + AFTER), false, true),
        flow("target alone", theirs.slice(end, end + AFTER), false, true),
        element("p", "", tie("There", theirs[end])));
    } else parts.push(element("p", "", closest(theirs.slice(0, found.compared))));
    parts.push(element("p", "", "Greedy, exactness can be read off: a draft is kept only if it is the target’s "
      + "own first choice. In fp32 the lanes must agree; with fewer bits a pass over several tokens "
      + "rounds a little differently from a pass over one, and a near-tie may fall the other way."));
  }
  body.replaceChildren(...parts);
}

const written = (rounds, lane) =>
  rounds.filter((round) => round.lane === lane).flatMap((round) => round.emitted);

function flow(name, tokens, isCut, isApart = false) {
  const box = element("div", `sv-flow${isApart ? " is-apart" : ""}`);
  const text = element("p");
  if (isCut) text.append("… ");
  for (const token of tokens) text.append(element("span", "", token.text.replaceAll("\n", "¶")));
  box.append(element("small", "", name), text);
  return box;
}

/** How far apart the target's first two choices were, in nats; null if only one is known. */
export function margin(token) {
  const [first, second] = token.top_p ?? [];
  return first && second ? Math.log(first.probability / second.probability) : null;
}

function tie(where, token) {
  const apart = margin(token);
  if (apart === null) return "";
  const [first, second] = token.top_p;
  return `${where} the target’s first two choices were “${visible(first.text)}” with ${chance(first.probability)
  } and “${visible(second.text)}” with ${chance(second.probability)}, ${fixed(apart, 3)} nats apart.`;
}

function closest(tokens) {
  const margins = tokens.map((token) => margin(token) ?? Infinity);
  const least = Math.min(...margins);
  return Number.isFinite(least)
    ? tie(`The closest call was token ${margins.indexOf(least) + 1}:`, tokens[margins.indexOf(least)]) : "";
}

const EXACT = "Exact does not mean the same words, it means the same chances. A guess is kept with probability "
  + "min(1, p/q); after a refusal the token is drawn from max(0, p − q). Together they give every token "
  + "exactly the probability p that the target alone gives it (Leviathan et al. 2022, theorem 1).";
const ONE_RUN = "One run cannot show that, many draws can: how often does each beginning come, in either lane?";

/** The sampled panel, filled once; `experiment` drives its button and shows what it finds. */
export function showSampled(body, trace, experiment) {
  const heat = trace.header.settings.temperature;
  body.replaceChildren(
    element("p", "sv-lead", `At temperature ${heat} both lanes draw each token at random, so two texts may differ as two throws of one die do.`),
    element("p", "", EXACT), element("p", "", ONE_RUN), experiment.node);
}

/** Both distributions as paired bars, the test, and how to read it. */
export function resultOf({ cells, draws, length, tokens, shortened, statistic, degrees, p_value }) {
  const list = element("ol", "sv-pairs");
  const named = cells.filter(({ text }) => text !== null);
  const most = Math.max(1, ...named.flatMap(({ ours, theirs }) => [ours, theirs]));
  for (const { text, ours, theirs } of cells) {
    const row = element("li", text === null ? "is-rest" : "");
    const bars = element("span", "sv-pair");
    // The rest may hold most draws: on the same scale it would make the named ones tiny.
    if (text === null) bars.append(element("small", "", `${ours} and ${theirs}`));
    else bars.append(paired("ours", ours, most), paired("theirs", theirs, most));
    row.append(element("b", "", text === null ? "all others" : visible(text)), bars);
    list.append(row);
  }
  const key = element("p", "sv-pairs-key");
  for (const [lane, name] of [["ours", "draft + target"], ["theirs", "target alone"]]) {
    const item = element("span");
    item.append(element("i", lane), name);
    key.append(item);
  }
  const what = length === 1 ? "the first token" : `the first ${length} tokens`;
  const from = shortened ? ` after the last ${tokens} tokens of the prompt` : " after the prompt";
  const node = element("div", "sv-result");
  node.append(key, list, element("p", "", `${draws} draws in each lane of ${what}${from}.`),
    element("p", "sv-lead", reading(statistic, degrees, p_value)));
  return node;
}

function paired(lane, count, most) {
  const bar = element("span"), fill = element("i", lane);
  fill.style.width = `${(100 * count) / most}%`;
  bar.append(fill, element("small", "", String(count)));
  return bar;
}

/** What a p-value says, for people who have not met one. */
export function reading(statistic, degrees, p) {
  if (p === null) {
    return "There is nothing to tell apart: no beginning is common enough for a cell of its own, or there is only one.";
  }
  const test = `χ² = ${fixed(statistic, 1)} with ${degrees} degrees of freedom, p = ${p < 0.001 ? "below 0.001" : fixed(p, 3)}.`;
  const often = `Two samples of one and the same distribution differ this much or more in ${chance(p)} of such experiments`;
  if (p >= 0.05) return `${test} ${often}: nothing here speaks against exactness.`;
  if (p >= 0.001) return `${test} ${often}: rare, but it happens to exact samplers, too. Draw again: if it stays low, something is wrong.`;
  return `${test} ${often}: hardly by chance. The lanes do not draw from one distribution.`;
}
