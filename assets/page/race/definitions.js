// The definitions of the page's terms, one sentence or two each: on hover, focus and tap. A caption names
// its term in `data-define`. The items of the legend highlight the tokens that they count.

import { closest, element, find } from "specviz/dom/dom.js";

const CAPTION = "[data-define]";
const GAP = 8; // px between a caption and its sentence
const EDGE = 8; // px between the sentence and the window

/** By the name that a caption has in `data-define`. @type {Record<string, string>} */
export const TERMS = {
  target: "Target: the large model that decides the text. It writes alone in one lane and judges every "
    + "guess in the other.",
  draft: "Draft: a fast helper, often a small model, that guesses the next tokens. The target judges them.",
  pass: "Pass: one run of the target, which reads all its weights. Alone it writes one token per pass; "
    + "with guesses to judge, it can write several.",
  gamma: "γ, gamma: the most tokens that are guessed before each pass.",
  alpha: "α, alpha: the share of the judged guesses that the target accepted.",
  tau: "τ, tau: tokens written per pass of the target, on average. For the target alone it is 1.",
  beta: "β, beta: the probability that a guess at this position is accepted. "
    + "It is high where draft and target agree.",
  c: "c: the cost of one guess, in one-token passes of the target.",
  speed: "Tokens written per second of the lane’s own clock.",
  progress: "Tokens that each lane has written, over the seconds of its own clock. "
    + "A steeper line is faster.",
  accepted: "Accepted: a guess that the target judged and kept.",
  rejected: "Rejected: a guess that the target judged and did not keep.",
  ignored: "Ignored: a guess after a rejected one or after the end of the text, so it was never judged.",
  corrected: "Corrected: the target’s own token, written instead of a rejected guess.",
  bonus: "Bonus: one extra token from the same pass, because every guess before it was accepted.",
  own: "No guess: the target’s token of a round without guesses, so one pass wrote one token.",
  untold: "Untold: the last token of a server’s pass, a correction or a bonus. "
    + "The server does not report which.",
};

// The six terms that a reader of the page needs, in the order in which they come up.
const GLOSSARY = ["target", "draft", "pass", "gamma", "alpha", "tau"];

/**
 * A caption with a definition.
 * @param {string} term  a name in `TERMS`
 * @param {...import("specviz/dom/dom.js").Content} content
 */
export const defined = (term, ...content) =>
  element("button", "sv-term", ...content, { dataset: { define: term } });

export class Definitions {
  #root;
  #sentence = element("p", "sv-definition", { id: "sv-definition", role: "tooltip", hidden: true });
  #caption = /** @type {HTMLElement | null} */ (null); // whose sentence is shown
  #top = 0; // px: of the caption in the window, when its sentence was placed

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
    root.append(this.#sentence);
    find(root, "[data-glossary]").append(...GLOSSARY.map(glossaryLine));
    root.addEventListener("pointerover", (event) => {
      if (event.pointerType !== "mouse") return; // a tap is a click
      const caption = closest(event, CAPTION);
      if (caption) this.#open(caption);
      else if (!this.#caption?.matches(":focus-visible")) this.close();
    });
    root.addEventListener("pointerleave", () => this.close());
    root.addEventListener("focusin", (event) => this.#openAt(event));
    root.addEventListener("focusout", () => this.close());
    root.addEventListener("click", (event) => this.#openAt(event));
    // On a phone the window itself scrolls, and elements get no event.
    document.addEventListener("scroll", () => this.#closeIfMoved(), { capture: true, passive: true });
  }

  /** Hide the definition, and return whether one was shown. */
  close() {
    const wasOpen = this.#caption !== null;
    this.#caption?.removeAttribute("aria-describedby");
    this.#caption = null;
    this.#sentence.hidden = true;
    return wasOpen;
  }

  // A lane that follows its text also scrolls, but moves no caption.
  #closeIfMoved() {
    if (this.#caption && Math.abs(this.#caption.getBoundingClientRect().top - this.#top) >= 1) this.close();
  }

  /** @param {Event} event */
  #openAt(event) {
    const caption = closest(event, CAPTION);
    if (caption) this.#open(caption);
    else this.close();
  }

  /** @param {HTMLElement} caption */
  #open(caption) {
    if (caption === this.#caption) return;
    this.close();
    const sentence = TERMS[caption.dataset.define ?? ""];
    if (!sentence) return;
    // A dialog is above the rest of the page, so the sentence must be inside it.
    (caption.closest("dialog") ?? this.#root).append(this.#sentence);
    this.#sentence.textContent = sentence;
    this.#sentence.hidden = false;
    caption.setAttribute("aria-describedby", this.#sentence.id);
    this.#caption = caption;
    this.#putBeside(caption);
  }

  /**
   * Put the sentence above its caption, where it hides no figure and no finger hides it, or below if there
   * is no room.
   * @param {HTMLElement} caption
   */
  #putBeside(caption) {
    const { left, top, bottom } = caption.getBoundingClientRect();
    this.#top = top;
    const { offsetWidth: width, offsetHeight: height } = this.#sentence;
    const x = Math.max(EDGE, Math.min(left, innerWidth - width - EDGE));
    const above = top - height - GAP;
    const y = above >= EDGE ? above : bottom + GAP;
    this.#sentence.style.transform = `translate(${x}px, ${y}px)`;
  }
}

/** A term and its meaning. @param {string} term */
function glossaryLine(term) {
  const [word, ...meaning] = TERMS[term].split(": ");
  return element("div", "", element("dt", "", word), element("dd", "", meaning.join(": ")));
}

/**
 * Make the items of the legend highlight the tokens that they count.
 * @param {HTMLElement} root
 */
export function listenToLegend(root) {
  const legend = find(root, ".sv-legend");
  const fill = (/** @type {string | undefined} */ outcome) => {
    if (outcome) root.dataset.filled = outcome;
    else delete root.dataset.filled;
  };
  legend.addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse") fill(outcomeAt(event));
  });
  legend.addEventListener("pointerleave", () => fill(undefined));
  legend.addEventListener("focusin", (event) => fill(outcomeAt(event)));
  legend.addEventListener("focusout", () => fill(undefined));
  // Some browsers do not focus a tapped button, so the next tap elsewhere removes the highlight.
  document.addEventListener("click", (event) => fill(outcomeAt(event)));
}

/** The outcome whose item an event happened in. @param {Event} event */
function outcomeAt(event) {
  const count = closest(event, ".sv-legend li")?.querySelector("[data-count]");
  return count instanceof HTMLElement ? count.dataset.count : undefined;
}
