// Playback: the scrubber, the speed, and what the buttons show.

import { element, find, findAll } from "specviz/dom/dom.js";
import { SPEEDS } from "specviz/run/timeline.js";

/** @import { Timeline } from "specviz/run/timeline.js" */

const PAUSE = "M3.5 2.5h3v11h-3zM9.5 2.5h3v11h-3z", PLAY = "M4 2.5v11l9-5.5z";

export class Transport {
  #timeline;
  #play;
  #scrub;
  #speed;
  #follow;
  #passes;
  #pace;
  #needEvents;

  /**
   * @param {HTMLElement} root
   * @param {Timeline} timeline
   */
  constructor(root, timeline) {
    this.#timeline = timeline;
    this.#play = find(root, "[data-play]", HTMLButtonElement);
    this.#scrub = find(root, "[data-scrub]", HTMLInputElement);
    this.#speed = find(root, "[data-speed]", HTMLSelectElement);
    this.#follow = find(root, "[data-follow]");
    this.#passes = find(root, "[data-position]");
    this.#pace = find(root, "[data-pace]");
    this.#needEvents = [this.#play, this.#scrub,
      ...findAll(root, "[data-step], [data-restart], [data-explain], [data-compare]", HTMLButtonElement)];
    for (const times of SPEEDS) {
      const option = element("option", "", `${times}×`);
      option.value = String(times);
      this.#speed.append(option);
    }
    this.#scrub.addEventListener("input", () => timeline.seek(Number(this.#scrub.value)));
    this.#speed.addEventListener("change", () => timeline.setSpeed(Number(this.#speed.value)));
  }

  /**
   * @param {number} done passes before the playhead
   * @param {number} all passes of the run so far
   */
  show(done, all) {
    const { events, position, playing, following, live, speed } = this.#timeline;
    const isRunning = playing || (live && following);
    for (const control of this.#needEvents) control.disabled = !events.length;
    this.#play.setAttribute("aria-label", isRunning ? "Pause" : "Play");
    this.#play.querySelector("path")?.setAttribute("d", isRunning ? PAUSE : PLAY);
    this.#scrub.max = String(events.length);
    this.#scrub.value = String(position);
    this.#scrub.style.setProperty("--at", `${(100 * position) / Math.max(1, events.length)}%`);
    this.#speed.value = String(speed);
    this.#follow.hidden = !live || following;
    this.#passes.textContent = `${done} / ${all} ${all === 1 ? "pass" : "passes"}`;
    this.#pace.textContent = `played at ${speed}×`;
    this.#pace.hidden = speed === 1 || following || !events.length;
  }
}
