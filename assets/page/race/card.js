// The card that says why a token got its verdict; follows hover, focus and tap.

import { ruleOf } from "specviz/facts/lanes.js";
import { closest, element, find } from "specviz/dom/dom.js";
import { isOwn, isUnseen, tokensOf } from "specviz/race/token.js";
import { isSpecial } from "specviz/words/markdown.js";
import { chance, isDrawn, keep, number, reasonBy, SERVER_DREW } from "specviz/words/reasons.js";
import { verdictKind } from "specviz/facts/vocabulary.js";
import { TERMS } from "specviz/race/definitions.js";
import { watchedReason } from "specviz/words/watched.js";
import { visible } from "specviz/words/words.js";

const GAP = 10; // px between token and card
const EDGE = 8; // px between card and window
const TOKEN = "[data-lane] .t[data-index]";
const REST = "[data-lane] .t[data-of]"; // of a token that goes on in another row
const GREEDY = "Greedy: the verdict compares first choices only. The bars are the models’ own softmax "
  + "at temperature 1. Every verdict accepts the same guesses here.";

const AS_USED = "Chances after temperature, top-k and top-p. Step by step (E) goes through the round.";

export class Card {
  #page;
  #card;
  #anchor = /** @type {HTMLElement | null} */ (null); // the token that the card is about
  #isPinned = false; // by a click: it stays until another one, or Escape

  /** @param {Needs<"root" | "session">} page */
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

  /** Somebody points at something, goes there by Tab, or presses it. @param {Event} event */
  hear(event) {
    if (event.type === "focusin") {
      if (this.#openAt(event)) this.#tellAll(true);
    } else if (event.type === "click") this.#press(event);
    else if (!this.#isPinned) {
      if (tokenAt(event)) this.#openAt(event);
      else if (this.#anchor && !this.#anchor.matches(":focus-visible")) this.close();
    }
  }

  /** On a token it opens, pins and tells all; beside one it closes. @param {Event} event */
  #press(event) {
    const isOnToken = this.#openAt(event);
    if (!isOnToken) this.close();
    this.#isPinned = isOnToken;
    this.#tellAll(isOnToken);
  }

  /** Whether it was open. */
  close() {
    const wasOpen = this.#anchor !== null;
    this.#anchor?.removeAttribute("aria-describedby");
    this.#anchor = null;
    this.#isPinned = false;
    this.#card.hidden = true;
    return wasOpen;
  }

  /** @param {boolean} isWhole  whether more is told than a sentence and two bars */
  #tellAll(isWhole) {
    this.#card.classList.toggle("is-whole", isWhole);
    if (this.#anchor) this.#putBeside(this.#anchor);
  }

  /** The token may have gone while the card was open. */
  refresh() {
    if (this.#anchor && !this.#anchor.isConnected) this.close();
  }

  /** Whether there is a token at the event's target. @param {Event} event */
  #openAt(event) {
    const node = tokenAt(event);
    if (node && node !== this.#anchor) this.#open(node);
    return node !== null;
  }

  /** @param {HTMLElement} node */
  #open(node) {
    this.close();
    const { trace } = this.#page.session;
    const index = Number(node.dataset.round);
    const article = node.closest("[data-lane]");
    const lane = article?.getAttribute("data-lane");
    const round = trace?.rounds.find((other) => other.index === index && other.lane === lane);
    if (!article || !round) return;
    // A round may stand in two blocks.
    const tokens = [...article.querySelectorAll(`[data-round="${index}"][data-index]`)];
    const place = tokens.indexOf(node);
    const ended = trace?.end?.reasons[round.lane];
    const isPending = node.dataset.outcome === undefined;
    const settings = trace?.header.lanes[round.lane] ?? trace?.header.settings;
    const rule = settings ? ruleOf(settings) : "token";
    const at = { round, place, ended };
    this.#card.replaceChildren(...(trace?.header.source ? watchedContent(at) : content(at, isPending, rule)));
    this.#card.classList.remove("is-whole");
    this.#card.classList.toggle("is-wide", this.#card.querySelectorAll("ol").length > 2);
    this.#card.hidden = false;
    this.#anchor = node;
    node.setAttribute("aria-describedby", this.#card.id);
    this.#putBeside(node);
  }

  /** Focus brings its token into view by scrolling: the card stays with it. */
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
  const { round, place } = at;
  const judged = tokensOf(round)[place];
  const token = isPending ? asGuess(judged) : judged;
  const where = round.lane === "baseline" ? `pass ${round.index + 1}` : standing(token, round, place);
  const id = isSpecial(token.text) ? `, id ${token.id}` : "";
  /** @type {HTMLElement[]} */
  const parts = [
    titleOf(token, round, visible(token.text), `${where}${id}`),
    element("p", "sv-card-reason", reasonBy(rule, token, at)),
    ...goneOn(at),
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

// The guesses after a rejected one, which the text alone does not show.
/** @type {(at: Place) => HTMLElement[]} */
function goneOn({ round, place }) {
  const { drafted } = round;
  if (drafted[place]?.outcome !== "rejected" || place === drafted.length - 1) return [];
  const words = drafted.slice(place + 1).map(({ text }) => visible(text)).join(" ");
  return [element("p", "sv-card-unseen", `Guessed after it, and never judged: ${words}`)];
}

/** The content for a token of a watched server: no numbers. @param {Place} at */
function watchedContent(at) {
  const { round, place } = at;
  const token = tokensOf(round)[place];
  const word = isUnseen(token) ? "?" : visible(token.text);
  return [
    titleOf(token, round, word, watchedStanding(token, round, place)),
    element("p", "sv-card-reason", watchedReason(token, at)),
  ];
}

/** The position of such a token, in words. @type {(token: Token, round: Round, place: number) => string} */
function watchedStanding(token, round, place) {
  if (round.lane === "baseline") return `step ${round.index + 1}`;
  if (token.outcome === "untold") return `end of step ${round.index + 1}`;
  return standing(token, round, place);
}

/**
 * @type {(token: ShownToken, round: Round, word: string, where: string) => HTMLParagraphElement}
 */
function titleOf(token, round, word, where) {
  const marked = element("b", `t ${token.outcome}`, element("span", "w", word));
  marked.classList.toggle("own", isOwn(token, round));
  return element("p", "sv-card-title", marked, element("small", "", where));
}

/**
 * The outcome and the position of a token: a corrected one has the position of the rejected one.
 * @param {ShownToken} token
 * @param {Round} round
 * @param {number} place among the drafted tokens and then the target's own
 */
function standing(token, round, place) {
  const number = `round ${round.index + 1}`;
  if (isOwn(token, round)) return `the target’s own in ${number}`;
  const rejected = round.drafted.findIndex((other) => other.outcome === "rejected");
  const at = token.outcome === "corrected" && rejected >= 0 ? rejected : place;
  return `${token.outcome} in ${number}, place ${at + 1}`;
}

/** The chance of a guess at a judged place; null where both models are greedy. @param {ShownToken} token */
const betaOf = (token) => (isGreedy(token) ? null : token.chance ?? token.beta ?? null);

/** @param {ShownToken} token */
const isGreedy = (token) => token.soft_q !== undefined || token.soft_p !== undefined;

// A draft without what the target will say of it.
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

// Bars of the likeliest tokens; this one is added where it is not among them.
/** @type {(token: ShownToken, rule: string) => HTMLDivElement} */
function lists(token, rule) {
  /** @type {[string, Choice[] | undefined, number | undefined][]} */
  const named = [
    ["draft q", token.top_q, token.soft_q ?? token.q],
    ["target p", token.top_p, token.soft_p ?? token.p],
    [verdictKind(rule).left || "left", token.top_residual, undefined],
  ];
  return element("div", "sv-card-lists", ...named.flatMap(([name, choices, probability]) => {
    if (!choices?.length) return [];
    const isListed = probability == null || choices.some((choice) => choice.id === token.id);
    const shown = isListed ? choices : [...choices, { id: token.id, text: token.text, probability }];
    const bars = shown.map((choice) => bar(choice, choice.id === token.id ? "is-this" : ""));
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
