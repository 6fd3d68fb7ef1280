// What stands in the large chart of the landing beside its lines: their names, the times at their ends, and
// the gap between them with the ratio in it.

import { duration } from "specviz/words/words.js";

/** @typedef {import("specviz/charts/lines.js").Label} Label */
/** @typedef {[left: number, up: number, right: number, down: number]} Box */

export const LARGE = { left: 38, right: 14, top: 26, bottom: 26 }; // px
const ALIKE = 0.1; // the share by which lanes' lengths may differ for their gap to have a name
const ROOM = 0.22; // of the clock, that a name takes
/**
 * The least room in which the name of a gap fits, small and large: px, or a share of a large chart's
 * width.
 */
const RATIO = { small: { px: 84, share: 0.22 }, large: { px: 140, share: 0.34 } };
const LARGE_CHART = 400; // px: the letters of a wider one grow with it
const DOT = 7; // px: half of a dot, with some air
const LETTER = 8.4; // px: a digit of a time at the end of a line, at most
/**
 * Where a time can stand at the end of its line, the best place first. box: how far it reaches from the dot
 * to the left, up, right and down, in px, for a text of a width.
 * @type {{ className: string, by: [number, number], box: (width: number) => Box }[]}
 */
const TIME_PLACES = [
  { className: "is-above", by: [0, -10], box: (width) => [-width / 2, -27, width / 2, -9] },
  { className: "is-left", by: [-12, 0], box: (width) => [-12 - width, -9, -12, 9] },
  { className: "is-beside", by: [12, 0], box: (width) => [12, -9, 12 + width, 9] },
  { className: "is-below", by: [0, 19], box: (width) => [-width / 2, 10, width / 2, 28] },
];

/** @param {Point[]} points */
export const lastOf = (points) => points[points.length - 1] ?? { x: 0, y: 0 };

// What lies between two lines: up to the clock that both have reached, and in a finished run up to
// the tokens that both have written.
/** @type {(ours: Point[], alone: Point[], isWhole: boolean) => Point[] | null} */
export function gapOf(ours, alone, isWhole) {
  if (ours.length < 2 || alone.length < 2) return null;
  const [a, b] = [lastOf(ours), lastOf(alone)];
  const low = Math.min(a.y, b.y);
  const below = (/** @type {Point[]} */ line) => line.filter(({ y }) => y <= low);
  if (isWhole) return [...below(ours), ...below(alone).reverse()];
  const now = Math.max(a.x, b.x);
  const till = (/** @type {Point[]} */ line) => [...line, { x: now, y: lastOf(line).y }];
  return [...till(ours), ...till(alone).reverse()];
}

/**
 * What `labelsOf` and its parts need to know. name: of the lane with drafts. ratio: the headline, or "?".
 * clock, tokens: where the axes end.
 * @typedef {object} Labelled
 * @property {Point[]} ours
 * @property {Point[]} alone
 * @property {boolean} isWhole
 * @property {string} ratio
 * @property {number} clock
 * @property {number} tokens
 * @property {string} name
 * @property {boolean} isAhead
 * @property {Size} size
 */

/**
 * Names at the heads of the lines while both are written; in a finished run along them, with the
 * times at their ends and the ratio in the gap.
 * @type {(parts: Labelled) => Label[]}
 */
export function labelsOf(parts) {
  if (!parts.isWhole) return namesAtHeads(parts);
  const { ours, alone, clock } = parts;
  const labels = timesAtEnds(parts);
  const [a, b] = [lastOf(ours), lastOf(alone)];
  // Where the ends differ there is no one end that a ratio could be read off.
  if (Math.abs(a.y - b.y) > ALIKE * Math.max(a.y, b.y)) return labels;
  labels.push(...ratioInGap(parts));
  const [left, right] = linesByPlace(parts);
  if (along(left.line, 0.52).x < ROOM * clock) return labels; // a name would stand beside the chart
  labels.push({
    at: along(left.line, 0.52), text: left.text, className: `${left.className} is-left`, by: [-12, -4],
  });
  labels.push({
    at: along(right.line, 0.5), text: right.text, className: `${right.className} is-beside`, by: [12, 12],
  });
  return labels;
}

/** @type {(parts: Labelled) => Label[]} */
function namesAtHeads({ ours, alone, tokens, clock, name }) {
  const [a, b] = [lastOf(ours), lastOf(alone)];
  if (Math.abs(a.y - b.y) < 0.06 * tokens) return [];
  const besideOurs = side(a.x, clock);
  const besideAlone = side(b.x, clock);
  return [
    { at: a, text: name, className: `is-ours ${besideOurs.className}`, by: besideOurs.by },
    { at: b, text: "alone", className: `is-alone ${besideAlone.className}`, by: besideAlone.by },
  ];
}

/** @type {(parts: Labelled) => Label[]} */
function timesAtEnds({ ours, alone, clock, tokens, size }) {
  const [a, b] = [lastOf(ours), lastOf(alone)];
  const wide = perSecondOf(size, clock);
  const high = (size.height - LARGE.top - LARGE.bottom) / tokens; // px per token
  const onSheet = (/** @type {Point} */ { x, y }) =>
    ({ x: LARGE.left + x * wide, y: size.height - LARGE.bottom - y * high });
  const texts = [duration(a.x, clock), duration(b.x, clock)];
  const places = timePlaces([onSheet(a), onSheet(b)], texts, size.width);
  return [
    { at: a, text: texts[0], className: `is-ours ${places[0].className}`, by: places[0].by },
    { at: b, text: texts[1], className: `is-alone ${places[1].className}`, by: places[1].by },
  ];
}

/**
 * The ratio in the middle of the gap at three quarters of its height, if it fits in between.
 * @type {(parts: Labelled) => Label[]}
 */
function ratioInGap({ ours, alone, ratio, clock, isAhead, size }) {
  const wide = perSecondOf(size, clock);
  const y = 0.78 * Math.min(lastOf(ours).y, lastOf(alone).y);
  const clockAt = (/** @type {Point[]} */ line) => (line.find((point) => point.y >= y) ?? lastOf(line)).x;
  const begin = clockAt(ours);
  const end = clockAt(alone);
  const room = Math.abs(begin - end) * wide; // px
  const fits = (/** @type {{ px: number, share: number }} */ { px, share }) =>
    room > Math.max(px, share * clock * wide);
  if (ratio === "?" || !fits(RATIO.small)) return [];
  const small = fits(RATIO.large) ? "" : " is-small";
  const lost = isAhead ? "" : " is-lost";
  return [{ at: { x: (begin + end) / 2, y }, text: `${ratio}×`, className: `is-ratio${small}${lost}` }];
}

/**
 * Both lines with their names, the left one first.
 * @param {Labelled} parts
 */
function linesByPlace({ ours, alone, name, isAhead }) {
  const drafted = { line: ours, text: name, className: "is-ours" };
  const baseline = { line: alone, text: "alone", className: "is-alone" };
  return isAhead ? [drafted, baseline] : [baseline, drafted];
}

/** @type {(size: Size, clock: number) => number} px per second */
const perSecondOf = (size, clock) => (size.width - LARGE.left - LARGE.right) / clock;

/** @type {(line: Point[], share: number) => Point} */
const along = (line, share) => line[Math.floor((line.length - 1) * share)];

/**
 * A place for the time at the end of each of two lines: over no dot, and over no other time.
 * @param {Point[]} dots  px
 * @param {string[]} texts
 * @param {number} width  px, of the chart
 */
export function timePlaces(dots, texts, width) {
  /** @type {Box[]} */
  const taken = dots.map(({ x, y }) => [x - DOT, y - DOT, x + DOT, y + DOT]);
  const letter = LETTER * Math.max(1, width / LARGE_CHART);
  return dots.map(({ x, y }, i) => {
    const boxOf = (/** @type {typeof TIME_PLACES[number]} */ place) => {
      const [left, up, right, down] = place.box(letter * texts[i].length);
      return /** @type {Box} */ ([x + left, y + up, x + right, y + down]);
    };
    const isFree = (/** @type {Box} */ [left, up, right, down]) =>
      left >= 0 && right <= width + LARGE.right
      && taken.every(([l, u, r, d]) => right <= l || left >= r || down <= u || up >= d);
    const place = TIME_PLACES.find((candidate) => isFree(boxOf(candidate))) ?? TIME_PLACES[0];
    taken.push(boxOf(place));
    return place;
  });
}

/**
 * A name stands right of its head while there is room, then left of it and above its line.
 * @type {(x: number, clock: number) => { className: string, by: [number, number] }}
 */
const side = (x, clock) =>
  (x > 0.7 * clock ? { className: "is-left", by: [-11, -12] } : { className: "is-beside", by: [11, 0] });
