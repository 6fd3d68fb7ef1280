// A run as a picture to share: pair, settings, headline and both curves, in the size of link previews.

import { measure } from "specviz/facts/metrics.js";
import { runLine, SANS, Painting } from "specviz/share/paint.js";
import { curves, ends, raceOfTwo, ticks } from "specviz/charts/lines.js";
import { uncertainty } from "specviz/facts/uncertainty.js";
import { doubt, isFinished, isImpossible, isRatioShown, range, verdict } from "specviz/words/verdict.js";
import { askedIn, comparison, fixed, provenance, quoted } from "specviz/words/words.js";

const WIDTH = 1200;
const HEIGHT = 630;
const EDGE = 56; // px
const CHART = { left: 660, right: WIDTH - EDGE, top: 132, bottom: 430 }; // px
const COLUMN = 540; // px; the text next to the chart

/** The picture as a PNG. @type {(trace: Trace) => Promise<Blob>} */
export function pictureOf(trace) {
  const sheet = new Painting(WIDTH, HEIGHT);
  paint(sheet, raceOfTwo(trace));
  return new Promise((resolve, reject) => {
    sheet.canvas.toBlob((blob) => {
      if (blob) resolve(blob);
      else reject(new Error("the picture is empty"));
    }, "image/png");
  });
}

/** @type {(sheet: Painting, trace: Trace) => void} */
function paint(sheet, trace) {
  const { header, rounds } = trace;
  const { machine, made } = provenance(header);
  const maxWidth = WIDTH - 2 * EDGE;
  const small = { font: `24px ${SANS}` };
  sheet.fill("page");
  sheet.brand(EDGE, 82, 40);
  sheet.write("Speculative decoding, measured", WIDTH - EDGE, 80, { ...small, align: "right" });
  headline(sheet, trace);
  chart(sheet, curves(rounds));
  sheet.write(quoted(askedIn(header)), EDGE, 508, { font: `26px ${SANS}`, colour: "ink", maxWidth });
  sheet.write(runLine(header), EDGE, 546, { ...small, maxWidth });
  sheet.write(machine + made, EDGE, 580, { ...small, maxWidth });
}

/** @type {(sheet: Painting, trace: Trace) => void} */
function headline(sheet, trace) {
  const { header, rounds } = trace;
  const m = measure(rounds, header);
  const estimate = uncertainty(rounds);
  const isRatioKnown = isRatioShown(trace, m) && !isImpossible(estimate);
  const speedup = isRatioKnown ? m.speedup : null;
  const width = sheet.write(speedup === null ? "?" : fixed(speedup, 2), EDGE - 6, 252,
    { font: `600 150px ${SANS}`, colour: estimate?.doubt ? "soft" : "ink" });
  sheet.write("×", EDGE + width, 252, { font: `84px ${SANS}` });
  const { differAt } = comparison(rounds);
  const sentence = isImpossible(estimate) ? "No fair ratio."
    : verdict({ ...m, speedup }, trace, differAt, isFinished(trace));
  const beginning = sentence.replace(/^(the speed of the target alone(, per request)?).*$/, "$1");
  sheet.write(beginning, EDGE, 312, { font: `600 30px ${SANS}`, colour: "ink", maxWidth: COLUMN });
  const remarks = [];
  if (estimate?.spread && speedup !== null) remarks.push(`parts of the run: ${range(estimate.spread)}`);
  if (doubt(m, estimate, true)) remarks.push("uncertain");
  sheet.write(remarks.join(" · "), EDGE, 350, { font: `24px ${SANS}`, maxWidth: COLUMN });
  sheet.write(`α ${fixed(m.alpha, 2)}   τ ${fixed(m.tau, 2)}   c ${fixed(m.c, 2)}`, EDGE, 414,
    { font: `30px ${SANS}`, colour: "ink", maxWidth: COLUMN });
}

/** @type {(sheet: Painting, lines: Point[][]) => void} */
function chart(sheet, lines) {
  const { context, colours } = sheet;
  const { left, right, top, bottom } = CHART;
  const limits = ends(lines);
  const x = (/** @type {number} */ seconds) => left + (seconds / limits.x) * (right - left);
  const y = (/** @type {number} */ tokens) => bottom - (tokens / limits.y) * (bottom - top);
  const font = `20px ${SANS}`;
  for (const value of ticks(limits.y, 4)) {
    sheet.fill("line", left, y(value), right - left, 1.5);
    sheet.write(String(value), left - 12, y(value) + 7, { font, align: "right" });
  }
  for (const value of ticks(limits.x, 4)) {
    sheet.write(String(value), x(value), bottom + 28, { font, align: "center" });
  }
  sheet.write("tokens against seconds", right, bottom + 54, { font, align: "right" });
  lines.forEach((points, i) => {
    const colour = i ? "soft" : "accepted";
    Object.assign(context, { strokeStyle: colours[colour], lineWidth: 5, lineJoin: "round" });
    context.setLineDash(i ? [3, 7] : []);
    context.beginPath();
    points.forEach((point, at) => {
      if (at) context.lineTo(x(point.x), y(points[at - 1].y));
      context.lineTo(x(point.x), y(point.y));
    });
    context.stroke();
    context.setLineDash([]);
    const name = i ? "··· target alone" : "— with drafts";
    sheet.write(name, left + 8 + 210 * i, top - 14, { font: `600 22px ${SANS}`, colour });
  });
}
