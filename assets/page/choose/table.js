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
 * @property {(row: SweepRow) => number | null} value  by which rows are put in order
 * @property {(row: SweepRow) => Node[]} cell
 */

/** @type {Record<string, string>} */
const MARKS = { best: "best", tied: "may be as good", open: "may be better" };
/** @type {Record<string, string>} */
const STATES = { planned: "not reached yet", predicted: "predicted", eliminated: "clearly slower" };

/** @param {SweepRow} row */
const speedOf = ({ measured, predicted }) => measured?.speedup?.value ?? predicted?.speedup ?? null;

/** What was measured of a row, else what is predicted. @param {SweepRow} row */
const figuresOf = ({ measured, predicted }) => measured ?? predicted;

/** @type {Column[]} */
const COLUMNS = [
  {
    name: "speedup",
    label: "Speed-up",
    title: "Over the target alone, with a 95% interval; predicted until it is measured",
    value: speedOf,
    cell(row) {
      const speedup = row.measured?.speedup;
      if (!speedup) return guess(row.predicted?.speedup, "×");
      const { value, low, high } = speedup;
      const range = low === null ? "one prompt" : `${fixed(low, 2)} to ${fixed(high, 2)}`;
      return [element("b", "", `${fixed(value, 2)}×`), element("small", "", range)];
    },
  },
  {
    name: "rate",
    label: "Tokens/s",
    title: "Median over runs, with quartiles",
    value: ({ measured }) => measured?.rate.median ?? null,
    cell({ measured }) {
      if (!measured) return guess(null);
      const { median, low, high } = measured.rate;
      const range = `${perSecond(low)} to ${perSecond(high)}`;
      return [element("span", "", perSecond(median)), element("small", "", range)];
    },
  },
  {
    name: "alpha",
    label: "α",
    title: "Accepted of judged",
    value: (row) => figuresOf(row)?.alpha ?? null,
    cell({ measured, predicted }) {
      return measured ? plain(fixed(measured.alpha, 2)) : guess(predicted?.alpha);
    },
  },
  {
    name: "efficiency",
    label: "Efficiency",
    title: "Accepted of drafted",
    value: (row) => figuresOf(row)?.efficiency ?? null,
    cell({ measured, predicted }) {
      return measured ? plain(fixed(measured.efficiency, 2)) : guess(predicted?.efficiency);
    },
  },
  {
    name: "tau",
    label: "τ",
    title: "Tokens per pass of the target: measured, and predicted",
    value: (row) => figuresOf(row)?.tau ?? null,
    cell({ measured, predicted }) {
      if (!measured) return guess(predicted?.tau);
      const expected = fixed(predicted?.tau ?? measured.tau_predicted, 2);
      return [element("span", "", fixed(measured.tau, 2)), element("small", "", `predicted ${expected}`)];
    },
  },
  {
    name: "c",
    label: "c",
    title: "A draft step, in steps of the target",
    value: ({ measured }) => measured?.c ?? null,
    cell: ({ measured }) => plain(fixed(measured?.c, 3)),
  },
  {
    name: "memory",
    label: "Memory",
    title: "Weights that this row needs",
    value: ({ memory }) => memory,
    cell: ({ memory }) => plain(memory === null ? "–" : bytes(memory)),
  },
];

export class Table {
  // A place in the tab order, so that keys can scroll it.
  node = element("div", "sc-table", { tabIndex: 0, role: "region", "aria-label": "Table of configurations" });
  #table = element("table");
  #body = element("tbody");
  #rows = /** @type {SweepRow[]} */ ([]);
  /** @type {string | null} */
  #sorted = null; // the name of a column; the largest value comes first
  #isByHand = false; // whether a visitor has chosen the order
  #drawn = /** @type {Map<string, { row: SweepRow, node: HTMLElement }>} */ (new Map());

  constructor() {
    const names = this.#header("", "Configuration", "In the order of the plan");
    const figures = COLUMNS.map(({ name, label, title }) => this.#header(name, label, title));
    this.#table.append(element("thead", "", element("tr", "", names, ...figures)), this.#body);
    this.node.append(this.#table);
    this.#markOrder();
  }

  /**
   * While a sweep goes on, its rows stay where they are; once it is over, the fastest come first.
   * @param {SweepRow[]} rows
   * @param {boolean} isOver
   */
  show(rows, isOver) {
    this.#rows = rows;
    if (!this.#isByHand) {
      this.#sorted = isOver ? "speedup" : null;
      this.#markOrder();
    }
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

  // The name is empty for the order of the plan.
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
    const rank = (/** @type {SweepRow} */ row) => column?.value(row) ?? -Infinity;
    const ordered = column ? [...this.#rows].sort((a, b) => rank(b) - rank(a)) : this.#rows;
    const nodes = ordered.map((row) => /** @type {{ node: HTMLElement }} */ (this.#drawn.get(row.key)).node);
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
    const name = element("th", "", { scope: "row" },
      element("span", "", nameOf(row.configuration) + (several ? `, ${greedy}` : "")));
    if (state && !isLeftOut) name.append(element("small", "sc-state", state));
    const cells = isLeftOut ? [leftOut(row)] : COLUMNS.map((column) => cellOf(column, row));
    const { key, status, mark, note } = row;
    const line = element("tr", "", { dataset: { key, status } }, name, ...cells);
    if (mark) line.dataset.mark = mark;
    if (note) line.title = note;
    return line;
  }
}

/** Why a row is not measured, in the place of its figures. @param {SweepRow} row */
const leftOut = ({ note }) =>
  element("td", "sc-left-out", { colSpan: COLUMNS.length }, note || "Not possible with this pair.");

/** @type {(column: Column, row: SweepRow) => HTMLTableCellElement} */
const cellOf = (column, row) =>
  element("td", "", { dataset: { column: column.name } }, ...column.cell(row));

/** @param {string} text */
const plain = (text) => [element("span", "", text)];

// A value that was not measured, with room for what else a measured one has.
/** @type {(value: number | null | undefined, unit?: string) => HTMLElement[]} */
function guess(value, unit = "") {
  const node = value == null ? element("span", "", fixed(value, 2))
    : element("span", "sc-guess", fixed(value, 2) + unit, { title: "Predicted, not measured" });
  return [node, element("small")];
}

/** @param {number} size */
function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const place = Math.min(Math.floor(Math.log10(Math.max(size, 1)) / 3), units.length - 1);
  const value = size / 1000 ** place;
  return `${value.toFixed(value < 10 && place ? 1 : 0)} ${units[place]}`;
}
