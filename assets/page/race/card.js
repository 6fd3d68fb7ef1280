// The card that explains a token's verdict; it follows hover, focus and tap.

import { ruleOf } from "specviz/facts/lanes.js";
import { closest, element, find } from "specviz/dom/dom.js";
import { isUnguessed, isUnseen, tokensOf } from "specviz/race/token.js";
import { isSpecial } from "specviz/words/markdown.js";
import { chance, isDrawn, keep, number, reasonBy, SERVER_DREW } from "specviz/words/reasons.js";
import { verdictKind } from "specviz/facts/vocabulary.js";
import { TERMS } from "specviz/race/definitions.js";
import { watchedReason } from "specviz/words/watched.js";
import { visible } from "specviz/words/words.js";

const GAP = 10; // px between token and card
const EDGE = 8; // px between card and window
const TOKEN = "[data-lane] .t[data-index]";
const REST = "[data-lane] .t[data-of]"; // the rest of a token, in another row
const GREEDY = "Greedy: the verdict compares first choices only. The bars show each model’s softmax at "
  + "temperature 1. Every verdict rule accepts the same guesses here.";

const AS_USED = "Probabilities after temperature, top-k and top-p. Step by step (E) explains the round.";

export class Card {
  #page;
  #card;
  #anchor = /** @type {HTMLElement | null} */ (null); // the token that the card is about
  #isPinned = false; // by a click: it stays open until another click, or Escape

  /** @param {Needs<"root" | "shownRun">} page */
  constructor(page) {
    const { root } = page;
    this.#page = page;
    this.#card = find(root, ".sv-card");
    for (const type of ["pointerover", "focusin", "click"]) {
      root.addEventListener(type, (event) => this.hear(event));
    }
    root.addEventListener("pointerleave", () => { if (!this.#isPinned) this.close(); });
    root.addEventListener("focusout", () => this.close());
    root.addEventListener("scroll", () => this.#move(), { capture: true, passive: true });
  }

  /** Handle a hover, a focus by Tab, or a click. @param {Event} event */
  hear(event) {
    if (event.type === "focusin") {
      if (this.#openAt(event)) this.#expand(true);
    } else if (event.type === "click") this.#press(event);
    else if (!this.#isPinned) {
      if (tokenAt(event)) this.#openAt(event);
      else if (this.#anchor && !this.#anchor.matches(":focus-visible")) this.close();
    }
  }

  /** A click on a token opens, pins and expands the card; any other click closes it. @param {Event} event */
  #press(event) {
    const isOnToken = this.#openAt(event);
    if (!isOnToken) this.close();
    this.#isPinned = isOnToken;
    this.#expand(isOnToken);
  }

  /** Close the card, and return whether it was open. */
  close() {
    const wasOpen = this.#anchor !== null;
    this.#anchor?.removeAttribute("aria-describedby");
    this.#anchor = null;
    this.#isPinned = false;
    this.#card.hidden = true;
    return wasOpen;
  }

  /** @param {boolean} isWhole  whether it shows more than a sentence and two bars */
  #expand(isWhole) {
    this.#card.classList.toggle("is-whole", isWhole);
    if (this.#anchor) this.#putBeside(this.#anchor);
  }

  /** Close the card if its token has been removed. */
  refresh() {
    if (this.#anchor && !this.#anchor.isConnected) this.close();
  }

  /** Open the card of the token under the event, and return whether there is one. @param {Event} event */
  #openAt(event) {
    const node = tokenAt(event);
    if (node && node !== this.#anchor) this.#open(node);
    return node !== null;
  }

  /** @param {HTMLElement} node */
  #open(node) {
    this.close();
    const { trace } = this.#page.shownRun;
    const index = Number(node.dataset.round);
    const article = node.closest("[data-lane]");
    const lane = article?.getAttribute("data-lane");
    const round = trace?.rounds.find((other) => other.index === index && other.lane === lane);
    if (!article || !round) return;
    // A round may be spread over two blocks.
    const tokens = [...article.querySelectorAll(`[data-round="${index}"][data-index]`)];
    const position = tokens.indexOf(node);
    const endReason = trace?.end?.reasons[round.lane];
    const isPending = node.dataset.outcome === undefined;
    const settings = trace?.header.lanes[round.lane] ?? trace?.header.settings;
    const rule = settings ? ruleOf(settings) : "token";
    const at = { round, position, endReason };
    this.#card.replaceChildren(...(trace?.header.source ? watchedContent(at) : content(at, isPending, rule)));
    this.#card.classList.remove("is-whole");
    this.#card.classList.toggle("is-wide", this.#card.querySelectorAll("ol").length > 2);
    this.#card.hidden = false;
    this.#anchor = node;
    node.setAttribute("aria-describedby", this.#card.id);
    this.#putBeside(node);
  }

  /** Keep the card at its token: focus may have scrolled the token into view. */
  #move() {
    const anchor = this.#anchor;
    if (anchor && (this.#isPinned || anchor.matches(":focus-visible"))) this.#putBeside(anchor);
    else this.close();
  }

  /** @param {HTMLElement} node */
  #putBeside(node) {
    const at = node.getClientRects()[0] ?? node.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.#card;
    const edge = node.closest("[data-lane]")?.getBoundingClientRect().left ?? EDGE; // never over the headline
    const left = Math.min(Math.max(edge, at.left - 24), innerWidth - width - EDGE);
    const below = at.bottom + GAP;
    const fits = below + height < innerHeight - EDGE;
    const top = fits ? below : Math.max(EDGE, at.top - height - GAP);
    this.#card.style.transform = `translate(${left}px, ${top}px)`;
  }
}

/**
 * The token that an event happened in or on, if there is one.
 * @type {(event: Event) => HTMLElement | null}
 */
function tokenAt(event) {
  const rest = closest(event, REST);
  if (!rest) return closest(event, TOKEN);
  return rest.closest("[data-lane]")?.querySelector(`.t[data-index="${rest.dataset.of}"]`) ?? null;
}

/** @type {(at: Place, isPending: boolean, rule: string) => HTMLElement[]} */
function content(at, isPending, rule) {
  const { round, position } = at;
  const judged = tokensOf(round)[position];
  const token = isPending ? asGuess(judged) : judged;
  const where = round.lane === "baseline" ? `pass ${round.index + 1}` : standing(token, round, position);
  const id = isSpecial(token.text) ? `, id ${token.id}` : "";
  /** @type {HTMLElement[]} */
  const parts = [
    titleOf(token, round, visible(token.text), `${where}${id}`),
    element("p", "sv-card-reason", reasonBy(rule, token, at)),
    ...guessesAfter(at),
    two(token),
    numbers(token, rule),
    lists(token, rule),
  ];
  const { exact, warning } = verdictKind(rule);
  if (!exact) parts.push(element("p", "sv-inexact", warning));
  const note = (/** @type {string} */ text) => element("small", "sv-card-note", text);
  if (isGreedy(token)) parts.push(note(GREEDY));
  else if (token.p !== undefined) parts.push(note(isDrawn(token) ? `${SERVER_DREW} ${AS_USED}` : AS_USED));
  if (betaOf(token) !== null) parts.push(note(TERMS.beta));
  return parts;
}

// The guesses after a rejected one, which are hidden where only the text is shown.
/** @type {(at: Place) => HTMLElement[]} */
function guessesAfter({ round, position }) {
  const { drafted } = round;
  if (drafted[position]?.outcome !== "rejected" || position === drafted.length - 1) return [];
  const words = drafted.slice(position + 1).map(({ text }) => visible(text)).join(" ");
  return [element("p", "sv-card-unseen", `Guessed after it, but never judged: ${words}`)];
}

/** The content for a token of a watched server: no numbers. @param {Place} at */
function watchedContent(at) {
  const { round, position } = at;
  const token = tokensOf(round)[position];
  const word = isUnseen(token) ? "?" : visible(token.text);
  return [
    titleOf(token, round, word, watchedStanding(token, round, position)),
    element("p", "sv-card-reason", watchedReason(token, at)),
  ];
}

/**
 * The position of such a token, in words.
 * @type {(token: Token, round: Round, position: number) => string}
 */
function watchedStanding(token, round, position) {
  if (round.lane === "baseline") return `step ${round.index + 1}`;
  if (token.outcome === "untold") return `end of step ${round.index + 1}`;
  return standing(token, round, position);
}

/**
 * @type {(token: ShownToken, round: Round, word: string, where: string) => HTMLParagraphElement}
 */
function titleOf(token, round, word, where) {
  const marked = element("b", `t ${token.outcome}`, element("span", "w", word));
  marked.classList.toggle("own", isUnguessed(token, round));
  return element("p", "sv-card-title", marked, element("small", "", where));
}

/**
 * The outcome and the position of a token: a corrected one has the position of the rejected one.
 * @param {ShownToken} token
 * @param {Round} round
 * @param {number} position  among the drafted tokens, followed by the target's token
 */
function standing(token, round, position) {
  const number = `round ${round.index + 1}`;
  if (isUnguessed(token, round)) return `no guess in ${number}`;
  const rejected = round.drafted.findIndex((other) => other.outcome === "rejected");
  const at = token.outcome === "corrected" && rejected >= 0 ? rejected : position;
  return `${token.outcome} in ${number}, position ${at + 1}`;
}

/** The beta of a judged position; null where both models are greedy. @param {ShownToken} token */
const betaOf = (token) => (isGreedy(token) ? null : token.chance ?? token.beta ?? null);

/** @param {ShownToken} token */
const isGreedy = (token) => token.soft_q !== undefined || token.soft_p !== undefined;

// A draft without the numbers of its verdict.
/** @type {(token: Token) => ShownToken} */
function asGuess({ id, text, q, soft_q, top_q, seen }) {
  return { id, text, q, soft_q, top_q, seen, outcome: "pending" };
}

/** Both models' probabilities of the token, as two bars. @param {ShownToken} token */
function two(token) {
  /** @type {[string, string, number | undefined][]} */
  const rows = [["draft", "is-draft", token.soft_q ?? token.q], ["target", "", token.soft_p ?? token.p]];
  return element("ol", "sv-card-two", ...rows.flatMap(([text, name, probability]) =>
    (probability == null ? [] : [bar({ text, probability }, name)])));
}

/** @type {(token: ShownToken, rule: string) => HTMLDListElement} */
function numbers(token, rule) {
  const isByRatio = rule === "token" && token.p != null && token.outcome !== "corrected";
  /** @type {[string, number | null | undefined][]} */
  const rows = [
    ["target p", token.p],
    ["draft q", token.q],
    ["min(1, p/q)", isByRatio ? keep(token) : null],
    ["weight", token.weight],
    ["threshold", token.threshold],
    ["draw u", isGreedy(token) ? null : token.u],
    ["β", betaOf(token)],
    ["target, T = 1", token.soft_p],
    ["draft, T = 1", token.soft_q],
  ];
  return element("dl", "sv-card-numbers", ...rows.flatMap(([name, value]) =>
    (value == null ? [] : [element("div", "", element("dt", "", name), element("dd", "", number(value)))])));
}

// Bars of the likeliest tokens; this token is added if it is not among them.
/** @type {(token: ShownToken, rule: string) => HTMLDivElement} */
function lists(token, rule) {
  /** @type {[string, Choice[] | undefined, number | undefined][]} */
  const named = [
    ["draft q", token.top_q, token.soft_q ?? token.q],
    ["target p", token.top_p, token.soft_p ?? token.p],
    [verdictKind(rule).left || "residual", token.top_residual, undefined],
  ];
  return element("div", "sv-card-lists", ...named.flatMap(([name, choices, probability]) => {
    if (!choices?.length) return [];
    const isListed = probability == null || choices.some((choice) => choice.id === token.id);
    const entries = isListed ? choices : [...choices, { id: token.id, text: token.text, probability }];
    const bars = entries.map((choice) => bar(choice, choice.id === token.id ? "is-this" : ""));
    const list = element("ol", name === "draft q" ? "is-draft" : "is-target", ...bars);
    return [element("div", "", element("small", "", name), list)];
  }));
}

/** @type {(choice: Pick<Choice, "text" | "probability">, className: string) => HTMLLIElement} */
function bar({ text, probability }, className) {
  const filled = element("i", "", { style: { width: `${100 * probability}%` } });
  return element(
    "li",
    className,
    element("span", "sv-card-word", visible(text)),
    element("span", "sv-card-track", filled),
    element("span", "", chance(probability)),
  );
}
