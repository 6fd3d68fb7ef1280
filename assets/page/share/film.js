// A run as a short film: both lanes race once more on a canvas, which the browser records.

import { raceOfTwo } from "specviz/charts/lines.js";
import { pause } from "specviz/dom/dom.js";
import { measure } from "specviz/facts/metrics.js";
import { uncertainty } from "specviz/facts/uncertainty.js";
import { eventsOf } from "specviz/run/timeline.js";
import { runLine, SANS, SERIF, Painting } from "specviz/share/paint.js";
import { doubt, FEWEST_ROUNDS, isImpossible } from "specviz/words/verdict.js";
import { begunBy, fixed, perSecond, plural } from "specviz/words/words.js";

const WIDTH = 1280;
const HEIGHT = 720;
const EDGE = 36; // px, as it is painted
const SCALE = 0.75; // px of the film for one of these: a slow machine must keep up
const RACE = 10;
const HOLD = 2; // seconds that the race takes, and that its end stays
const RATE = 15; // pictures per second
const LONGEST_STEP = 0.2; // seconds: a page that was held up does not jump
const DRAIN = 300;
const DRAINS = 60; // ms between looks whether all is encoded, and how many at most
const LITTLE = 1000; // bytes: less than a picture that differs from the one before
const BITS = 3_000_000; // per second
const HEAD = 4096; // bytes, in which a film says what it is
const INFO = [0x15, 0x49, 0xa9, 0x66];
const DURATION = [0x44, 0x89]; // ids of elements
// H.264 in MP4 plays in slides and on phones; MP4 with other codecs plays in fewer places than WebM.
const TYPES = ["video/mp4;codecs=avc1.42E01E", "video/mp4;codecs=avc1", "video/webm;codecs=vp8", "video/webm", "video/mp4"];
const TEXT = { top: 236, bottom: 590 }; // px, of the lanes' text
/** @type {{ lane: LaneName, name: string, left: number, width: number }[]} */
const LANES = [
  { lane: "speculative", name: "With drafts", left: EDGE, width: 720 },
  { lane: "baseline", name: "Target alone", left: EDGE + 744, width: WIDTH - 2 * EDGE - 744 },
];
const PADDING = 20; // px inside a lane
const SMALL = { font: `19px ${SANS}` };
const UNTIL = WIDTH - EDGE; // px, where the ratio ends
/** What the marks mean: a colour and its word. @type {[keyof import("specviz/share/paint.js").Colours, string][]} */
const LEGEND = [["accepted", "accepted"], ["rejected", "rejected"], ["corrected", "corrected"], ["bonus", "bonus"], ["soft", "no guess"]];
const LEGEND_AT = 250; // px from the left

/** The suffix of a film of this type. @param {string} type */
export const suffixOf = (type) => (type.startsWith("video/mp4") ? "mp4" : "webm");

/** The kind of film that this browser can record; null if it cannot. */
export function filmType() {
  const canRecord = "MediaRecorder" in globalThis && "captureStream" in HTMLCanvasElement.prototype;
  return canRecord ? TYPES.find((type) => MediaRecorder.isTypeSupported(type)) ?? null : null;
}

/**
 * Record the film of a run; null if it was cancelled. It takes as long as it lasts.
 * @param {Trace} trace
 * @param {{ progress: (share: number) => void, signal: AbortSignal }} parts
 * @returns {Promise<Blob | null>}
 */
export async function filmOf(trace, { progress, signal }) {
  const type = filmType();
  if (!type) throw new Error("this browser records no canvas");
  const sheet = new Painting(SCALE * WIDTH, SCALE * HEIGHT);
  const scene = sceneOf(sheet, raceOfTwo(trace));
  sheet.context.scale(SCALE, SCALE);
  paint(scene, 0);
  const stream = sheet.canvas.captureStream(RATE);
  const recorder = new MediaRecorder(stream, { mimeType: type, videoBitsPerSecond: BITS });
  const parts = /** @type {Blob[]} */ ([]);
  recorder.ondataavailable = ({ data }) => { parts.push(data); };
  const ended = new Promise((resolve, reject) => {
    recorder.onstop = resolve;
    recorder.onerror = () => reject(new Error("the browser stopped recording"));
  });
  recorder.start();
  await play(recorder, signal, (share) => {
    paint(scene, Math.min(1, (share * (RACE + HOLD)) / RACE));
    progress(share);
  });
  if (!signal.aborted) await drain(recorder, parts);
  if (recorder.state !== "inactive") recorder.stop();
  await ended;
  for (const track of stream.getTracks()) track.stop();
  if (signal.aborted) return null;
  const film = new Blob(parts, { type: type.split(";")[0] });
  return film.type === "video/webm" ? withDuration(film, 1000 * (RACE + HOLD)) : film;
}

/**
 * A WebM film that says how long it is, so that it can be sought: a browser that records one writes a
 * duration before it knows it, or none. The element lies in the one named Info (Matroska, RFC 9559).
 * @param {Blob} film
 * @param {number} lasts  ms
 */
async function withDuration(film, lasts) {
  const head = new Uint8Array(await film.slice(0, HEAD).arrayBuffer());
  const view = new DataView(head.buffer);
  const find = (/** @type {number[]} */ bytes, /** @type {number} */ from) =>
    head.findIndex((_, i) => i >= from && bytes.every((byte, at) => head[i + at] === byte));
  const info = find(INFO, 0);
  const size = head[info + INFO.length] & 0x7f;
  const first = info + INFO.length + 1;
  const known = find(DURATION, first);
  if (info < 0 || known < 0 || known >= first + size) return film;
  if (head[known + 2] === 0x84) view.setFloat32(known + 3, lasts);
  else if (head[known + 2] === 0x88) view.setFloat64(known + 3, lasts);
  return new Blob([head, film.slice(HEAD)], { type: film.type });
}

// Wait until the browser has encoded what it was given: on a busy machine it is seconds behind, and
// would leave out the end.
/** @type {(recorder: MediaRecorder, parts: Blob[]) => Promise<void>} */
async function drain(recorder, parts) {
  const size = () => parts.reduce((sum, part) => sum + part.size, 0);
  for (let left = DRAINS, quiet = 0; left > 0 && quiet < 2 && recorder.state === "recording"; left -= 1) {
    const before = size();
    await pause(DRAIN);
    recorder.requestData();
    await pause(0);
    quiet = size() - before < LITTLE ? quiet + 1 : 0;
  }
}

// Call `show` with the share of the film that is over, until all of it is, or it is cancelled. In a
// hidden tab, which gets no time, the film waits.
/** @type {(recorder: MediaRecorder, signal: AbortSignal, show: (share: number) => void) => Promise<void>} */
function play(recorder, signal, show) {
  return new Promise((/** @type {(value?: undefined) => void} */ resolve) => {
    let over = 0;
    let last = performance.now();
    const timer = setInterval(() => {
      const now = performance.now();
      const passed = Math.min(LONGEST_STEP, (now - last) / 1000);
      last = now;
      if (document.hidden && recorder.state === "recording") recorder.pause();
      else if (!document.hidden && recorder.state === "paused") recorder.resume();
      if (!document.hidden) over += passed;
      const share = Math.min(1, over / (RACE + HOLD));
      if (!document.hidden) show(share);
      if (share < 1 && !signal.aborted && recorder.state !== "inactive") return;
      clearInterval(timer);
      resolve();
    }, 1000 / RATE);
  });
}

/** @typedef {ReturnType<typeof sceneOf>} Scene */

/**
 * Everything that stays the same from picture to picture.
 * @param {Painting} sheet
 * @param {Trace} trace
 */
function sceneOf(sheet, trace) {
  const lanes = LANES.map((one) => {
    const rounds = trace.rounds.filter(({ lane }) => lane === one.lane);
    return { ...one, rounds, placed: layOut(sheet.context, rounds, begunBy(trace.header), one.width - 2 * PADDING) };
  });
  const seconds = Math.max(...trace.rounds.map(({ clock }) => clock));
  const pace = Number((seconds / RACE).toPrecision(2));
  const most = Math.max(1, ...lanes.map(({ rounds }) => tokensIn(rounds)));
  return { sheet, trace, lanes, seconds, most, pace };
}

/** @param {Round[]} rounds */
const tokensIn = (rounds) => rounds.reduce((sum, { emitted }) => sum + emitted.length, 0);

/**
 * @param {Scene} scene
 * @param {number} share of the race that is over
 */
function paint(scene, share) {
  const { sheet, trace, lanes, pace } = scene;
  const time = share * scene.seconds + 1e-12;
  sheet.fill("page", 0, 0, WIDTH, HEIGHT);
  sheet.brand(EDGE, 60, 32);
  sheet.write(runLine(trace.header), EDGE, 92, { ...SMALL, most: 860 });
  sheet.write(`played at ${pace}×`, EDGE, HEIGHT - 18, SMALL);
  sheet.write("each lane on its own measured clock", WIDTH - EDGE, HEIGHT - 18, { ...SMALL, align: "right" });
  paintRatio(scene, trace.rounds.filter(({ clock }) => clock <= time), share >= 1);
  paintLegend(sheet);
  lanes.forEach((lane, i) => {
    paintBar(scene, lane.rounds.filter(({ clock }) => clock <= time), i);
    paintLane(scene, lane, time);
  });
}

// As the page tells it: pale while it is written, and with its doubt once it is over.
/** @type {(scene: Scene, done: Round[], isOver: boolean) => void} */
function paintRatio({ sheet, trace }, done, isOver) {
  const m = measure(done, trace.header);
  const found = uncertainty(done);
  const isTold = isOver || m.rounds >= FEWEST_ROUNDS;
  if (m.speedup === null || !isTold) return;
  const isUnfair = isImpossible(found);
  const isDoubted = isOver && doubt(m, found, true) !== "";
  const isSettled = isOver && !isDoubted;
  const width = sheet.write(isUnfair ? "?" : `${fixed(m.speedup, 2)}×`, UNTIL, 86,
    { colour: isSettled ? "ink" : "soft", font: `600 72px ${SANS}`, align: "right" });
  const said = isUnfair ? "no fair ratio" : isDoubted ? "uncertain" : isOver ? "" : "so far";
  sheet.write(said, UNTIL - width - 16, 86, { ...SMALL, colour: isDoubted ? "rejected" : "soft", align: "right" });
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
 * @type {(sheet: Painting, colour: keyof import("specviz/share/paint.js").Colours,
 *   at: { x: number, y: number, width: number, size: number }, isStruck: boolean) => void}
 */
function markWord(sheet, colour, { x, y, width, size }, isStruck) {
  sheet.context.globalAlpha = 0.16;
  sheet.box([x, y - size + 2, width, size + 7], colour, 3);
  sheet.context.globalAlpha = 1;
  sheet.box([x, y + 8, width, 3], colour, 0);
  if (isStruck) sheet.box([x, y - 0.36 * size, width, 3], colour, 0);
}

/** @type {(scene: Scene, done: Round[], place: number) => void} */
function paintBar({ sheet, most }, done, place) {
  const y = 124 + 34 * place;
  const tokens = tokensIn(done);
  const clock = done[done.length - 1]?.clock ?? 0;
  sheet.write(LANES[place].name.toLowerCase(), EDGE, y + 6, SMALL);
  sheet.box([EDGE + 140, y - 7, 690, 14], "track", 7);
  sheet.box([EDGE + 140, y - 7, (690 * tokens) / most, 14], place ? "soft" : "accepted", 7);
  const speed = clock ? ` · ${perSecond(tokens / clock)} tok/s` : "";
  sheet.write(`${plural(tokens, "token")} · ${fixed(clock, 2)} s${speed}`, WIDTH - EDGE, y + 6,
    { ...SMALL, colour: "ink", align: "right" });
}

/** @type {(scene: Scene, lane: Scene["lanes"][number], time: number) => void} */
function paintLane(scene, { name, left, width, placed, lane }, time) {
  const { sheet } = scene;
  sheet.box([left, 186, width, HEIGHT - 236], "panel", 14);
  sheet.write(name, left + PADDING, 218, { font: `600 21px ${SANS}`, colour: "ink" });
  const seen = placed.filter((piece) => piece.seen <= time);
  const rows = Math.floor((TEXT.bottom - TEXT.top) / LINE) + 1;
  const first = Math.max(0, (seen[seen.length - 1]?.line ?? 0) - rows + 1);
  for (const piece of seen.filter(({ line }) => line >= first)) {
    const x = left + PADDING + piece.x;
    const y = TEXT.top + FONT + (piece.line - first) * LINE;
    if (lane !== "baseline" && !piece.isGiven) paintMark(sheet, piece, x, y, piece.judged <= time);
    sheet.write(piece.text, x, y, { font: FACE, colour: piece.isGiven ? "soft" : "ink" });
  }
}

/** @type {(sheet: Painting, piece: Placed, x: number, y: number, isJudged: boolean) => void} */
function paintMark(sheet, { text, mark, width }, x, y, isJudged) {
  const blank = width * (1 - text.trimStart().length / Math.max(1, text.length));
  const at = { x: x + blank, y, width: width - blank, size: FONT };
  markWord(sheet, isJudged ? mark : "draft", at, isJudged && mark === "rejected");
}

const FONT = 25; // px
const FACE = `${FONT}px ${SERIF}`;
const LINE = 42; // px from line to line

/**
 * A token on its place. seen: when it is on the screen; judged: when its verdict is; both in seconds
 * on the lane's clock.
 * @typedef {object} Placed
 * @property {string} text
 * @property {keyof import("specviz/share/paint.js").Colours} mark  its colour
 * @property {boolean} isGiven  stands in the prompt
 * @property {number} x px
 * @property {number} line from 0
 * @property {number} width px
 * @property {number} seen
 * @property {number} judged
 */

/** @typedef {Omit<Placed, "x" | "line" | "width">} Piece */

// The tokens that a lane shows, in the order of the text: ignored ones would only come and go.
/** @type {(rounds: Round[], prompt: string) => Piece[]} */
function piecesOf(rounds, prompt) {
  /** @type {Piece[]} */
  const pieces = [{ text: prompt, mark: "soft", isGiven: true, seen: 0, judged: 0 }];
  for (const round of rounds) {
    const times = eventsOf(round);
    round.drafted.forEach((token, i) => {
      if (token.outcome === "ignored") return;
      pieces.push({ text: token.text, mark: markOf(token, round), isGiven: false, seen: times[i].time, judged: round.clock });
    });
    for (const token of round.emitted) {
      if (token.outcome === "accepted") continue;
      pieces.push({ text: token.text, mark: markOf(token, round), isGiven: false, seen: round.clock, judged: round.clock });
    }
  }
  return pieces;
}

/** The colour of a token's mark; one of a round without a guess came not free. @type {(token: Token, round: Round) => Placed["mark"]} */
const markOf = ({ outcome }, { drafted }) =>
  (outcome === "ignored" || outcome === "untold" || (outcome === "bonus" && !drafted.length) ? "soft" : outcome);

// Break a lane's text into lines of so many px. Lines break before blanks, so that no word is torn.
/** @type {(context: CanvasRenderingContext2D, rounds: Round[], prompt: string, width: number) => Placed[]} */
function layOut(context, rounds, prompt, width) {
  context.font = FACE;
  const placed = /** @type {Placed[]} */ ([]);
  let x = 0;
  let line = 0;
  for (const word of wordsOf(piecesOf(rounds, prompt))) {
    const widths = word.map(({ text }) => context.measureText(text).width);
    const total = widths.reduce((sum, one) => sum + one, 0);
    if (x > 0 && x + total > width) { x = 0; line += 1; }
    word.forEach((piece, i) => {
      if (x > 0 && x + widths[i] > width) { x = 0; line += 1; } // a word that is longer than a line
      placed.push({ ...piece, x, line, width: widths[i] });
      x += widths[i];
      if (piece.text.endsWith("¶")) { x = 0; line += 1; }
    });
  }
  return placed;
}

// Pieces that stand together. A token may hold several words, and a word several tokens.
/** @param {Piece[]} pieces */
function wordsOf(pieces) {
  const words = /** @type {Piece[][]} */ ([]);
  for (const piece of pieces) {
    for (const part of piece.text.match(/\n+|[^\S\n]*[^\s]+|[^\S\n]+/g) ?? []) {
      const isBreak = part.startsWith("\n");
      const last = words[words.length - 1];
      const joins = last && !/^\s/.test(part) && !last[last.length - 1].text.endsWith("¶");
      const shown = { ...piece, text: isBreak ? "¶" : part };
      if (joins) last.push(shown); else words.push([shown]);
    }
  }
  return words;
}
