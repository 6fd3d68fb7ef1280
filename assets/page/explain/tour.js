// The tour: six stops of one sentence each, beside what they speak of, while the recording plays.
// It is offered once to a first visitor, in the row of playback where it covers nothing.

import { element, find } from "specviz/dom/dom.js";

/** @import { Timeline } from "specviz/run/timeline.js" */

const KEY = "specviz-tour";
const GAP = 12; // px between the sentence and what it speaks of
const EDGE = 10; // px to the window's edge
/** @type {[string, string][]} what a stop is about, and what it says */
const STOPS = [
  ["[data-lane]:not([data-lane=baseline])", "A small model, the draft, guesses a few tokens ahead; one pass of the big target "
    + "judges them all."],
  [".sv-legend", "Guesses are kept until one is refused; then, or when all were kept, the target adds a token of its own."],
  ["[data-lane=baseline]", "The same target writes alone here, on the same clock: one pass, one token."],
  [".sv-ratio", "The ratio of their speeds is measured, and it is shown just as plainly when the draft loses."],
  ["[data-explain]", "Point at a token to see why it was kept or refused, or let Explain go through its round step by step."],
  ["#run", "Press Run to see it live, on this machine and with your own prompt."],
];

export class Tour {
  #root;
  #timeline;
  #offer = element("span", "sv-offer");
  #stop = element("div", "sv-stop");
  #place = -1; // of the stop that is shown
  /** @type {Element | null} */
  #marked = null; // what the stop is about

  /**
   * @param {HTMLElement} root
   * @param {Timeline} timeline
   */
  constructor(root, timeline) {
    this.#root = root;
    this.#timeline = timeline;
    this.#offer.append("New here? ", button("Take the tour", () => this.start()), button("Skip", () => this.#end()));
    this.#stop.setAttribute("role", "dialog");
    this.#stop.addEventListener("keydown", (event) => this.#key(event));
    addEventListener("resize", () => this.#put());
    document.addEventListener("scroll", () => this.#put(), { capture: true, passive: true });
  }

  /**
   * Offer it to whoever has not seen it, unless the link already says what to look at.
   * @param {Asked} asked
   */
  open(asked) {
    if (asked.tour) this.start();
    else if (!namesRun(asked) && !wasSeen()) find(this.#root, ".sv-transport").append(this.#offer);
  }

  start() {
    this.#offer.remove();
    if (document.body.classList.contains("sv-stage")) return;
    this.#root.append(this.#stop);
    if (this.#timeline.events.length === this.#timeline.position) this.#timeline.restart();
    this.#show(0);
  }

  /** @param {number} place */
  #show(place) {
    if (place >= STOPS.length) {
      this.#end();
      return;
    }
    this.#place = Math.max(0, place);
    const [selector, sentence] = STOPS[this.#place];
    const said = element("p", "", sentence);
    said.id = "sv-stop-said";
    const row = element("div");
    const next = button(this.#place === STOPS.length - 1 ? "Done" : "Next", () => this.#show(this.#place + 1));
    row.append(element("small", "", `${this.#place + 1} of ${STOPS.length}`), button("Skip", () => this.#end()), next);
    this.#stop.setAttribute("aria-label", `Tour, ${this.#place + 1} of ${STOPS.length}`);
    this.#stop.setAttribute("aria-describedby", said.id);
    this.#stop.replaceChildren(said, row);
    this.#mark(document.querySelector(selector));
    next.focus({ preventScroll: true });
  }

  /** @param {Element | null} node */
  #mark(node) {
    this.#marked?.classList.remove("sv-toured");
    this.#marked = node;
    node?.classList.add("sv-toured");
    node?.scrollIntoView({ block: "nearest" });
    this.#put();
  }

  /** Below what it speaks of, above where there is no room, or at the foot of what is high: its text stays to be read. */
  #put() {
    if (!this.#marked || !this.#stop.isConnected) return;
    const at = this.#marked.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.#stop;
    const below = at.bottom + GAP;
    const isHigh = at.height > 2 * height + GAP, foot = Math.min(at.bottom, innerHeight) - height - GAP;
    const top = isHigh ? foot : below + height < innerHeight - EDGE ? below : at.top - height - GAP;
    const left = Math.min(Math.max(EDGE, at.left + (isHigh ? GAP : 0)), innerWidth - width - EDGE);
    this.#stop.style.transform = `translate(${left}px, ${Math.max(EDGE, top)}px)`;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === "Escape") this.#end();
    else if (event.key === "ArrowRight") this.#show(this.#place + 1);
    else if (event.key === "ArrowLeft") this.#show(this.#place - 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #end() {
    this.#mark(null);
    const hadFocus = [this.#stop, this.#offer].some((node) => node.contains(document.activeElement));
    this.#stop.remove();
    this.#offer.remove();
    if (hadFocus) find(this.#root, "[data-play]").focus({ preventScroll: true });
    try {
      localStorage.setItem(KEY, "seen");
    } catch { /* then it is offered again */ }
  }
}

/**
 * @param {string} text
 * @param {() => void} act
 */
function button(text, act) {
  const node = element("button", "", text);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

/** @param {Asked} asked */
const namesRun = ({ preset, prompt, recording, stage, settings }) =>
  Boolean(preset ?? prompt ?? recording) || stage || Object.keys(settings).length > 0;

function wasSeen() {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    return true; // where nothing can be remembered it would be offered for ever
  }
}
