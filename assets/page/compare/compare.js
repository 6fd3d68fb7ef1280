// Two runs side by side in a dialog: the visitor's last two, or one next to a recording.

import { closing, element, find, table, titled } from "specviz/dom/dom.js";
import { ALONE, draftedLanes, WITH_DRAFTS, writtenBy } from "specviz/facts/lanes.js";
import { fastestLane, measure } from "specviz/facts/metrics.js";
import { curves, drawLines, ends, namedTicks, raceOfTwo } from "specviz/charts/lines.js";
import { defined } from "specviz/race/definitions.js";
import { describe, settingText } from "specviz/words/description.js";
import { lastTwo } from "specviz/words/moment.js";
import { uncertainty } from "specviz/facts/uncertainty.js";
import { MIN_ROUNDS, isImpossible, isRatioShown, range } from "specviz/words/verdict.js";
import { timeBars, timesKey } from "specviz/panels/times.js";
import { read, START } from "specviz/words/markdown.js";
import { begunBy, fixed, perSecond, plural, provenance } from "specviz/words/words.js";

/** @typedef {ReturnType<typeof sideOf>} Side */

/** @type {Record<string, string>} */
const LABELS = {
  prompt: "Prompt",
  target: "Target",
  draft: "Draft",
  drafter: "Drafter",
  gamma: "γ",
  gamma_policy: "γ policy",
  temperature: "Temperature",
  top_k: "Top-k",
  top_p: "Top-p",
  seed: "Seed",
  max_new_tokens: "Length",
  chat: "Chat template",
  stop: "Stop strings",
  ignore_eos: "End of text",
  lanes: "Lanes",
  machine: "Machine",
};
const ONLY_ONE = "There is only one run so far. Run again, choose a preset or open a recording, "
  + "then compare again.";
const NONE = "There is no run yet. Press Run, choose a preset or open a recording.";
const NO_RATIO = "One of these runs has no ratio: it needs two rounds and two tokens in each lane, and a "
  + `stopped run needs ${MIN_ROUNDS} rounds with drafts.`;
const FAR = 60; // px above the first difference
const HEIGHT = 230; // px
const MARGIN = { left: 44, right: 14, top: 8, bottom: 38 }; // px
const TICK_EVERY = { x: 110, y: 50 }; // px
const RUNS = ["earlier", "latest"]; // their names in the style sheet

export class Compare {
  #body = element("div", "sv-compare-body", { tabIndex: 0, role: "group", "aria-label": "Comparison" });
  #dialog = element("dialog", "sv-compare", { "aria-labelledby": "sv-compare-title" },
    element("header", "", element("h2", "", "Two runs, side by side", { id: "sv-compare-title" }),
      element("button", "sv-close", "×", { "aria-label": "Close" })), this.#body);
  #sides = /** @type {Side[]} */ ([]); // the shown runs

  /** @param {HTMLElement} root */
  constructor(root) {
    root.append(this.#dialog);
    closing(this.#dialog);
    this.#dialog.addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() !== "c" || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.#dialog.close();
    });
    addEventListener("resize", () => { if (this.#dialog.open) this.#drawChart(); });
  }

  /** @param {Run[]} runs  that were shown, the newest last */
  open(runs) {
    if (this.#dialog.open) return;
    const pair = lastTwo(runs);
    this.#dialog.showModal();
    this.#sides = pair?.map(({ name, run }) => sideOf(name, run)) ?? [];
    if (pair) this.#fill();
    else this.#body.replaceChildren(element("p", "sv-lead", runs.length ? ONLY_ONE : NONE));
  }

  #fill() {
    const sides = this.#sides;
    const origins = sides.map(({ name, origin, trace }) => {
      const state = trace.end ? "" : ", not finished";
      return `${name}: ${origin}${state}`;
    });
    const made = element("p", "", origins.join(" · "));
    this.#body.replaceChildren(
      element("p", "sv-lead", lead(sides)), made,
      titled("What differs", ...settings(sides)), titled("Figures", figures(sides)),
      titled("Tokens against clock", element("div", "sv-compare-chart")),
      titled("Where a round’s time goes", ...times(sides)),
      titled("Text with drafts", ...texts(sides)));
    this.#drawChart();
    this.#body.scrollTop = 0;
    showDifference(this.#body);
    this.#body.focus({ preventScroll: true });
  }

  /** Draw at the actual size in px, so that its letters have the same size on any screen. */
  #drawChart() {
    if (!this.#sides.length) return;
    const box = find(this.#body, ".sv-compare-chart");
    box.replaceChildren(...chart(this.#sides, box.clientWidth));
  }
}

/**
 * A run with its figures, as a race of two.
 * @param {string} name  that distinguishes it from the other
 * @param {Run} run
 */
function sideOf(name, run) {
  const trace = raceOfTwo(run.trace);
  const { rounds, header } = run.trace;
  const count = draftedLanes(header).length;
  const fastest = `${fastestLane(rounds, header)}, the fastest of ${count} with drafts`;
  return {
    name,
    origin: run.origin,
    trace,
    lanes: count > 1 ? fastest : "", // which lane it is, if several with drafts raced
    m: measure(trace.rounds, trace.header),
    estimate: uncertainty(trace.rounds),
  };
}

/** The description of a run, by the names of its items. @param {Side} side */
function factsOf({ trace: { header }, lanes }) {
  const facts = new Map(describe(header).map(({ name, text }) => [name, text.replace(/^\+ /, "")]));
  if (!facts.has("drafter")) facts.set("drafter", settingText("drafter", header.settings.drafter));
  if (lanes) facts.set("lanes", lanes);
  return facts.set("machine", provenance(header).machine);
}

// The settings that differ as a table, and the others in a line.
/** @type {(sides: Side[]) => HTMLElement[]} */
function settings(sides) {
  const [earlier, latest] = sides.map(factsOf);
  const names = [...new Set([...earlier.keys(), ...latest.keys()])];
  const differing = names.filter((name) => earlier.get(name) !== latest.get(name));
  const same = names.filter((name) => !differing.includes(name));
  if (!differing.length) return [element("p", "", "All settings are the same.")];
  const rows = differing.map((name) =>
    [LABELS[name] ?? name.replaceAll("_", " "), earlier.get(name) ?? "–", latest.get(name) ?? "–"]);
  const parts = [table("is-other", namesOf(sides), rows)];
  if (!same.length) return parts;
  const shared = same.map((name) => earlier.get(name)).join(" · ");
  return [...parts, element("p", "", `The same in both: ${shared}.`)];
}

/** @param {Side[]} sides */
const namesOf = (sides) => ["", ...sides.map(({ name }) => name)];

/** Rows with a definition. @type {Record<string, string>} */
const CAPTIONS = { "α, of judged": "alpha", "τ, tokens per pass": "tau", "c, of a pass": "c" };

/** The figures of both, the ratio with its spread. @param {Side[]} sides */
function figures(sides) {
  /** @type {[string, (side: Side) => string | HTMLElement][]} */
  const rows = [
    ["Speed-up over the target alone", ratio],
    ["α, of judged", ({ m }) => fixed(m.alpha, 2)],
    ["Efficiency, of drafted", ({ m }) => fixed(m.efficiency, 2)],
    ["τ, tokens per pass", ({ m }) => fixed(m.tau, 2)],
    ["c, of a pass", ({ m }) => fixed(m.c, 2)],
    ["Tokens per second, with drafts", ({ m }) => perSecond(m.tokens_per_second.speculative)],
    ["Tokens per second, target alone", ({ m }) => perSecond(m.tokens_per_second.baseline)],
    ["Tokens written", ({ m }) => String(m.emitted)],
  ];
  const captioned = (/** @type {string} */ name) => (CAPTIONS[name] ? defined(CAPTIONS[name], name) : name);
  return table("is-figures", namesOf(sides), rows.map(([name, of]) => [captioned(name), ...sides.map(of)]));
}

/** @param {Side} side */
function ratio(side) {
  const { estimate } = side;
  const ratio = shownRatio(side);
  const node = element("span", "", element("b", "", ratio === null ? "–" : `${fixed(ratio, 2)}×`));
  if (estimate?.spread && ratio !== null) node.append(element("small", "", range(estimate.spread)));
  if (estimate?.doubt) node.append(element("small", "sv-uncertain", "uncertain"));
  return node;
}

/** The ratio of a run, or null if the page shows none. @param {Side} side */
const shownRatio = ({ m, estimate, trace }) =>
  (isImpossible(estimate) || !isRatioShown(trace, m) ? null : m.speedup);

/** Both ratios in words, and whether they differ. @param {Side[]} sides */
function lead([earlier, latest]) {
  const earlierRatio = shownRatio(earlier);
  const latestRatio = shownRatio(latest);
  if (earlierRatio === null || latestRatio === null) return NO_RATIO;
  const ratios = `${earlier.name}: ${fixed(earlierRatio, 2)} times as fast as the target alone. `
    + `${latest.name}: ${fixed(latestRatio, 2)} times.`;
  return `${ratios}${decided(earlier, latest)}${machinesOf(earlier, latest)}`;
}

/** Whether the two ratios differ clearly, in a sentence. @type {(earlier: Side, latest: Side) => string} */
function decided({ estimate: a }, { estimate: b }) {
  if (a?.doubt || b?.doubt) return " An uncertain ratio proves nothing.";
  if (!a?.spread || !b?.spread) return "";
  const overlap = a.spread.low <= b.spread.high && b.spread.low <= a.spread.high;
  return overlap
    ? " Their spreads overlap, so the difference may be chance."
    : " Their spreads do not overlap.";
}

/** The warning about two machines; empty for one. @type {(earlier: Side, latest: Side) => string} */
function machinesOf(earlier, latest) {
  if (provenance(earlier.trace.header).machine === provenance(latest.trace.header).machine) return "";
  return " They were made in different ways or on different machines: compare their ratios, "
    + "not their tokens per second.";
}

/** @param {LaneName} lane */
const laneText = (lane) => (lane === ALONE ? "target alone" : "with drafts");

// Both runs' tokens against their clocks, in one drawing with its key. width: px.
/** @type {(sides: Side[], width: number) => HTMLElement[]} */
function chart(sides, width) {
  const lines = sides.flatMap(({ name, trace }, run) => {
    const side = name.toLowerCase();
    const [drafted, alone] = curves(trace.rounds);
    return [
      { points: drafted, isThin: true, key: RUNS[run], text: `${side}, ${laneText(WITH_DRAFTS)}` },
      { points: alone, isThin: true, key: `${RUNS[run]}-alone`, text: `${side}, ${laneText(ALONE)}` },
    ];
  });
  const limits = ends(lines.map(({ points }) => points));
  const spoken = lines.map(({ points, text }) => {
    const end = points[points.length - 1];
    return `${text}: ${end.y} in ${fixed(end.x, 2)} s`;
  });
  const drawing = element("div", "", {
    style: { height: `${HEIGHT}px` },
    role: "img",
    "aria-label": `Tokens against clock. ${spoken.join("; ")}.`,
  });
  drawLines(drawing, { width, height: HEIGHT }, {
    x: [0, limits.x],
    y: [0, limits.y],
    lines,
    margin: MARGIN,
    ticksX: namedTicks(limits.x, width / TICK_EVERY.x),
    ticksY: namedTicks(limits.y, HEIGHT / TICK_EVERY.y),
  });
  const caption = element("small", "", "Tokens written against each lane’s own clock, in seconds");
  const key = lines.map(({ key, text }) =>
    element("span", "", element("i", "", { dataset: { key } }), text));
  return [element("figure", "sv-curves", drawing, caption), element("p", "sv-curves-key", ...key)];
}

/** Where a round's time goes, all on one scale. @param {Side[]} sides */
function times(sides) {
  /** @type {Parameters<typeof timeBars>[0]} */
  const bars = sides.flatMap(({ name, trace }) => [WITH_DRAFTS, ALONE].map((lane) => {
    const rounds = trace.rounds.filter((round) => round.lane === lane);
    const mean = (/** @type {"draft" | "verify" | "overhead"} */ part) =>
      rounds.reduce((sum, round) => sum + round[`${part}_seconds`], 0) / Math.max(1, rounds.length);
    const parts = { draft: mean("draft"), verify: mean("verify"), overhead: mean("overhead") };
    return /** @type {[string, typeof parts]} */ ([`${name}, ${laneText(lane)}`, parts]);
  }));
  return [timeBars(bars), timesKey()];
}

/** Both texts, with the first difference marked. @param {Side[]} sides */
export function texts(sides) {
  const textOf = (/** @type {Side} */ { trace }) =>
    writtenBy(trace.rounds, WITH_DRAFTS).map(({ text }) => text).join("");
  const [earlier, latest] = sides.map(textOf);
  const isSamePrompt = sides[0].trace.header.prompt === sides[1].trace.header.prompt;
  const shared = isSamePrompt ? sharedLength(earlier, latest) : 0;
  const isSame = isSamePrompt && shared === earlier.length && shared === latest.length;
  const both = [earlier, latest].map((text, i) => passage(sides[i], text, shared, isSamePrompt && !isSame));
  const lead = isSamePrompt
    ? sharedText(shared, isSame)
    : "The prompts differ, so the texts cannot be compared.";
  return [element("p", "", lead), element("div", "sv-texts", ...both)];
}

/** The common part of two texts, in words. @type {(shared: number, isSame: boolean) => string} */
function sharedText(shared, isSame) {
  if (isSame) return "Draft and target wrote the same text in both runs.";
  if (!shared) return "The texts differ from the first character.";
  return `The texts are the same for ${plural(shared, "character")}.`;
}

/** The length of the common beginning. @type {(a: string, b: string) => number} */
function sharedLength(a, b) {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length += 1;
  return length;
}

/**
 * @param {Side} side
 * @param {string} text
 * @param {number} shared characters
 * @param {boolean} isApart  whether to mark the word after them
 */
function passage({ name, trace }, text, shared, isApart) {
  let reading = begunBy(trace.header) ? null : START; // an answer is Markdown; code in it is set as code
  const written = (/** @type {string} */ part) => {
    const marked = reading && read(part, reading);
    reading = marked && marked.after;
    const pieces = marked ? marked.pieces : [{ text: part, kind: "" }];
    return pieces.map((piece) =>
      element("span", piece.kind === "code" ? "is-code" : "", piece.text.replaceAll("\n", "¶\n")));
  };
  const first = isApart ? /^(\s*\S+|\s+)/.exec(text.slice(shared))?.[0] ?? "" : "";
  const label = `Text of the ${name.toLowerCase()} run`;
  const before = element("span", "sv-shared", ...written(text.slice(0, shared)));
  const mark = /** @type {HTMLElement[]} */ ([]);
  if (isApart) {
    const rest = first ? written(first) : ["the end"];
    mark.push(element("mark", "", ...rest));
  }
  const words = element(
    "p",
    "sv-passage",
    { tabIndex: 0, role: "group", "aria-label": label },
    before,
    ...mark,
    ...written(text.slice(shared + first.length)),
  );
  return element("div", "", element("small", "", name), words);
}

/** Scroll the texts to their first difference, which may be far down. @param {HTMLElement} body */
function showDifference(body) {
  for (const mark of body.querySelectorAll("mark")) {
    const flow = mark.parentElement;
    if (flow && mark.offsetTop - flow.offsetTop > FAR) flow.scrollTop = mark.offsetTop - flow.offsetTop - FAR;
  }
}
