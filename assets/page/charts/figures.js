// Plotly figures from Python, drawn in the page. Plotly has 4 MB, so it is fetched with the first figure.

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
 * Draw a figure in the page, without zoom: a finger that moves over it scrolls the page.
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
