// Figures of Plotly that Python has made, drawn in the page. Plotly is fetched when somebody first
// asks for one: 4 MB that nobody needs who only watches.

import { element, loaded } from "specviz/dom/dom.js";

export const PLOTLY_OPTIONS = { displayModeBar: false, responsive: false, showTips: false };

/** @returns {Theme} */
export const theme = () => (document.body.classList.contains("dark") ? "dark" : "light");

let coming = /** @type {Promise<void> | null} */ (null);

/** @type {(config: Pick<Config, "plotly">) => Promise<void>} */
export function fetchPlotly({ plotly }) {
  coming ??= loaded(element("script", "", { src: new URL(plotly ?? "", document.baseURI).href }))
    .catch((error) => {
      coming = null;
      throw error;
    });
  return coming;
}

/**
 * Draw a figure in the page. A finger that moves over it scrolls the page, so it does not zoom.
 * @type {(plot: HTMLElement, data: ChartTrace[], layout: ChartLayout) => void}
 */
export function drawFigure(plot, data, layout) {
  const still = {
    ...layout,
    dragmode: false,
    xaxis: { ...layout.xaxis, fixedrange: true },
    yaxis: { ...layout.yaxis, fixedrange: true },
  };
  window.Plotly?.react(plot, data, still, PLOTLY_OPTIONS);
}
