// Two runs side by side, in a dialog: a visitor's own, where there are two, beside a recording else.

import { closing, element, find, table, titled } from "specviz/dom/dom.js";
import { ALONE, draftedLanes, OURS, writtenBy } from "specviz/facts/lanes.js";
import { fastestLane, measure } from "specviz/facts/metrics.js";
import { curves, drawLines, ends, namedTicks, raceOfTwo } from "specviz/charts/lines.js";
import { defined } from "specviz/race/definitions.js";
import { lastTwo } from "specviz/run/session.js";
import { describe, settingText } from "specviz/words/description.js";
import { uncertainty } from "specviz/facts/uncertainty.js";
import { MIN_ROUNDS, isImpossible, isRatioTold, range } from "specviz/words/verdict.js";
import { timeBars, timesKey } from "specviz/panels/times.js";
import { read, START } from "specviz/words/markdown.js";
import { begunBy, fixed, perSecond, plural, provenance } from "specviz/words/words.js";

/** @typedef {ReturnType<typeof sideOf>} Side */

/** @type {Record<string, string>} */
const LABELS = {
  prompt: "Prompt",
  target: "Target",
  draft: "Draft",
  drafter: "Drafts",
  gamma: "γ",
  gamma_policy: "Policy of γ",
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
const ONLY_ONE = "There is only one run yet. Make another one, choose a preset or open a recording, "
  + "then compare again.";
const NONE = "There is no run yet. Press Run, choose a preset or open a recording.";
const NO_RATIO = "One of these runs has no ratio to compare: that needs two rounds and two tokens in each "
  + `lane, and of a run that was stopped ${MIN_ROUNDS} rounds with drafts.`;
const FAR = 60; // px above the first difference
const HEIGHT = 230; // px
const MARGIN = { left: 44, right: 14, top: 8, bottom: 38 }; // px
const TICK_EVERY = { x: 110, y: 50 }; // px
const RUNS = ["earlier", "latest"]; // what they are to the style sheet

export class Compare {
  #body = element("div", "sv-compare-body", { tabIndex: 0, role: "group", "aria-label": "Comparison" });
  #dialog = element("dialog", "sv-compare", { "aria-labelledby": "sv-compare-title" },
    element("header", "", element("h2", "", "Two runs, side by side", { id: "sv-compare-title" }),
      element("button", "sv-close", "×", { "aria-label": "Close" })), this.#body);
  #sides = /** @type {Side[]} */ ([]); // what the dialog shows

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

  /** In the pixels that it has, so that its letters have their size on any screen. */
  #drawChart() {
    if (!this.#sides.length) return;
    const place = find(this.#body, ".sv-compare-chart");
    place.replaceChildren(...chart(this.#sides, place.clientWidth));
  }
}

/**
 * A run with its figures, as a race of two.
 * @param {string} name what it is called beside the other
 * @param {Run} run
 */
function sideOf(name, run) {
  const trace = raceOfTwo(run.trace);
  const { rounds, header } = run.trace;
  const count = draftedLanes(header).length;
  const fastest = `${fastestLane(rounds, header)}, the fastest of ${count} that draft`;
  return {
    name,
    origin: run.origin,
    trace,
    lanes: count > 1 ? fastest : "", // which lane that is, if others with drafts raced
    m: measure(trace.rounds, trace.header),
    found: uncertainty(trace.rounds),
  };
}

/** The description of a run, by the names of its items. @param {Side} side */
function factsOf({ trace: { header }, lanes }) {
  const facts = new Map(describe(header).map(({ name, text }) => [name, text.replace(/^\+ /, "")]));
  if (!facts.has("drafter")) facts.set("drafter", settingText("drafter", header.settings.drafter));
  if (lanes) facts.set("lanes", lanes);
  return facts.set("machine", provenance(header).machine);
}

// The settings that differ, marked, and those that do not.
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

/** Rows that say what they mean. @type {Record<string, string>} */
const CAPTIONS = { "α, of judged": "alpha", "τ, tokens per pass": "tau", "c, of a pass": "c" };

/** The figures of both, the ratio with its spread. @param {Side[]} sides */
function figures(sides) {
  /** @type {[string, (side: Side) => string | HTMLElement][]} */
  const rows = [
    ["Times the speed of the target alone", ratio],
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
  const { found } = side;
  const ratio = toldRatio(side);
  const node = element("span", "", element("b", "", ratio === null ? "–" : `${fixed(ratio, 2)}×`));
  if (found?.spread && ratio !== null) node.append(element("small", "", range(found.spread)));
  if (found?.doubt) node.append(element("small", "sv-uncertain", "uncertain"));
  return node;
}

/** The ratio of a run, or null where the page tells none. @param {Side} side */
const toldRatio = ({ m, found, trace }) =>
  (isImpossible(found) || !isRatioTold(trace, m) ? null : m.speedup);

/** Both ratios in words, and whether they differ. @param {Side[]} sides */
function lead([earlier, latest]) {
  const earlierRatio = toldRatio(earlier);
  const latestRatio = toldRatio(latest);
  if (earlierRatio === null || latestRatio === null) return NO_RATIO;
  const ratios = `${earlier.name}: ${fixed(earlierRatio, 2)} times as fast as the target alone. `
    + `${latest.name}: ${fixed(latestRatio, 2)} times.`;
  return `${ratios}${decided(earlier, latest)}${machinesOf(earlier, latest)}`;
}

/** Whether the two ratios can be told apart, in a sentence. @type {(one: Side, other: Side) => string} */
function decided({ found: one }, { found: other }) {
  if (one?.doubt || other?.doubt) return " A ratio that is uncertain decides nothing.";
  if (!one?.spread || !other?.spread) return "";
  const overlap = one.spread.low <= other.spread.high && other.spread.low <= one.spread.high;
  return overlap
    ? " Their spreads overlap, so the difference may be chance."
    : " Their spreads do not overlap.";
}

/** The warning about two machines; empty for one. @type {(one: Side, other: Side) => string} */
function machinesOf(one, other) {
  if (provenance(one.trace.header).machine === provenance(other.trace.header).machine) return "";
  return " They were made in different ways or on different machines: compare their ratios, "
    + "not their tokens per second.";
}

/** @param {LaneName} lane */
const laneText = (lane) => (lane === ALONE ? "target alone" : "with drafts");

// Both runs' tokens against their clocks, in one drawing of so many px with its key.
/** @type {(sides: Side[], width: number) => HTMLElement[]} */
function chart(sides, width) {
  const lines = sides.flatMap(({ name, trace }, run) => {
    const side = name.toLowerCase();
    const [ours, alone] = curves(trace.rounds);
    return [
      { points: ours, isThin: true, key: RUNS[run], text: `${side}, ${laneText(OURS)}` },
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
  const bars = sides.flatMap(({ name, trace }) => [OURS, ALONE].map((lane) => {
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
    writtenBy(trace.rounds, OURS).map(({ text }) => text).join("");
  const [one, other] = sides.map(textOf);
  const isSamePrompt = sides[0].trace.header.prompt === sides[1].trace.header.prompt;
  const shared = isSamePrompt ? sharedLength(one, other) : 0;
  const isSame = isSamePrompt && shared === one.length && shared === other.length;
  const both = [one, other].map((text, i) => passage(sides[i], text, shared, isSamePrompt && !isSame));
  const lead = isSamePrompt
    ? sharedText(shared, isSame)
    : "The prompts differ, so the texts have nothing to do with one another.";
  return [element("p", "", lead), element("div", "sv-texts", ...both)];
}

/** The common part of two texts, in words. @type {(shared: number, isSame: boolean) => string} */
function sharedText(shared, isSame) {
  if (isSame) return "Draft and target wrote the same text in both runs.";
  if (!shared) return "The texts differ from their first character on.";
  return `The texts are the same for ${plural(shared, "character")}.`;
}

/** @type {(one: string, other: string) => number} */
function sharedLength(one, other) {
  let at = 0;
  while (at < one.length && at < other.length && one[at] === other[at]) at += 1;
  return at;
}

/**
 * @param {Side} side
 * @param {string} text
 * @param {number} shared characters
 * @param {boolean} isApart whether what follows them is to be marked
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

/** Scroll the texts to where they part: it is far down in long ones. @param {HTMLElement} body */
function showDifference(body) {
  for (const mark of body.querySelectorAll("mark")) {
    const flow = mark.parentElement;
    if (flow && mark.offsetTop - flow.offsetTop > FAR) flow.scrollTop = mark.offsetTop - flow.offsetTop - FAR;
  }
}
