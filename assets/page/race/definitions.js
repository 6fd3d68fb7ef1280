// What the words and letters of the page mean, each in one sentence: on hover, focus and tap. Captions name
// their word in `data-define`. The items of the legend fill the tokens that they count.

import { closest, element, find } from "specviz/dom/dom.js";

const CAPTION = "[data-define]";
const GAP = 8; // px between a caption and its sentence
const EDGE = 8; // px between the sentence and the window

/** By the name that a caption has in `data-define`. @type {Record<string, string>} */
export const TERMS = {
  target: "Target: the large model whose text this is. It writes alone in one lane, and judges every guess "
    + "in the other.",
  draft: "Draft: a quick helper, often a small model, that guesses the next tokens. The target judges them.",
  pass: "Pass: the target reads once, with all its weights. Alone it writes one token per pass; "
    + "with guesses to judge, several.",
  gamma: "γ, gamma: how many tokens are guessed before each pass, at most.",
  alpha: "α, alpha: of the guesses that the target judged, the share that it accepted.",
  tau: "τ, tau: tokens written per pass of the target, on average. The target alone has 1.",
  beta: "β, beta: the chance that a guess at this place is accepted, as far as draft and target agree there.",
  c: "c: what one guess costs, in passes of the target alone over one token.",
  speed: "Tokens written, by the seconds of the lane’s own clock.",
  progress: "Tokens that each lane has written, against the seconds of its own clock. "
    + "The steeper, the faster.",
  accepted: "Accepted: a guess that the target judged and kept.",
  rejected: "Rejected: a guess that the target judged and refused.",
  ignored: "Ignored: guessed after a rejected one, or cut by the end of the text, and so never judged.",
  corrected: "Corrected: the target’s own token in the place of a rejected guess.",
  bonus: "Bonus: one token more from the same pass, since every guess before it was accepted.",
  own: "No guess: written by the target in a round without a guess, so one pass for one token.",
  untold: "Untold: ends a pass of a server that does not tell what it guessed: a correction or a bonus.",
};

// The six words with which the page can be read, in the order in which they are needed.
const GLOSSARY = ["target", "draft", "pass", "gamma", "alpha", "tau"];

/**
 * A caption that says what it means.
 * @param {string} term  a name in `TERMS`
 * @param {...import("specviz/dom/dom.js").Content} content
 */
export const defined = (term, ...content) =>
  element("button", "sv-term", ...content, { dataset: { define: term } });

export class Definitions {
  #root;
  #sentence = element("p", "sv-definition", { id: "sv-definition", role: "tooltip", hidden: true });
  #caption = /** @type {HTMLElement | null} */ (null); // whose sentence is shown
  #top = 0; // px: of the caption in the window, when its sentence was put beside it

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
    // On a phone the window itself scrolls, of which no element hears.
    document.addEventListener("scroll", () => this.#closeIfMoved(), { capture: true, passive: true });
  }

  /** Whether a sentence was shown. */
  close() {
    const wasOpen = this.#caption !== null;
    this.#caption?.removeAttribute("aria-describedby");
    this.#caption = null;
    this.#sentence.hidden = true;
    return wasOpen;
  }

  // A lane that follows its text scrolls too, and moves no caption.
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
    // A dialog lies over the rest of the page: the sentence belongs into it.
    (caption.closest("dialog") ?? this.#root).append(this.#sentence);
    this.#sentence.textContent = sentence;
    this.#sentence.hidden = false;
    caption.setAttribute("aria-describedby", this.#sentence.id);
    this.#caption = caption;
    this.#putBeside(caption);
  }

  /**
   * Above its caption, so that it hides no figure and no finger hides it; below it where there is no room.
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

/** The word, and what it means. @param {string} term */
function glossaryLine(term) {
  const [word, ...meaning] = TERMS[term].split(": ");
  return element("div", "", element("dt", "", word), element("dd", "", meaning.join(": ")));
}

/**
 * Have the items of the legend fill the tokens that they count.
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
  // A tap gives a button no focus in every browser; the next one elsewhere takes the colour away.
  document.addEventListener("click", (event) => fill(outcomeAt(event)));
}

/** The outcome whose item an event happened in. @param {Event} event */
function outcomeAt(event) {
  const count = closest(event, ".sv-legend li")?.querySelector("[data-count]");
  return count instanceof HTMLElement ? count.dataset.count : undefined;
}
