// The charts of a run in the drawer, and those that are saved: Python draws them from the whole run. A saved
// page contains them; otherwise the server is asked, once for each run.

import { drawFigure, fetchPlotly, theme } from "specviz/charts/figures.js";
import { element } from "specviz/dom/dom.js";
import { isOver } from "specviz/facts/trace.js";
import { plain } from "specviz/run/saving.js";

export const REQUESTS = "requests"; // the chart that only targets on a server have
const DEEP = ["positions", "rates", REQUESTS]; // the charts that the page does not draw itself
const HEIGHT = 250; // px
const ALL_LANES = ""; // the charts that show every lane
const LATER = "More charts appear once the run is over.";
const FAILED = "The charts could not be made: open this panel again.";

/** @type {WeakMap<Trace, Promise<RunFigures>>} */
const requests = new WeakMap();

/**
 * The figures of a run that is over, by theme, lane and name.
 * @type {(page: Needs<"server" | "config">, trace: Trace) => Promise<RunFigures>}
 */
export function figuresOf({ config, server }, trace) {
  if (config.figures) return Promise.resolve(config.figures);
  const request = requests.get(trace) ?? ask(server, trace);
  requests.set(trace, request);
  request.catch(() => requests.delete(trace)); // so that the next call asks again
  return request;
}

/** @type {(server: Server, trace: Trace) => Promise<RunFigures>} */
async function ask(server, trace) {
  const answer = await server.take_away?.("figures", new Blob([JSON.stringify(plain(trace))]));
  if (!answer) throw new Error("there is no server");
  if (answer.error !== undefined) throw new Error(answer.error);
  return JSON.parse(answer.text);
}

/** @type {(figures: RunFigures, lane?: LaneName) => Record<string, Figure>} */
export function chartsOf(figures, lane = ALL_LANES) {
  const lanes = figures[theme()];
  return lanes[lane] ?? lanes[ALL_LANES];
}

/** The charts of the drawer. */
export class Charts {
  node = element("div", "sv-charts");
  #page;
  #plots = /** @type {Map<string, HTMLElement>} */ (new Map());
  #note = element("p", "sv-charts-note", LATER, { hidden: true });
  #trace = /** @type {Trace | null} */ (null);
  #lane = /** @type {LaneName} */ ("");
  #figures = /** @type {RunFigures | null} */ (null);

  /** @param {Needs<"server" | "config">} page */
  constructor(page) {
    this.#page = page;
    this.node.append(this.#note);
    for (const name of DEEP) {
      const plot = element("div", "sv-plot", { role: "img" });
      this.node.append(element("figure", "", { dataset: { chart: name }, hidden: true }, plot));
      this.#plots.set(name, plot);
    }
    new MutationObserver(() => this.#draw()).observe(document.body, { attributeFilter: ["class"] });
    new ResizeObserver(() => this.#draw()).observe(this.node);
  }

  /**
   * @param {Trace} trace  with all its lanes
   * @param {LaneName} lane  the lane of the drawer
   */
  show(trace, lane) {
    const { config } = this.#page;
    if (!config.plotly) return; // a small player has none
    const isGoingOn = !isOver(trace);
    const isSame = trace === this.#trace && !isGoingOn;
    this.#lane = lane;
    if (isSame) {
      this.#draw();
      return;
    }
    this.#trace = isGoingOn ? null : trace;
    this.#figures = null;
    this.#say(isGoingOn ? LATER : "");
    for (const plot of this.#plots.values()) plot.parentElement?.toggleAttribute("hidden", true);
    if (!isGoingOn) this.#fetch(trace);
  }

  /** @param {Trace} trace */
  async #fetch(trace) {
    try {
      const [figures] = await Promise.all([figuresOf(this.#page, trace), fetchPlotly(this.#page.config)]);
      if (trace !== this.#trace) return;
      this.#figures = figures;
      this.#draw();
    } catch (error) {
      console.info("specviz: no charts:", error);
      if (trace !== this.#trace) return;
      this.#trace = null;
      this.#say(FAILED);
    }
  }

  /** @param {string} text */
  #say(text) {
    this.#note.textContent = text;
    this.#note.hidden = text === "";
  }

  #draw() {
    if (!this.#figures || !this.node.clientWidth) return;
    const charts = chartsOf(this.#figures, this.#lane);
    for (const [name, plot] of this.#plots) {
      const figure = charts[name];
      plot.parentElement?.toggleAttribute("hidden", !figure);
      if (!figure) continue;
      const { data, layout } = figure;
      drawFigure(plot, data, {
        ...layout,
        title: layout.title && { ...layout.title, font: { ...layout.title.font, size: 15 } },
        width: plot.clientWidth || this.node.clientWidth,
        height: HEIGHT,
        paper_bgcolor: "rgba(0,0,0,0)",
        font: { ...layout.font, family: getComputedStyle(this.node).fontFamily },
      });
      plot.setAttribute("aria-label", saidOf(data));
    }
  }
}

/** A chart in a sentence: where each line ends, or each bar. @param {ChartTrace[]} traces */
function saidOf(traces) {
  return `${traces.map(lineSaid).join("; ")}.`;
}

/** @param {ChartTrace} trace */
function lineSaid({ name, x = [], y = [], type, orientation }) {
  if (orientation === "h") {
    return `${name} ${x.map((value, i) => `${number(value)} ms in ${y[i]}`).join(" and ")}`;
  }
  if (type === "bar") return y.map((value, i) => `${number(value)} at position ${x[i]}`).join(", ");
  return `${name} ends at ${number(y[y.length - 1])}`;
}

/** @param {string | number | null | undefined} value */
const number = (value) =>
  (typeof value === "number" ? String(Number(value.toFixed(2))) : String(value ?? "–"));
