// The table of a sweep: a row for each configuration, predicted at first and then measured.

import { element } from "specviz/dom/dom.js";
import { nameOf } from "specviz/choose/advice.js";
import { TERMS } from "specviz/race/definitions.js";
import { fixed, perSecond } from "specviz/words/words.js";

/**
 * @typedef {object} Column
 * @property {string} name
 * @property {string} label
 * @property {string} title
 * @property {(row: SweepRow) => number | null} value  the sort key
 * @property {(row: SweepRow) => string} text
 * @property {boolean} [isRange]  whether it is the range of the previous column's figure
 * @property {boolean} [isPredictable]  whether a row without a measurement may have it too
 */

/** @type {Record<string, string>} */
const MARKS = { best: "best", tied: "may be as good", open: "may be better" };
/** @type {Record<string, string>} */
const STATES = { planned: "not reached yet", eliminated: "clearly slower" };
const UNEXPLAINED = "not measured";
const NOT_YET = "not measured so far";

/** @param {SweepRow} row */
const speedOf = ({ measured, predicted }) => measured?.speedup?.value ?? predicted?.speedup ?? null;

/** The measured figures of a row, else the predicted ones. @param {SweepRow} row */
const figuresOf = ({ measured, predicted }) => measured ?? predicted;

/** Whether a row has only predictions. @param {SweepRow} row */
const isGuess = ({ measured, predicted }) => !measured && predicted !== null;

/** @typedef {number | null | undefined} Known */
/** @type {(low: Known, high: Known, textOf: (value: number) => string) => string} */
const rangeOf = (low, high, textOf) =>
  (low == null || high == null ? "–" : `${textOf(low)} to ${textOf(high)}`);

/** @type {Column[]} */
const COLUMNS = [
  {
    name: "speedup",
    label: "Speed-up",
    title: "Over the target alone; predictions are in italics",
    value: speedOf,
    text: (row) => (speedOf(row) === null ? "–" : `${fixed(speedOf(row), 2)}×`),
    isPredictable: true,
  },
  {
    name: "interval",
    label: "95 %",
    title: "Confidence interval of the speed-up, over prompts",
    value: ({ measured }) => measured?.speedup?.low ?? null,
    text: ({ measured }) =>
      rangeOf(measured?.speedup?.low, measured?.speedup?.high, (value) => fixed(value, 2)),
    isRange: true,
  },
  {
    name: "rate",
    label: "Tokens/s",
    title: "Median over runs",
    value: ({ measured }) => measured?.rate.median ?? null,
    text: ({ measured }) => perSecond(measured?.rate.median),
  },
  {
    name: "quartiles",
    label: "Quartiles",
    title: "Lower and upper quartile of the runs, in tokens per second",
    value: ({ measured }) => measured?.rate.low ?? null,
    text: ({ measured }) => rangeOf(measured?.rate.low, measured?.rate.high, perSecond),
    isRange: true,
  },
  {
    name: "alone",
    label: "Alone",
    title: "The target alone in the same runs, in tokens per second",
    value: ({ measured }) => measured?.alone_rate.median ?? null,
    text: ({ measured }) => perSecond(measured?.alone_rate.median),
  },
  {
    name: "alpha",
    label: "α",
    title: "Accepted of judged",
    value: (row) => figuresOf(row)?.alpha ?? null,
    text: (row) => fixed(figuresOf(row)?.alpha, 2),
    isPredictable: true,
  },
  {
    name: "efficiency",
    label: "Efficiency",
    title: "Accepted of drafted",
    value: (row) => figuresOf(row)?.efficiency ?? null,
    text: (row) => fixed(figuresOf(row)?.efficiency, 2),
    isPredictable: true,
  },
  {
    name: "tau",
    label: "τ",
    title: "Tokens per pass of the target",
    value: (row) => figuresOf(row)?.tau ?? null,
    text: (row) => fixed(figuresOf(row)?.tau, 2),
    isPredictable: true,
  },
  {
    name: "c",
    label: "c",
    title: "The cost of a draft step, in target passes",
    value: ({ measured }) => measured?.c ?? null,
    text: ({ measured }) => fixed(measured?.c, 3),
  },
  {
    name: "memory",
    label: "Memory",
    title: "The size of the weights that this row needs",
    value: ({ memory }) => memory,
    text: ({ memory }) => (memory === null ? "–" : bytes(memory)),
  },
  {
    name: "prompts",
    label: "Prompts",
    title: "The number of prompts that it ran on",
    value: ({ measured }) => measured?.prompts ?? null,
    text: ({ measured }) => String(measured?.prompts ?? 0),
  },
];

/** The columns that only a measurement fills; a predicted row has its reason there. */
const REASON_AT = COLUMNS.findIndex(({ isPredictable }) => !isPredictable);
const REASON_END = COLUMNS.findIndex(({ isPredictable }, i) => isPredictable && i > REASON_AT);

export class Table {
  // In the tab order, so that keys can scroll it.
  node = element("div", "sc-table", { tabIndex: 0, role: "region", "aria-label": "Table of configurations" });
  #table = element("table");
  #body = element("tbody");
  #rows = /** @type {SweepRow[]} */ ([]);
  /** @type {string | null} */
  #sorted = null; // the name of a column; the largest value comes first
  #isByHand = false; // whether a visitor has chosen the order
  #isOver = false;
  #drawn = /** @type {Map<string, { row: SweepRow, node: HTMLElement }>} */ (new Map());

  constructor() {
    const names = this.#header("", "Configuration", "In the order of the plan");
    const figures = COLUMNS.map(({ name, label, title, isRange }) => {
      const header = this.#header(name, label, title);
      header.classList.toggle("sc-range", isRange === true);
      return header;
    });
    this.#table.append(element("thead", "", element("tr", "", names, ...figures)), this.#body);
    this.node.append(this.#table);
    this.#markOrder();
  }

  /**
   * While a sweep goes on, its rows keep their order; once it is over, the fastest come first, and rows
   * without a measurement come last, set apart.
   * @param {SweepRow[]} rows
   * @param {boolean} isOver
   */
  show(rows, isOver) {
    this.#rows = rows;
    if (!this.#isByHand) {
      this.#sorted = isOver ? "speedup" : null;
      this.#markOrder();
    }
    if (this.#isOver !== isOver) this.#drawn.clear(); // rows now give the reason why they were not measured
    this.#isOver = isOver;
    const keys = new Set(rows.map((row) => row.key));
    for (const key of this.#drawn.keys()) if (!keys.has(key)) this.#drawn.delete(key);
    const several = new Set(rows.map((row) => row.configuration.temperature)).size > 1;
    for (const row of rows) {
      const drawn = this.#drawn.get(row.key);
      if (drawn && drawn.row === row) continue;
      const node = this.#line(row, several);
      drawn?.node.replaceWith(node);
      this.#drawn.set(row.key, { row, node });
    }
    this.#arrange();
  }

  // An empty name means the order of the plan.
  /** @type {(name: string, label: string, title: string) => HTMLTableCellElement} */
  #header(name, label, title) {
    const onclick = () => {
      this.#sorted = name && this.#sorted !== name ? name : null;
      this.#isByHand = true;
      this.#markOrder();
      this.#arrange();
    };
    const meaning = name in TERMS ? { dataset: { define: name } } : { title };
    const button = element("button", "", label, { onclick, ...meaning });
    return element("th", "", { scope: "col", dataset: { column: name } }, button);
  }

  #markOrder() {
    for (const cell of this.#table.querySelectorAll("th[data-column]")) {
      const isOurs = cell.getAttribute("data-column") === this.#sorted;
      if (isOurs) cell.setAttribute("aria-sort", "descending"); else cell.removeAttribute("aria-sort");
    }
  }

  #arrange() {
    const column = COLUMNS.find(({ name }) => name === this.#sorted);
    const ordered = column ? [...this.#rows].sort((a, b) => compared(a, b, column)) : this.#rows;
    const nodes = ordered.map((row) => /** @type {{ node: HTMLElement }} */ (this.#drawn.get(row.key)).node);
    const first = column ? ordered.findIndex((row) => !row.measured) : -1;
    nodes.forEach((node, i) => node.classList.toggle("is-apart", i === first && i > 0));
    const { children } = this.#body;
    const isSame = nodes.length === children.length && nodes.every((node, i) => node === children[i]);
    if (!isSame) this.#body.replaceChildren(...nodes);
  }

  /**
   * @param {SweepRow} row
   * @param {boolean} several  whether there is more than one temperature
   */
  #line(row, several) {
    const { temperature } = row.configuration;
    const isLeftOut = row.status === "left out";
    const greedy = temperature === 0 ? "greedy" : `T ${temperature}`;
    const known = row.mark ? MARKS[row.mark] : STATES[row.status];
    const state = row.mark === "open" && !row.measured ? `${known}, not measured` : known;
    const cells = isLeftOut ? [leftOut(row)] : cellsOf(row, this.#isOver);
    const name = element("th", "", { scope: "row" },
      element("span", "", nameOf(row.configuration) + (several ? `, ${greedy}` : "")));
    if (state && !isLeftOut) name.append(element("small", "sc-state", state));
    const { key, status, mark, note } = row;
    const line = element("tr", "", { dataset: { key, status } }, name, ...cells);
    if (mark) line.dataset.mark = mark;
    if (note) line.title = note;
    return line;
  }
}

/** The reason why a row is not measured, instead of its figures. @param {SweepRow} row */
const leftOut = ({ note }) =>
  element("td", "sc-left-out", { colSpan: COLUMNS.length }, note || "Not possible with this pair.");

/** @type {(row: SweepRow, isOver: boolean) => HTMLTableCellElement[]} */
function cellsOf(row, isOver) {
  if (!isGuess(row)) return COLUMNS.map((column) => cellOf(column, row));
  const reason = isOver ? row.note || UNEXPLAINED : NOT_YET;
  return [
    ...COLUMNS.slice(0, REASON_AT).map((column) => cellOf(column, row)),
    element("td", "sc-why sc-guess", `predicted: ${reason}`, { colSpan: REASON_END - REASON_AT }),
    ...COLUMNS.slice(REASON_END).map((column) => cellOf(column, row)),
  ];
}

/** @type {(column: Column, row: SweepRow) => HTMLTableCellElement} */
function cellOf({ name, text, isRange, isPredictable }, row) {
  const figure = text(row);
  const cell = element("td", isRange ? "sc-range" : "", { dataset: { column: name } });
  if (isGuess(row) && isPredictable && figure !== "–") {
    cell.append(element("i", "sc-guess", figure, { title: "Predicted, not measured" }));
  } else if (name === "speedup" && row.measured) {
    cell.append(element("b", "", figure));
  } else {
    cell.append(figure);
  }
  return cell;
}

/**
 * The larger value first: measured rows, then eliminated ones, then those without a measurement.
 * @type {(a: SweepRow, b: SweepRow, column: Column) => number}
 */
function compared(a, b, column) {
  const value = (/** @type {SweepRow} */ row) => column.value(row) ?? -Infinity;
  return groupOf(a) - groupOf(b) || value(b) - value(a) || 0;
}

/** @param {SweepRow} row */
function groupOf({ measured, status }) {
  if (!measured) return 2;
  return status === "eliminated" ? 1 : 0;
}

/** @param {number} size */
function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const exponent = Math.min(Math.floor(Math.log10(Math.max(size, 1)) / 3), units.length - 1);
  const value = size / 1000 ** exponent;
  const digits = value < 10 && exponent ? 1 : 0;
  return `${value.toFixed(digits)} ${units[exponent]}`;
}
