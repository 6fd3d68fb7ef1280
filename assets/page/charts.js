// Plotly charts: layouts and colours come from Python, points from the shown rounds.

import { element } from "./lane.js";
import { series } from "./metrics.js";

const INTERVAL = 500; // ms between redraws, at least
const SLOWEST = 2000; // ms between redraws, at most
const SHARE = 24; // drawing may take one part in this many of the page's time

const requestFrame = (then) => (document.hidden ? setTimeout(then, 50) : requestAnimationFrame(then));
const OPTIONS = { displayModeBar: false, responsive: false, showTips: false };

const theme = () => (document.body.classList.contains("dark") ? "dark" : "light");

// A picture is drawn outside the page, where the page's own font is not to be had.
const PICTURE_FONT = "system-ui, sans-serif";

/** A chart of these rounds to be taken away, as figures() of specviz/charts.py draws it. */
export function chartFigure(config, name, title, rounds) {
  const { traces, layout } = config.charts[theme()][name];
  const points = series(rounds)[name];
  const style = getComputedStyle(document.body);
  const [page, ink] = ["page", "ink"].map((part) => style.getPropertyValue(`--sv-${part}`).trim());
  const axis = (one) => ({ ...one, title: { ...one.title, standoff: 8, font: { size: 13 } } });
  return {
    data: traces.map((trace, i) => ({ ...trace, ...points[i] })),
    layout: {
      ...layout,
      xaxis: axis(layout.xaxis),
      yaxis: axis(layout.yaxis),
      title: { text: title, x: 0.02, font: { size: 16, color: ink } },
      margin: { l: name === "parts" ? 120 : 60, r: 24, t: 78, b: 52 },
      showlegend: traces.length > 1,
      legend: { orientation: "h", traceorder: "normal", y: 1.02, yanchor: "bottom", x: 0 },
      paper_bgcolor: page,
      font: { ...layout.font, family: PICTURE_FONT, size: 13 },
    },
  };
}

export function createCharts(root, config) {
  const box = root.querySelector("[data-charts]");
  const plots = new Map();
  let ready = false, drawing = false, wanted = null;
  let hurried = false; // what was asked for while drawing must not wait either
  let goOn = () => { hurried = true; };

  /** Up to so many milliseconds; less if nothing moves any more. */
  async function pause(time) {
    if (!hurried) {
      await new Promise((resume) => {
        const timer = setTimeout(resume, time);
        goOn = () => { clearTimeout(timer); resume(); };
      });
      goOn = () => { hurried = true; };
    }
    hurried = false;
  }

  for (const [name, title] of Object.entries(config.titles)) {
    const figure = element("figure");
    figure.dataset.chart = name;
    const plot = element("div", "sv-plot");
    figure.append(caption(name, title), plot);
    box.append(figure);
    plots.set(name, plot);
  }

  function caption(name, title) {
    const node = element("figcaption", "", title);
    const { traces } = config.charts.light[name];
    if (traces.length > 1) {
      traces.forEach((trace, i) => {
        const key = element("span", "sv-chart-key", trace.name);
        key.dataset.key = `${name}-${i}`;
        node.append(key);
      });
    }
    return node;
  }

  async function draw() {
    if (!ready || drawing) return;
    drawing = true;
    while (wanted) {
      // A live run begins while the page has enough to do: its charts come a little later.
      if (!wanted.length && root.dataset.source === "live") await pause(INTERVAL);
      const rounds = wanted;
      wanted = null;
      const points = series(rounds), specs = config.charts[theme()];
      let spent = 0;
      for (const [name, plot] of plots) {
        const begun = performance.now();
        drawOne(plot, specs[name], points[name], rounds.length === 0);
        spent += performance.now() - begun;
        await new Promise(requestFrame); // one chart a frame, so that none is long
      }
      // A slow machine redraws less often: the charts must not take time from the engine.
      await pause(Math.min(SLOWEST, Math.max(INTERVAL, SHARE * spent)));
    }
    drawing = false;
  }

  function drawOne(plot, spec, points, isEmpty) {
    const traces = spec.traces.map((trace, i) => ({ ...trace, ...points[i] }));
    const layout = { ...spec.layout, width: plot.clientWidth, height: plot.clientHeight };
    enlarge(traces, layout);
    if (isEmpty) {
      layout.xaxis = { ...layout.xaxis, range: [0, 1], showticklabels: false };
      layout.yaxis = { ...layout.yaxis, showticklabels: false };
    }
    if (layout.width) window.Plotly.react(plot, traces, layout, OPTIONS);
  }

  /** On stage a chart is read from afar: its type and lines grow with the screen. */
  function enlarge(traces, layout) {
    const times = scale();
    if (times === 1) return;
    layout.font = { ...layout.font, size: layout.font.size * times };
    layout.margin = Object.fromEntries(
      Object.entries(layout.margin).map(([side, width]) => [side, width * times]));
    for (const axis of ["xaxis", "yaxis"]) {
      const { title } = layout[axis];
      layout[axis] = { ...layout[axis], title: { ...title, font: { size: title.font.size * times } } };
    }
    for (const trace of traces) {
      if (trace.line) trace.line = { ...trace.line, width: trace.line.width * times };
    }
  }

  function scale() {
    if (!document.body.classList.contains("sv-stage")) return 1;
    return Math.max(1, parseFloat(getComputedStyle(box.firstChild).fontSize) / 11);
  }

  function request(rounds) {
    wanted = rounds;
    if (root.dataset.state !== "running") goOn();
    draw();
  }

  let shown = [], hasCome;
  const come = new Promise((resolve) => { hasCome = resolve; });
  const load = () => {
    const script = element("script");
    script.src = new URL(config.plotly, document.baseURI);
    script.onload = () => { ready = true; hasCome(); colour(); request(shown); };
    document.head.append(script);
  };
  // After the first paint: the page can be used before 4 MB of charts have come.
  (window.requestIdleCallback ?? setTimeout)(load);

  function colour() {
    for (const key of box.querySelectorAll("[data-key]")) {
      const [name, i] = key.dataset.key.split("-");
      const trace = config.charts[theme()][name].traces[i];
      key.style.setProperty("--key", trace.line?.color ?? trace.marker.color);
      key.dataset.dash = trace.line?.dash ?? "bar";
    }
  }

  const redraw = () => { colour(); request(shown); };
  new MutationObserver(redraw).observe(document.body, { attributeFilter: ["class"] });
  new ResizeObserver(redraw).observe(box);

  /** come: kept when there is what draws charts. */
  return { come, show(rounds) { shown = rounds; request(rounds); } };
}
