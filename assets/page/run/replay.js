// After a live run that was faster than the eye, the same run slowly, by itself.

import { isStill } from "specviz/dom/dom.js";
import { readableSpeed } from "specviz/run/timeline.js";

const READ_AFTER = 2600; // ms for which the result stands before it is played again
const FAST = 5; // seconds: whoever watched a longer run has seen it
const MEANT = ["pointerdown", "keydown", "wheel", "touchstart"]; // a visitor who does something

export class SlowReplay {
  #timeline;
  #waiting = 0; // timer

  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.#timeline = timeline;
    for (const name of MEANT) addEventListener(name, () => this.cancel(), { capture: true, passive: true });
  }

  /** The live run has ended, well. */
  offer() {
    this.cancel();
    const seconds = this.#timeline.seconds();
    if (isStill() || !seconds || seconds > FAST) return;
    this.#waiting = setTimeout(() => {
      this.#timeline.setSpeed(readableSpeed(seconds));
      this.#timeline.restart();
    }, READ_AFTER);
  }

  cancel() {
    clearTimeout(this.#waiting);
  }
}
