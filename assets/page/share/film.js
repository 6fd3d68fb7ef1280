// A run as a short film: both lanes race again on a canvas, which the browser records.

import { raceOfTwo } from "specviz/charts/lines.js";
import { pause } from "specviz/dom/dom.js";
import { HEIGHT, paint, sceneOf, WIDTH } from "specviz/share/film-scene.js";
import { Painting } from "specviz/share/paint.js";

const SCALE = 0.75; // px of the film per px of the scene, so that a slow machine keeps up
const RACE = 10; // seconds of the race
const HOLD = 2; // seconds of its end
const RATE = 15; // pictures per second
const MAX_STEP = 0.2; // seconds between two pictures, so that a delayed page does not jump
const DRAIN = 300; // ms between checks whether everything is encoded
const DRAINS = 60; // the most checks
const LITTLE = 1000; // bytes; less than a picture that differs from the previous one
const BITS = 3_000_000; // per second
const HEAD = 4096; // bytes with the film's header
// Ids of elements of a WebM file.
const INFO = [0x15, 0x49, 0xa9, 0x66];
const DURATION = [0x44, 0x89];
// H.264 in MP4 plays in slides and on phones; MP4 with other codecs plays in fewer places than WebM.
const TYPES = [
  "video/mp4;codecs=avc1.42E01E",
  "video/mp4;codecs=avc1",
  "video/webm;codecs=vp8",
  "video/webm",
  "video/mp4",
];

/** The suffix of a film of this type. @param {string} type */
export const suffixOf = (type) => (type.startsWith("video/mp4") ? "mp4" : "webm");

/** The kind of film that this browser can record; null if it cannot. */
export function filmType() {
  const canRecord = "MediaRecorder" in globalThis && "captureStream" in HTMLCanvasElement.prototype;
  return canRecord ? TYPES.find((type) => MediaRecorder.isTypeSupported(type)) ?? null : null;
}

/**
 * Record the film of a run in real time; null if it was cancelled.
 * @param {Trace} trace
 * @param {{ progress: (share: number) => void, signal: AbortSignal }} parts
 * @returns {Promise<Blob | null>}
 */
export async function filmOf(trace, { progress, signal }) {
  const type = filmType();
  if (!type) throw new Error("this browser records no canvas");
  const sheet = new Painting(SCALE * WIDTH, SCALE * HEIGHT);
  const scene = sceneOf(sheet, raceOfTwo(trace), RACE);
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
 * A WebM film with its duration, so that players can seek in it: while recording, a browser writes a wrong
 * duration or none. The element is inside the element Info (Matroska, RFC 9559).
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

// Wait until the browser has encoded all pictures: on a busy machine it is seconds behind, and the end would
// be missing.
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

// Call `show` with the elapsed share of the film until it is over or cancelled. In a hidden tab, whose timers
// are slowed down, the film waits.
/** @type {(recorder: MediaRecorder, signal: AbortSignal, show: (share: number) => void) => Promise<void>} */
function play(recorder, signal, show) {
  return new Promise((/** @type {(value?: undefined) => void} */ resolve) => {
    let over = 0;
    let last = performance.now();
    const timer = setInterval(() => {
      const now = performance.now();
      const passed = Math.min(MAX_STEP, (now - last) / 1000);
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
