// Plotly's charts of a run, for the drawer and to be taken away: layouts and colours come from Python,
// points from the shown rounds. Plotly is fetched when somebody first asks for one.

import { element, loaded } from "specviz/dom/dom.js";
import { ALONE, labelOf, lanesOf, OURS } from "specviz/facts/lanes.js";
import { readsPrompt, series } from "specviz/facts/metrics.js";
import { SERVER } from "specviz/words/description.js";

export const REQUESTS = "requests"; // the chart that only targets on a server have
const DEEP = ["positions", "rates", REQUESTS]; // what neither the landing nor the drawer draws itself
const HEIGHT = 250; // px
const MOST_LANES = 8; // with drafts, that a race may have
export const PLOTLY_OPTIONS = { displayModeBar: false, responsive: false, showTips: false };

// A picture is drawn outside the page, where the page's own font is not to be had.
const PICTURE_FONT = "system-ui, sans-serif";

export const theme = () => (document.body.classList.contains("dark") ? "dark" : "light");

let coming = /** @type {Promise<void> | null} */ (null);

/**
 * Kept once there is Plotly: 4 MB that nobody needs who only watches.
 * @type {(config: Pick<Config, "plotly">) => Promise<void>}
 */
export function fetchPlotly({ plotly }) {
  coming ??= loaded(element("script", "", { src: new URL(plotly ?? "", document.baseURI).href }))
    .catch((error) => { coming = null; throw error; });
  return coming;
}

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

/** The charts of the drawer. */
export class Charts {
  node = element("div", "sv-charts");
  #config;
  #plots = /** @type {Map<string, HTMLElement>} */ (new Map());
  #shown = /** @type {{ rounds: Round[], trace: Trace } | null} */ (null);

  /** @param {Config} config */
  constructor(config) {
    this.#config = config;
    for (const name of DEEP) {
      const plot = element("div", "sv-plot", { role: "img" });
      this.node.append(element("figure", "", { dataset: { chart: name } }, plot));
      this.#plots.set(name, plot);
    }
    new MutationObserver(() => this.#draw()).observe(document.body, { attributeFilter: ["class"] });
    new ResizeObserver(() => this.#draw()).observe(this.node);
  }

  /** @type {(rounds: Round[], trace: Trace) => void} */
  show(rounds, trace) {
    if (!this.#config.plotly) return; // a small player has none
    this.#shown = { rounds, trace };
    fetchPlotly(this.#config).then(() => this.#draw(), () => {});
  }

  #draw() {
    const width = this.node.clientWidth;
    if (!window.Plotly || !this.#shown || !width) return;
    const { rounds, trace: { header } } = this.#shown, names = lanesOf(header);
    for (const [name, plot] of this.#plots) {
      const isOffered = name === REQUESTS ? header.target.form === SERVER && !header.source : true;
      if (plot.parentElement) plot.parentElement.hidden = !isOffered;
      if (!isOffered) continue;
      const { data, layout } = chartFigure(this.#config, name, rounds, names);
      const title = { ...layout.title, font: { ...layout.title.font, size: 15 } };
      window.Plotly.react(plot, data, { ...layout, title, width: plot.clientWidth || width, height: HEIGHT, paper_bgcolor: "rgba(0,0,0,0)",
        font: { ...layout.font, family: getComputedStyle(this.node).fontFamily } }, PLOTLY_OPTIONS);
      plot.setAttribute("aria-label", saidOf(data));
    }
  }
}

/** A chart in a sentence: where each line ends, or each bar. @param {ChartTrace[]} traces */
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
 * The styles of a chart's traces: its own in a race of two, else one for each lane that it shows.
 * @param {ChartSpec} spec
 * @param {string} name
 * @param {LaneName[]} lanes  the baseline last
 * @param {boolean} isWatched  whether the times of a round are known only as a whole
 * @returns {ChartTrace[]}
 */
function tracesOf({ traces, lanes: styles }, name, lanes, isWatched) {
  if (isWatched && name === "parts") {
    return [{ ...traces[1], name: "a step", hovertemplate: "%{x:.2f} ms<extra>a step</extra>" }];
  }
  if (!lanes.includes(ALONE) && (name === "tokens" || name === "speed")) return traces.slice(0, 1);
  if (lanes.length < 3 || name === "parts") {
    const own = lanes[0] !== OURS && ["tokens", "speed", "requests"].includes(name);
    return own ? [named(traces[0], lanes[0]), traces[1]] : traces;
  }
  const drafted = lanes.slice(0, -1).map((lane, i) => named(styles[i], lane));
  return styles.length > MOST_LANES ? [...drafted, styles[styles.length - 1]] : drafted;
}

/**
 * @param {ChartTrace} style
 * @param {LaneName} lane
 */
const named = (style, lane) => {
  const [shown] = (style.hovertemplate ?? "").split("<extra>");
  return { ...style, name: lane, hovertemplate: `${shown}<extra>${labelOf(lane)}</extra>` };
};

/** @type {(config: Config, name: string, lanes: LaneName[]) => string} */
const titleOf = (config, name, lanes) =>
  ((lanes.length > 2 && config.several[name]) || config.titles[name]);
