// The charts of a sweep: Python makes them, Plotly draws them.

import { element } from "specviz/dom/dom.js";
import { worded } from "specviz/choose/words.js";

/** @import { Labels } from "specviz/choose/words.js" */

const OPTIONS = { displayModeBar: false, responsive: false, showTips: false };
const REDRAW = 1000; // ms between drawings, at least

const theme = () => (document.body.classList.contains("dark") ? "dark" : "light");

export class Figures {
  node = element("div", "sc-figures");
  /** @type {Record<Theme, Record<string, SweepFigure>> | null} */
  #figures = null;
  /** @type {Map<string, HTMLElement>} */
  #plots = new Map();
  #waiting = 0; // timer
  #isVisible;
  #labels;

  /**
   * @param {Labels} labels
   * @param {() => boolean} isVisible  whether somebody sees them
   */
  constructor(labels, isVisible) {
    this.#labels = labels;
    this.#isVisible = isVisible;
    const redraw = () => { if (this.#isVisible()) this.#drawSoon(50); };
    new MutationObserver(redraw).observe(document.body, { attributeFilter: ["class"] });
    new ResizeObserver(redraw).observe(this.node);
  }

  /** @param {Record<Theme, Record<string, SweepFigure>> | null} figures */
  show(figures) {
    if (figures === this.#figures) return;
    this.#figures = figures;
    this.node.hidden = !figures;
    this.#drawSoon(this.#plots.size ? REDRAW : 0);
  }

  /** @param {number} after ms */
  #drawSoon(after) {
    if (this.#waiting) return;
    this.#waiting = setTimeout(() => {
      this.#waiting = 0;
      if (this.#isVisible()) this.#draw();
    }, after);
  }

  #draw() {
    if (!this.#figures) return;
    if (!window.Plotly) { // the page fetches it after its first paint
      this.#drawSoon(200);
      return;
    }
    const figures = this.#figures[theme()];
    for (const [name, plot] of this.#plots) if (!figures[name]) { plot.parentElement?.remove(); this.#plots.delete(name); }
    for (const [name, figure] of Object.entries(figures)) this.#drawOne(name, figure);
  }

  /**
   * @param {string} name
   * @param {SweepFigure} figure
   */
  #drawOne(name, { title, data: given, layout }) {
    const data = given.map((trace) => this.#worded(trace));
    let plot = this.#plots.get(name);
    if (!plot) {
      const figure = element("figure");
      figure.dataset.chart = name;
      plot = element("div", "sc-plot");
      plot.setAttribute("role", "img");
      figure.append(element("figcaption"), plot);
      this.node.append(figure);
      this.#plots.set(name, plot);
    }
    plot.previousElementSibling?.replaceChildren(title, ...keysOf(data));
    plot.setAttribute("aria-label", `${title}: ${saidOf(data)}`);
    const size = { width: plot.clientWidth, height: plot.clientHeight };
    if (size.width) window.Plotly?.react(plot, data, { ...layout, ...size, showlegend: false }, OPTIONS);
  }

  /** With the names that the table has. @param {ChartTrace} trace */
  #worded(trace) {
    const text = (/** @type {string | number} */ one) => (typeof one === "string" ? worded(one, this.#labels) : one);
    const name = text(trace.name ?? "");
    return { ...trace, name: String(name), y: trace.orientation === "h" ? trace.y?.map((one) => text(one ?? "")) : trace.y };
  }
}

/**
 * What a chart's lines and colours mean, beside its title.
 * @param {ChartTrace[]} traces
 */
function keysOf(traces) {
  return traces.filter(({ name, showlegend }) => name && showlegend !== false).map(({ name, type, mode = "lines", line, marker }) => {
    const key = element("span", "sv-chart-key", name ?? "");
    const colour = line?.color ?? marker?.color;
    key.style.setProperty("--key", typeof colour === "string" ? colour : "currentColor");
    key.dataset.dash = type === "bar" ? "bar" : mode === "markers" ? "point" : line?.dash ?? "solid";
    return key;
  });
}

/**
 * A chart in a sentence: the range of each of its lines.
 * @param {ChartTrace[]} traces
 */
function saidOf(traces) {
  const parts = traces.map(({ name, x = [], y = [], orientation }) => {
    const values = (orientation === "h" ? x : y).filter((value) => typeof value === "number").map(Number);
    if (!values.length) return "";
    const [low, high] = [Math.min(...values), Math.max(...values)].map((value) => String(Number(value.toFixed(2))));
    return `${name ?? "values"} ${low === high ? low : `from ${low} to ${high}`}`;
  });
  return `${parts.filter(Boolean).join("; ") || "no values yet"}.`;
}
