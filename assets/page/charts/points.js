// Charts of as many lanes as a race has: their lines, titles and labels.

import { ALONE, labelOf, OURS } from "specviz/facts/lanes.js";

const MOST_LANES = 8; // with drafts, that a race may have

/**
 * The styles of a chart's traces: its own in a race of two, else one for each lane that it shows.
 * @param {ChartSpec} spec
 * @param {string} name
 * @param {LaneName[]} lanes  the baseline last
 * @param {boolean} isWatched  whether the times of a round are known only as a whole
 * @returns {ChartTrace[]}
 */
export function tracesOf({ traces, lanes: styles }, name, lanes, isWatched) {
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

/**
 * @param {Config} config
 * @param {string} name of a chart
 * @param {LaneName[]} lanes
 */
export const titleOf = (config, name, lanes) =>
  ((lanes.length > 2 && config.several[name]) || config.titles[name]);
