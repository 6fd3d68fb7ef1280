// Plotly charts: layouts and colours come from Python, points from the shown rounds.

import { element, find, findAll } from "specviz/dom/dom.js";
import { extentsOf } from "specviz/facts/extents.js";
import { shortened, titleOf, tracesOf } from "specviz/charts/points.js";
import { ALONE, lanesOf, OURS } from "specviz/facts/lanes.js";
import { readsPrompt, series } from "specviz/facts/metrics.js";
import { SERVER } from "specviz/words/description.js";

/** @import { Extent } from "specviz/facts/extents.js" */

const INTERVAL = 250; // ms between redraws beside an engine, at least
const SLOWEST = 1000; // ms between redraws, at most
const SHARE = 12; // drawing may take one part in this many of the page's time beside an engine
const FEW_ROUNDS = 6; // on an axis
export const REQUESTS = "requests"; // the chart that only targets on a server have
const BASE_SIZE = 11; // px of the text in a chart that is not enlarged

const OPTIONS = { displayModeBar: false, responsive: false, showTips: false };

// A picture is drawn outside the page, where the page's own font is not to be had.
const PICTURE_FONT = "system-ui, sans-serif";

const theme = () => (document.body.classList.contains("dark") ? "dark" : "light");

const nextFrame = () => new Promise((resume) => {
  if (document.hidden) setTimeout(resume, 50); else requestAnimationFrame(resume);
});

/**
 * A chart of these rounds to be taken away, as figures() of specviz/runs/charts.py draws it.
 * @param {Config} config
 * @param {string} name
 * @param {Round[]} rounds
 * @param {LaneName[]} names of the lanes
 */
export function chartFigure(config, name, rounds, names) {
  const spec = config.charts[theme()][name], traces = tracesOf(spec, name, names, rounds.some(readsPrompt));
  const { layout } = spec;
  const points = series(rounds, names)[name];
  const style = getComputedStyle(document.body);
  const [page, ink] = ["page", "ink"].map((part) => style.getPropertyValue(`--sv-${part}`).trim());
  const axis = (/** @type {ChartAxis} */ one) =>
    ({ ...one, title: { ...one.title, standoff: 8, font: { size: 13 } } });
  return {
    data: traces.map((trace, i) => ({ ...trace, ...points[i] })),
    layout: {
      ...layout,
      xaxis: axis(layout.xaxis),
      yaxis: axis(layout.yaxis),
      title: { text: titleOf(config, name, names), x: 0.02, font: { size: 16, color: ink } },
      margin: { l: name === "parts" ? 120 : 60, r: 24, t: 78, b: 52 },
      showlegend: traces.length > 1,
      legend: { orientation: "h", traceorder: "normal", y: 1.02, yanchor: "bottom", x: 0 },
      paper_bgcolor: page,
      font: { ...layout.font, family: PICTURE_FONT, size: 13 },
    },
  };
}

export class Charts {
  /** Kept once there is what draws charts. */
  canDraw;
  #root;
  #config;
  #box;
  /** @type {Map<string, HTMLElement>} */
  #plots = new Map();
  #drawing = false;
  /** @type {Round[]} */
  #shown = [];
  /** @type {LaneName[]} */
  #names = [OURS, ALONE];
  #isWatched = false; // a server, which tells no parts of a round's time
  /** @type {Trace | null} */
  #trace = null; // that the shown rounds are of
  /** @type {Round[] | null} */
  #requested = null; // rounds that are still to be drawn
  #hurried = false; // what was asked for while drawing must not wait either
  #endPause = () => { this.#hurried = true; };

  /**
   * @param {HTMLElement} root
   * @param {Config} config
   */
  constructor(root, config) {
    this.#root = root;
    this.#config = config;
    this.#box = find(root, "[data-charts]");
    for (const [name, title] of Object.entries(config.titles)) {
      const figure = element("figure");
      figure.dataset.chart = name;
      figure.hidden = name === REQUESTS;
      const plot = element("div", "sv-plot");
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", "Nothing is shown yet.");
      figure.setAttribute("aria-label", title);
      figure.append(this.#caption(name), plot);
      this.#box.append(figure);
      this.#plots.set(name, plot);
    }
    this.canDraw = this.#load();
    const redraw = () => { this.#colour(); this.show(this.#shown); };
    this.canDraw.then(redraw);
    new MutationObserver(redraw).observe(document.body, { attributeFilter: ["class"] });
    new ResizeObserver(redraw).observe(this.#box);
  }

  /**
   * Another run is shown from now on.
   * @param {Trace} trace
   */
  begin(trace) {
    const { header } = trace, names = lanesOf(header), isWatched = Boolean(header.source);
    const isServed = header.target.form === SERVER && !isWatched; // so each round has bytes
    const requests = this.#plots.get(REQUESTS)?.parentElement;
    if (requests) requests.hidden = !isServed;
    this.#box.toggleAttribute("data-served", isServed);
    this.#trace = trace;
    if (names.join("\n") === this.#names.join("\n") && isWatched === this.#isWatched) return;
    this.#names = names;
    this.#isWatched = isWatched;
    for (const [name, plot] of this.#plots) {
      plot.parentElement?.querySelector("figcaption")?.replaceWith(this.#caption(name));
      plot.parentElement?.setAttribute("aria-label", titleOf(this.#config, name, names));
    }
    this.#colour();
  }

  /** @param {Round[]} rounds */
  show(rounds) {
    this.#shown = rounds;
    this.#requested = rounds;
    if (this.#root.dataset.state !== "running") this.#endPause();
    this.#draw();
  }

  /** @param {string} name */
  #caption(name) {
    const node = element("figcaption", "", titleOf(this.#config, name, this.#names));
    const spec = this.#config.charts.light[name], traces = tracesOf(spec, name, this.#names, this.#isWatched);
    // Lines of several lanes have their keys beside the names of the lanes.
    if (traces.length === 1 || (traces !== spec.traces && name !== "tokens")) return node;
    traces.forEach((trace, i) => {
      const key = element("span", "sv-chart-key", trace.name);
      key.dataset.key = `${name}-${i}`;
      node.append(key);
    });
    return node;
  }

  /**
   * Fetch Plotly after the first paint: the page can be used before 4 MB of charts have come.
   * @returns {Promise<void>}
   */
  #load() {
    const { plotly } = this.#config;
    return new Promise((resolve) => {
      if (!plotly) return; // a small player has no charts
      const fetchPlotly = () => {
        const script = element("script");
        script.src = new URL(plotly, document.baseURI).href;
        script.onload = () => resolve();
        document.head.append(script);
      };
      (window.requestIdleCallback ?? setTimeout)(fetchPlotly);
    });
  }

  /** The keys beside a chart's title have the colours of its traces. */
  #colour() {
    for (const key of findAll(this.#box, "[data-key]", HTMLElement)) {
      const [name, i] = (key.dataset.key ?? "").split("-");
      const spec = this.#config.charts[theme()][name];
      const { line, marker } = tracesOf(spec, name, this.#names, this.#isWatched)[Number(i)];
      key.style.setProperty("--key", line?.color ?? marker?.color ?? "");
      key.dataset.dash = line?.dash ?? "bar";
    }
  }

  async #draw() {
    if (!window.Plotly || this.#drawing) return;
    this.#drawing = true;
    while (this.#requested) {
      // A live run begins while the page has enough to do: its charts come a little later.
      const isNew = !this.#requested.length && this.#root.dataset.source === "live";
      if (isNew) await this.#pause(INTERVAL);
      const rounds = this.#requested;
      this.#requested = null;
      const spent = await this.#drawAll(rounds);
      // A slow machine redraws less often while a run is made: the charts must not take time from the
      // engine. What is played again has none, and its charts go with its text.
      const isMade = this.#trace?.end === null;
      if (isMade) await this.#pause(Math.min(SLOWEST, Math.max(INTERVAL, SHARE * spent)));
    }
    this.#drawing = false;
  }

  /**
   * The milliseconds that it took.
   * @param {Round[]} rounds
   */
  async #drawAll(rounds) {
    const names = this.#names, isWatched = this.#isWatched; // another run may be shown meanwhile
    const points = series(rounds, names), specs = this.#config.charts[theme()], extents = extentsOf(this.#trace);
    let spent = 0;
    for (const [name, plot] of this.#plots) {
      if (plot.parentElement?.hidden) continue;
      const begun = performance.now();
      const traces = tracesOf(specs[name], name, names, isWatched);
      this.#drawOne(plot, { ...specs[name], traces, extent: extents[name] }, points[name], rounds.length === 0);
      spent += performance.now() - begun;
      await nextFrame(); // one chart a frame, so that none is long
    }
    return spent;
  }

  /**
   * @param {HTMLElement} plot
   * @param {ChartSpec & { extent?: Extent }} spec
   * @param {Points[]} points
   * @param {boolean} isEmpty
   */
  #drawOne(plot, spec, points, isEmpty) {
    // Before the first round of a watched server its times look like any others.
    const traces = spec.traces.map((trace, i) => ({ ...trace, ...shortened(points[i] ?? { x: [], y: [] }) }));
    const layout = { ...spec.layout, width: plot.clientWidth, height: plot.clientHeight };
    enlarge(traces, layout, this.#scale());
    const { x, y } = spec.extent ?? {};
    if (x) layout.xaxis = { ...layout.xaxis, range: x };
    if (y) layout.yaxis = { ...layout.yaxis, range: y };
    const last = Math.max(1, ...traces.flatMap((trace) => trace.x ?? []).map(Number));
    // Whole numbers that are few: a tick between two of them would be told as one of them.
    if (layout.xaxis.tickformat === "d" && (x?.[1] ?? last) < FEW_ROUNDS) layout.xaxis = { ...layout.xaxis, dtick: 1 };
    if (isEmpty && !x) {
      layout.xaxis = { ...layout.xaxis, range: [0, 1], showticklabels: false };
      layout.yaxis = { ...layout.yaxis, showticklabels: false };
    }
    if (layout.width) window.Plotly?.react(plot, traces, layout, OPTIONS);
    plot.setAttribute("aria-label", isEmpty ? "Nothing is shown yet." : saidOf(traces));
  }

  /** On large screens and on stage a chart is read from afar: its type and lines grow. */
  #scale() {
    const figure = this.#box.firstElementChild;
    if (!figure) return 1;
    if (!document.body.classList.contains("sv-stage")) {
      return Number(getComputedStyle(this.#root).getPropertyValue("--sv-chart")) || 1;
    }
    return Math.max(1, parseFloat(getComputedStyle(figure).fontSize) / BASE_SIZE);
  }

  /**
   * Up to so many milliseconds; less if nothing moves any more.
   * @param {number} time
   */
  async #pause(time) {
    if (!this.#hurried) {
      await new Promise((/** @type {(value?: undefined) => void} */ resume) => {
        const timer = setTimeout(resume, time);
        this.#endPause = () => { clearTimeout(timer); resume(); };
      });
      this.#endPause = () => { this.#hurried = true; };
    }
    this.#hurried = false;
  }
}

/**
 * A chart in a sentence: where each line ends, or each bar.
 * @param {ChartTrace[]} traces
 */
function saidOf(traces) {
  const number = (/** @type {string | number | null | undefined} */ value) =>
    (typeof value === "number" ? String(Number(value.toFixed(2))) : String(value ?? "–"));
  const parts = traces.map(({ name, x = [], y = [], type, orientation }) => {
    if (orientation === "h") return `${name} ${x.map((value, i) => `${number(value)} ms in ${y[i]}`).join(" and ")}`;
    if (type === "bar") return y.map((value, i) => `${number(value)} at place ${x[i]}`).join(", ");
    return `${name} ends at ${number(y[y.length - 1])}`;
  });
  return `${parts.join("; ")}.`;
}

/**
 * @param {ChartTrace[]} traces
 * @param {ChartLayout} layout
 * @param {number} times
 */
function enlarge(traces, layout, times) {
  if (times === 1) return;
  const axis = (/** @type {ChartAxis} */ one) =>
    ({ ...one, title: { ...one.title, font: { size: one.title.font.size * times } } });
  layout.font = { ...layout.font, size: layout.font.size * times };
  layout.margin = Object.fromEntries(
    Object.entries(layout.margin).map(([side, width]) => [side, width * times]));
  layout.xaxis = axis(layout.xaxis);
  layout.yaxis = axis(layout.yaxis);
  for (const trace of traces) {
    if (trace.line) trace.line = { ...trace.line, width: trace.line.width * times };
  }
}
