// The card that says why a token fared as it did; follows hover, focus and tap.

import { element, tokensOf } from "./lane.js";
import { chance, keep, reason } from "./reasons.js";
import { fixed, visible } from "./words.js";

const GAP = 10; // px between token and card
const GREEDY = "Greedy: the verdict compares first choices only. The bars are the models’ own softmax at temperature 1.";

/** `roundOf(lane, index)` gives a token's round, `endOf()` the end of the run if it has one. */
export function createCard(root, roundOf, endOf = () => null) {
  const card = root.querySelector(".sv-card");
  let anchor = null;

  function open(node) {
    if (node === anchor) return;
    close();
    const lane = node.closest("[data-lane]").dataset.lane;
    const round = roundOf(lane, Number(node.dataset.round));
    if (!round) return;
    const place = [...node.parentNode.children].filter((n) => n.dataset.index).indexOf(node);
    const ended = endOf()?.reasons?.[lane];
    card.replaceChildren(...content(node.dataset.outcome ?? "pending",
      { round, place, ended, isBaseline: lane === "baseline" }));
    card.classList.toggle("is-wide", card.querySelectorAll("ol").length > 2);
    card.hidden = false;
    anchor = node;
    node.setAttribute("aria-describedby", card.id);
    setPlace(node);
  }

  function close() {
    const wasOpen = anchor !== null;
    anchor?.removeAttribute("aria-describedby");
    anchor = null;
    card.hidden = true;
    return wasOpen;
  }

  function setPlace(node) {
    const at = node.getClientRects()[0] ?? node.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = card;
    const left = Math.min(Math.max(8, at.left - 24), innerWidth - width - 8);
    const below = at.bottom + GAP;
    const top = below + height < innerHeight - 8 ? below : Math.max(8, at.top - height - GAP);
    card.style.transform = `translate(${left}px, ${top}px)`;
  }

  const tokenAt = (event) => event.target.closest?.("[data-lane] .t");
  root.addEventListener("pointerover", (event) => {
    const node = tokenAt(event);
    if (node) open(node);
    else if (anchor && !anchor.matches(":focus-visible")) close();
  });
  root.addEventListener("pointerleave", close);
  root.addEventListener("focusin", (event) => tokenAt(event) && open(tokenAt(event)));
  root.addEventListener("focusout", close);
  // A tap on a token opens, a tap beside it closes.
  root.addEventListener("click", (event) => (tokenAt(event) ? open(tokenAt(event)) : close()));
  // Focus brings its token into view by scrolling: the card stays with it.
  const moved = () => (anchor?.matches(":focus-visible") ? setPlace(anchor) : close());
  root.addEventListener("scroll", moved, { capture: true, passive: true });

  return {
    close,
    /** The token may have gone while the card was open. */
    refresh() { if (anchor && !anchor.isConnected) close(); },
  };
}

function content(outcome, around) {
  const { round, place, isBaseline } = around;
  const tokens = tokensOf(round);
  const token = outcome === "pending" ? asGuess(tokens[place]) : tokens[place];
  const title = element("p", "sv-card-title");
  const word = element("b", `t ${token.outcome}`);
  word.append(element("span", "w", visible(token.text)));
  const where = isBaseline ? `pass ${round.index + 1}` : `round ${round.index + 1}, place ${place + 1}`;
  title.append(word, element("small", "", isBaseline ? where : `${token.outcome} in ${where}`));
  const parts = [title, element("p", "sv-card-reason", reason(token, around)), numbers(token), lists(token)];
  if (token.soft_q !== undefined || token.soft_p !== undefined) {
    parts.push(element("small", "sv-card-note", GREEDY));
  }
  return parts;
}

/** What is known of a draft before the target has spoken. */
function asGuess({ text, q, soft_q, top_q }) {
  return { text, q, soft_q, top_q, outcome: "pending" };
}

function numbers(token) {
  const list = element("dl", "sv-card-numbers");
  const isGreedy = token.soft_q !== undefined || token.soft_p !== undefined;
  const rows = [
    ["target p", token.p], ["draft q", token.q], ["min(1, p/q)", token.p == null ? null : keep(token)],
    ["draw u", isGreedy ? null : token.u], ["β", isGreedy ? null : token.beta],
    ["target, T = 1", token.soft_p], ["draft, T = 1", token.soft_q],
  ];
  for (const [name, value] of rows) {
    if (value == null) continue;
    const pair = element("div");
    const isTiny = value > 0 && value < 0.001;
    pair.append(element("dt", "", name), element("dd", "", isTiny ? value.toExponential(1) : fixed(value, 3)));
    list.append(pair);
  }
  return list;
}

/** Bars of the likeliest tokens; this one is added where it is not among them. */
function lists(token) {
  const box = element("div", "sv-card-lists");
  const named = [
    ["draft q", token.top_q, token.soft_q ?? token.q], ["target p", token.top_p, token.soft_p ?? token.p],
    ["left: max(0, p − q)", token.top_residual, null],
  ];
  for (const [name, choices, own] of named) {
    if (!choices?.length) continue;
    const list = element("ol", name === "draft q" ? "is-draft" : "is-target");
    for (const choice of choices) list.append(bar(choice, choice.id === token.id));
    const isListed = choices.some((choice) => choice.id === token.id);
    if (!isListed && own != null) list.append(bar({ text: token.text, probability: own }, true));
    const part = element("div");
    part.append(element("small", "", name), list);
    box.append(part);
  }
  return box;
}

function bar(choice, isThis) {
  const row = element("li", isThis ? "is-this" : "");
  const fill = element("i");
  fill.style.width = `${100 * choice.probability}%`;
  const track = element("span", "sv-card-track");
  track.append(fill);
  row.append(element("span", "sv-card-word", visible(choice.text)),
    track, element("span", "", chance(choice.probability)));
  return row;
}
