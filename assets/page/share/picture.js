// A run as a picture to share: pair, settings, headline and both curves, in the size that sites show
// for a link.

import { measure } from "specviz/facts/metrics.js";
import { brand, canvasOf, coloursOfPage, runLine, SANS, write } from "specviz/share/paint.js";
import { curves, ends, raceOfTwo, ticks } from "specviz/charts/lines.js";
import { uncertainty } from "specviz/facts/uncertainty.js";
import { doubt, isFinished, isImpossible, range, verdict } from "specviz/words/verdict.js";
import { askedIn, comparison, fixed, provenance, quoted } from "specviz/words/words.js";

const WIDTH = 1200, HEIGHT = 630, EDGE = 56; // px
const CHART = { left: 660, right: WIDTH - EDGE, top: 132, bottom: 430 }; // px
const COLUMN = 540; // px; the text beside the chart

/** The picture as a PNG. @type {(trace: Trace) => Promise<Blob>} */
export function pictureOf(trace) {
  const { canvas, context } = canvasOf(WIDTH, HEIGHT);
  paint(context, raceOfTwo(trace), coloursOfPage());
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is empty"))), "image/png");
  });
}

/** @type {(context: CanvasRenderingContext2D, trace: Trace, colours: Colours) => void} */
function paint(context, trace, colours) {
  const { header, rounds } = trace;
  context.fillStyle = colours.page;
  context.fillRect(0, 0, WIDTH, HEIGHT);
  brand(context, colours, EDGE, 82, 40);
  const small = { font: `24px ${SANS}`, colour: colours.soft };
  write(context, "Speculative decoding, measured", WIDTH - EDGE, 80, { ...small, align: "right" });
  headline(context, trace, colours);
  chart(context, curves(rounds), colours);
  const { machine, made } = provenance(header);
  const most = WIDTH - 2 * EDGE;
  write(context, quoted(askedIn(header)), EDGE, 508, { font: `26px ${SANS}`, colour: colours.ink, most });
  write(context, runLine(header), EDGE, 546, { ...small, most });
  write(context, machine + made, EDGE, 580, { ...small, most });
}

/** @type {(context: CanvasRenderingContext2D, trace: Trace, colours: Colours) => void} */
function headline(context, trace, colours) {
  const { header, rounds } = trace;
  const m = measure(rounds, header), found = uncertainty(rounds);
  const shown = isImpossible(found) ? null : m.speedup;
  const width = write(context, shown === null ? "?" : fixed(shown, 2), EDGE - 6, 252,
    { font: `600 150px ${SANS}`, colour: found?.doubt ? colours.soft : colours.ink });
  write(context, "×", EDGE + width, 252, { font: `84px ${SANS}`, colour: colours.soft });
  const said = isImpossible(found) ? "No fair ratio." : verdict(m, trace, comparison(rounds).differAt, isFinished(trace));
  const line = { font: `600 30px ${SANS}`, colour: colours.ink, most: COLUMN };
  write(context, said.replace(/^(the speed of the target alone(, per request)?).*$/, "$1"), EDGE, 312, line);
  const small = { font: `24px ${SANS}`, colour: colours.soft, most: COLUMN };
  const about = doubt(m, found, true) ? "uncertain" : "";
  const spread = found?.spread && shown !== null ? `parts of the run: ${range(found.spread)}` : "";
  write(context, [spread, about].filter(Boolean).join(" · "), EDGE, 350, small);
  write(context, `α ${fixed(m.alpha, 2)}   τ ${fixed(m.tau, 2)}   c ${fixed(m.c, 2)}`, EDGE, 414,
    { ...small, font: `30px ${SANS}`, colour: colours.ink });
}

/** @type {(context: CanvasRenderingContext2D, lines: Point[][], colours: Colours) => void} */
function chart(context, lines, colours) {
  const { left, right, top, bottom } = CHART, most = ends(lines);
  const x = (/** @type {number} */ seconds) => left + (seconds / most.x) * (right - left);
  const y = (/** @type {number} */ tokens) => bottom - (tokens / most.y) * (bottom - top);
  const small = { font: `20px ${SANS}`, colour: colours.soft };
  for (const value of ticks(most.y, 4)) {
    context.fillStyle = colours.line;
    context.fillRect(left, y(value), right - left, 1.5);
    write(context, String(value), left - 12, y(value) + 7, { ...small, align: "right" });
  }
  for (const value of ticks(most.x, 4)) write(context, String(value), x(value), bottom + 28, { ...small, align: "center" });
  write(context, "tokens against seconds", right, bottom + 54, { ...small, align: "right" });
  const styles = [[colours.accepted, []], [colours.soft, [3, 7]]];
  lines.forEach((points, i) => {
    const [colour, dash] = /** @type {[string, number[]]} */ (styles[i]);
    Object.assign(context, { strokeStyle: colour, lineWidth: 5, lineJoin: "round" });
    context.setLineDash(dash);
    context.beginPath();
    points.forEach((point, at) => {
      if (at) context.lineTo(x(point.x), y(points[at - 1].y));
      context.lineTo(x(point.x), y(point.y));
    });
    context.stroke();
    context.setLineDash([]);
    write(context, i ? "··· target alone" : "— with drafts", left + 8 + 210 * i, top - 14, { font: `600 22px ${SANS}`, colour });
  });
}
