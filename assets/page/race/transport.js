// Playback: the timeline with a bar for each round, the speed, and the state of the buttons.

import { element, find, findAll, shape } from "specviz/dom/dom.js";
import { draftedLanes } from "specviz/facts/lanes.js";
import { SPEEDS } from "specviz/run/timeline.js";
import { duration, plural } from "specviz/words/words.js";

const PAUSE = "M5 3.5h3.6v13H5zM11.4 3.5H15v13h-3.6z";
const PLAY = "M6 3.2v13.6L17 10z";
const AGAIN = "M10 3.2a6.8 6.8 0 1 1-6.6 8.4l2-.5A4.8 4.8 0 1 0 10 5.2v2.6L5.2 4.3 10 .8z";
const BARS = 30; // px, the height of the highest bar
const MAX_BARS = 20; // drawings while a run doubles in length
const THUMB = 8; // px: half of the range's thumb, the distance of its ends from the edges

export class Transport {
  #timeline;
  #nodes;
  #bars;
  #needSteps;
  /** @type {{ trace: Trace | null, count: number, width: number }} */
  #drawn = { trace: null, count: 0, width: 0 };
  #width = 0; // px
  #shown = /** @type {Trace | null} */ (null);

  /** @param {Needs<"root" | "timeline">} page */
  constructor({ root, timeline }) {
    this.#timeline = timeline;
    const play = find(root, "[data-play]", HTMLButtonElement);
    const scrub = find(root, "[data-scrub]", HTMLInputElement);
    const speed = find(root, "[data-speed]", HTMLSelectElement);
    const follow = find(root, "[data-follow]");
    const [passes, clock, pace] = ["position", "clock", "pace"].map((name) => find(root, `[data-${name}]`));
    const line = find(root, ".sv-timeline");
    const cross = element("i", "sv-cross", { hidden: true });
    line.append(cross);
    this.#nodes = { play, scrub, speed, follow, passes, clock, pace, line, cross };
    this.#bars = /** @type {SVGElement | null} */ (root.querySelector(".sv-timeline svg"));
    this.#needSteps = [play, scrub, ...findAll(root, "[data-slow], [data-explain]", HTMLButtonElement)];
    const sized = new ResizeObserver(([{ contentRect }]) => {
      this.#width = contentRect.width;
      if (this.#shown) this.#drawBars(this.#shown); // a paused run is not redrawn otherwise
    });
    if (this.#bars) sized.observe(this.#bars);
    speed.append(...SPEEDS.map((times) => element("option", "", `Speed ${times}×`, { value: times })));
    scrub.addEventListener("input", () => timeline.seek(Number(scrub.value)));
    speed.addEventListener("change", () => timeline.setSpeed(Number(speed.value)));
  }

  /** @param {Trace | null} trace */
  show(trace) {
    const { play, scrub, follow, pace } = this.#nodes;
    const { steps, position, isPlaying, isFollowing, isGrowing, speed } = this.#timeline;
    const isRunning = isPlaying || (isGrowing && isFollowing);
    const isAtEnd = position === steps.length && !isGrowing;
    const share = String(position / Math.max(1, steps.length));
    for (const control of this.#needSteps) control.disabled = !steps.length;
    play.setAttribute("aria-label", isRunning ? "Pause" : "Play");
    const sign = isAtEnd ? AGAIN : PLAY;
    play.querySelector("path")?.setAttribute("d", isRunning ? PAUSE : sign);
    scrub.max = String(steps.length);
    scrub.value = String(position);
    for (const bar of [scrub, this.#bars]) bar?.style.setProperty("--at", share);
    this.#nodes.speed.value = String(speed);
    follow.hidden = !isGrowing || isFollowing;
    pace.textContent = `played at ${speed}×`;
    pace.hidden = speed === 1 || isFollowing || !steps.length;
    this.#shown = trace;
    if (trace) this.#drawBars(trace);
  }

  /** The moment of the run at a position in the window, in seconds. @param {number} clientX  px */
  timeAt(clientX) {
    const { steps } = this.#timeline;
    const { left, width } = this.#nodes.line.getBoundingClientRect();
    const share = (clientX - left - THUMB) / Math.max(1, width - 2 * THUMB);
    const position = Math.round(Math.max(0, Math.min(share, 1)) * steps.length);
    return position > 0 ? steps[position - 1].time : 0;
  }

  /** Mark the moment that is pointed at; null for none. @param {number | null} time  seconds */
  cross(time) {
    const { cross } = this.#nodes;
    const { steps } = this.#timeline;
    cross.hidden = time === null || !steps.length;
    if (time === null) return;
    const after = steps.findIndex((step) => step.time > time);
    const share = (after < 0 ? steps.length : after) / Math.max(1, steps.length);
    cross.style.left = `calc(${THUMB}px + ${share} * (100% - ${2 * THUMB}px))`;
  }

  /**
   * Show the position of the playhead in figures, which change with the others.
   * @param {number} done  passes before the playhead
   * @param {Trace} trace
   */
  showPosition(done, trace) {
    const { passes, clock } = this.#nodes;
    const { steps, position, isGrowing, isFollowing } = this.#timeline;
    const end = this.#timeline.seconds();
    const now = steps[position - 1]?.time ?? 0;
    const ofTotal = isGrowing && isFollowing ? "" : ` of ${duration(end, end)}`; // unknown in a live run
    passes.textContent = `${done} / ${plural(trace.rounds.length, "pass")}`;
    clock.textContent = steps.length ? `${duration(now, end)}${ofTotal}` : "";
  }

  // A bar for each round of the first lane with drafts, at the position of its steps. Its height is the
  // number of emitted tokens.
  /** @param {Trace} trace */
  #drawBars(trace) {
    const { steps } = this.#timeline;
    const width = this.#width;
    const { count, trace: before, width: old } = this.#drawn;
    // A live run gets more steps in each frame than can be seen.
    const minSteps = this.#timeline.isGrowing ? steps.length / MAX_BARS : 1;
    const isDrawn = before === trace && steps.length - count < minSteps && old === width;
    if (!this.#bars || !width || isDrawn) return;
    this.#drawn = { trace, count: steps.length, width };
    const [name] = draftedLanes(trace.header);
    const maxTokens = Math.max(2, ...steps.map(({ round }) => round.emitted.length));
    const length = Math.max(1, steps.length);
    const x = (/** @type {number} */ i) => THUMB + (i / length) * (width - 2 * THUMB);
    let path = "";
    let begun = -1;
    steps.forEach(({ round, done }, i) => {
      if (round.lane !== name) return;
      if (begun < 0) begun = i;
      if (!done) return;
      const from = x(begun);
      const to = Math.max(from + 1, x(i + 1) - 1.5);
      const high = (BARS * round.emitted.length) / maxTokens;
      path += `M${from.toFixed(1)} ${BARS}v${-high.toFixed(1)}H${to.toFixed(1)}V${BARS}z`;
      begun = -1;
    });
    const paths = ["is-all", "is-done"].map((kind) => shape("path", { class: kind, d: path }));
    this.#bars.replaceChildren(...paths);
  }
}
