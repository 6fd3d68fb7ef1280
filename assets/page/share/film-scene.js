// The pictures of a run's film: the ratio, a bar for each lane, and both texts as they grow.

import { measure } from "specviz/facts/metrics.js";
import { uncertainty } from "specviz/facts/uncertainty.js";
import { FONT, layOut, LINE } from "specviz/share/film-text.js";
import { runLine, SANS } from "specviz/share/paint.js";
import { doubt, MIN_ROUNDS, isFinished, isImpossible } from "specviz/words/verdict.js";
import { fixed, perSecond, plural } from "specviz/words/words.js";

/** @typedef {import("specviz/share/paint.js").Painting} Painting */
/** @typedef {keyof import("specviz/share/paint.js").Colours} Colour */
/** @typedef {import("specviz/share/film-text.js").Placed} Placed */

export const WIDTH = 1280;
export const HEIGHT = 720;
const EDGE = 36; // px, as it is painted
const TEXT = { top: 236, bottom: 590 }; // px, of the lanes' text
/** @type {{ lane: LaneName, name: string, left: number, width: number }[]} */
const LANES = [
  { lane: "speculative", name: "With drafts", left: EDGE, width: 720 },
  { lane: "baseline", name: "Target alone", left: EDGE + 744, width: WIDTH - 2 * EDGE - 744 },
];
const PADDING = 20; // px inside a lane
const SMALL = { font: `19px ${SANS}` };
const UNTIL = WIDTH - EDGE; // px, where the ratio ends
/** The legend of the marks: a colour and its word. @type {[Colour, string][]} */
const LEGEND = [
  ["accepted", "accepted"],
  ["rejected", "rejected"],
  ["corrected", "corrected"],
  ["bonus", "bonus"],
  ["soft", "no guess"],
];
const LEGEND_AT = 250; // px from the left

/** @typedef {ReturnType<typeof sceneOf>} Scene */

/**
 * Everything that is the same in all pictures.
 * @param {Painting} sheet
 * @param {Trace} trace
 * @param {number} lasts  seconds that the race takes in the film
 */
export function sceneOf(sheet, trace, lasts) {
  const lanes = LANES.map((column) => {
    const rounds = trace.rounds.filter(({ lane }) => lane === column.lane);
    const placed = layOut(sheet.context, rounds, trace.header, column.width - 2 * PADDING);
    return { ...column, rounds, placed };
  });
  const seconds = Math.max(...trace.rounds.map(({ clock }) => clock));
  const pace = Number((seconds / lasts).toPrecision(2));
  const maxTokens = Math.max(1, ...lanes.map(({ rounds }) => tokensIn(rounds)));
  return { sheet, trace, lanes, seconds, maxTokens, pace };
}

/** @param {Round[]} rounds */
const tokensIn = (rounds) => rounds.reduce((sum, { emitted }) => sum + emitted.length, 0);

/**
 * @param {Scene} scene
 * @param {number} share  of the race, 0 to 1
 */
export function paint(scene, share) {
  const { sheet, trace, lanes, pace } = scene;
  const time = share * scene.seconds + 1e-12;
  sheet.fill("page", 0, 0, WIDTH, HEIGHT);
  sheet.brand(EDGE, 60, 32);
  sheet.write(runLine(trace.header), EDGE, 92, { ...SMALL, maxWidth: 860 });
  sheet.write(`played at ${pace}×`, EDGE, HEIGHT - 18, SMALL);
  sheet.write("each lane on its own measured clock", WIDTH - EDGE, HEIGHT - 18, { ...SMALL, align: "right" });
  paintRatio(scene, trace.rounds.filter(({ clock }) => clock <= time), share >= 1);
  paintLegend(sheet);
  lanes.forEach((lane, i) => {
    paintBar(scene, lane.rounds.filter(({ clock }) => clock <= time), i);
    paintLane(scene, lane, time);
  });
}

// As on the page: pale during the race, and with its doubt at the end.
/** @type {(scene: Scene, done: Round[], isOver: boolean) => void} */
function paintRatio({ sheet, trace }, done, isOver) {
  const m = measure(done, trace.header);
  const measured = uncertainty(done);
  const isRatioKnown = (isOver && isFinished(trace)) || m.rounds >= MIN_ROUNDS;
  if (m.speedup === null || !isRatioKnown) return;
  const isUnfair = isImpossible(measured);
  const isDoubted = isOver && doubt(m, measured, true) !== "";
  const isSettled = isOver && !isDoubted;
  const ratio = isUnfair ? "?" : `${fixed(m.speedup, 2)}×`;
  const colour = isSettled ? "ink" : "soft";
  const width = sheet.write(ratio, UNTIL, 86, { colour, font: `600 72px ${SANS}`, align: "right" });
  const note = noteOf({ isUnfair, isDoubted, isOver });
  const noteColour = isDoubted ? "rejected" : "soft";
  sheet.write(note, UNTIL - width - 16, 86, { ...SMALL, colour: noteColour, align: "right" });
}

/**
 * The words next to the ratio.
 * @type {(state: { isUnfair: boolean, isDoubted: boolean, isOver: boolean }) => string}
 */
function noteOf({ isUnfair, isDoubted, isOver }) {
  if (isUnfair) return "no fair ratio";
  if (isDoubted) return "uncertain";
  return isOver ? "" : "so far";
}

/** @param {Painting} sheet */
function paintLegend(sheet) {
  let x = LEGEND_AT;
  for (const [colour, word] of LEGEND) {
    const width = sheet.write(word, x, HEIGHT - 18, { ...SMALL, colour: "ink" });
    markWord(sheet, colour, { x, y: HEIGHT - 18, width, size: 19 }, word === "rejected");
    x += width + 28;
  }
}

/**
 * The mark of a token under and behind its word.
 * @type {(sheet: Painting, colour: Colour,
 *   at: { x: number, y: number, width: number, size: number }, isStruck: boolean) => void}
 */
function markWord(sheet, colour, { x, y, width, size }, isStruck) {
  sheet.context.globalAlpha = 0.16;
  sheet.box([x, y - size + 2, width, size + 7], colour, 3);
  sheet.context.globalAlpha = 1;
  sheet.box([x, y + 8, width, 3], colour, 0);
  if (isStruck) sheet.box([x, y - 0.36 * size, width, 3], colour, 0);
}

/** @type {(scene: Scene, done: Round[], row: number) => void} */
function paintBar({ sheet, maxTokens }, done, row) {
  const y = 124 + 34 * row;
  const tokens = tokensIn(done);
  const clock = done[done.length - 1]?.clock ?? 0;
  sheet.write(LANES[row].name.toLowerCase(), EDGE, y + 6, SMALL);
  sheet.box([EDGE + 140, y - 7, 690, 14], "track", 7);
  sheet.box([EDGE + 140, y - 7, (690 * tokens) / maxTokens, 14], row ? "soft" : "accepted", 7);
  const speed = clock ? ` · ${perSecond(tokens / clock)} tok/s` : "";
  sheet.write(`${plural(tokens, "token")} · ${fixed(clock, 2)} s${speed}`, WIDTH - EDGE, y + 6,
    { ...SMALL, colour: "ink", align: "right" });
}

/** @type {(scene: Scene, lane: Scene["lanes"][number], time: number) => void} */
function paintLane(scene, { name, left, width, placed, lane }, time) {
  const { sheet } = scene;
  sheet.box([left, 186, width, HEIGHT - 236], "panel", 14);
  sheet.write(name, left + PADDING, 218, { font: `600 21px ${SANS}`, colour: "ink" });
  const written = placed.filter((piece) => piece.seen <= time);
  const rows = Math.floor((TEXT.bottom - TEXT.top) / LINE) + 1;
  const first = Math.max(0, (written[written.length - 1]?.line ?? 0) - rows + 1);
  for (const piece of written.filter(({ line }) => line >= first)) {
    const x = left + PADDING + piece.x;
    const y = TEXT.top + FONT + (piece.line - first) * LINE;
    if (lane !== "baseline" && !piece.isGiven) paintMark(sheet, piece, x, y, piece.judged <= time);
    sheet.write(piece.text, x, y, { font: piece.font, colour: piece.isGiven ? "soft" : "ink" });
  }
}

/** @type {(sheet: Painting, piece: Placed, x: number, y: number, isJudged: boolean) => void} */
function paintMark(sheet, { text, mark, width }, x, y, isJudged) {
  const blank = width * (1 - text.trimStart().length / Math.max(1, text.length));
  const at = { x: x + blank, y, width: width - blank, size: FONT };
  markWord(sheet, isJudged ? mark : "draft", at, isJudged && mark === "rejected");
}
