// The charts of a sweep: Python makes them, Plotly draws them.

import { drawFigure, theme } from "specviz/charts/figures.js";
import { element } from "specviz/dom/dom.js";

const REDRAW = 1000; // ms between drawings, at least

export class Figures {
  node = element("div", "sc-figures");
  #figures = /** @type {Record<Theme, Record<string, SweepFigure>> | null} */ (null);
  #plots = /** @type {Map<string, HTMLElement>} */ (new Map());
  #waiting = 0; // timer
  #isVisible;

  /** @param {() => boolean} isVisible  whether they are on the screen */
  constructor(isVisible) {
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
    for (const [name, plot] of this.#plots) {
      if (figures[name]) continue;
      plot.parentElement?.remove();
      this.#plots.delete(name);
    }
    for (const [name, figure] of Object.entries(figures)) this.#drawOne(name, figure);
  }

  /** @type {(name: string, figure: SweepFigure) => void} */
  #drawOne(name, { title, data, layout }) {
    let plot = this.#plots.get(name);
    if (!plot) {
      plot = element("div", "sc-plot", { role: "img" });
      this.node.append(element("figure", "", { dataset: { chart: name } }, element("figcaption"), plot));
      this.#plots.set(name, plot);
    }
    plot.previousElementSibling?.replaceChildren(title, ...keysOf(data));
    plot.setAttribute("aria-label", `${title}: ${saidOf(data)}`);
    const size = { width: plot.clientWidth, height: plot.clientHeight };
    if (size.width) drawFigure(plot, data, { ...layout, ...size, showlegend: false });
  }
}

/** The legend of a chart's lines and colours, next to its title. @param {ChartTrace[]} traces */
function keysOf(traces) {
  const listed = traces.filter(({ name, showlegend }) => name && showlegend !== false);
  return listed.map((trace) => {
    const colour = trace.line?.color ?? trace.marker?.color;
    const key = typeof colour === "string" ? colour : "currentColor";
    const attributes = { style: { "--key": key }, dataset: { dash: dashOf(trace) } };
    return element("span", "sv-chart-key", trace.name ?? "", attributes);
  });
}

/** The kind of line of a trace, for the style sheet. @param {ChartTrace} trace */
function dashOf({ type, mode = "lines", line }) {
  if (type === "bar") return "bar";
  if (mode === "markers") return "point";
  return line?.dash ?? "solid";
}

/** A chart in a sentence: the range of each of its lines. @param {ChartTrace[]} traces */
function saidOf(traces) {
  const parts = traces.map(({ name, x = [], y = [], orientation }) => {
    const values = (orientation === "h" ? x : y).filter((value) => typeof value === "number").map(Number);
    if (!values.length) return "";
    const text = (/** @type {number} */ value) => String(Number(value.toFixed(2)));
    const low = text(Math.min(...values));
    const high = text(Math.max(...values));
    const range = low === high ? low : `from ${low} to ${high}`;
    return `${name ?? "values"} ${range}`;
  });
  return `${parts.filter(Boolean).join("; ") || "no values yet"}.`;
}
