// The card that says why a token fared as it did; follows hover, focus and tap.

import { element, tokensOf } from "./lane.js";
import { fixed, keep, percent, story, visible } from "./words.js";

const GAP = 10; // px between token and card

/** `roundOf(lane, index)` gives the round that a token belongs to. */
export function createCard(root, roundOf) {
  const card = root.querySelector(".sv-card");
  let anchor = null;

  function open(node) {
    if (node === anchor) return;
    close();
    const lane = node.closest("[data-lane]").dataset.lane;
    const round = roundOf(lane, Number(node.dataset.round));
    if (!round) return;
    const place = [...node.parentNode.children].filter((n) => n.dataset.index).indexOf(node);
    card.replaceChildren(...content(round, place, node.dataset.outcome ?? "pending", lane === "baseline"));
    card.hidden = false;
    anchor = node;
    node.setAttribute("aria-describedby", card.id);
    setPlace(node);
  }

  function close() {
    anchor?.removeAttribute("aria-describedby");
    anchor = null;
    card.hidden = true;
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
  root.addEventListener("click", (event) => tokenAt(event) && open(tokenAt(event)));
  root.addEventListener("scroll", close, { capture: true, passive: true });

  return {
    close,
    /** The token may have gone while the card was open. */
    refresh() { if (anchor && !anchor.isConnected) close(); },
  };
}

function content(round, place, outcome, isBaseline) {
  const tokens = tokensOf(round);
  const token = outcome === "pending" ? asGuess(tokens[place]) : tokens[place];
  const own = tokens[tokens.length - 1];
  const follow = own !== token && own.outcome === "corrected" ? own : null;
  const title = element("p", "sv-card-title");
  const word = element("b", `t ${token.outcome}`);
  word.append(element("span", "w", visible(token.text)));
  const where = isBaseline ? `pass ${round.index + 1}` : `round ${round.index + 1}, place ${place + 1}`;
  title.append(word, element("small", "", isBaseline ? where : `${token.outcome} in ${where}`));
  return [title, element("p", "", story(token, isBaseline, follow)), numbers(token), lists(token)];
}

/** What is known of a draft before the target has spoken. */
function asGuess({ text, q, soft_q, top_q }) {
  return { text, q, soft_q, top_q, outcome: "pending" };
}

function numbers(token) {
  const list = element("dl", "sv-card-numbers");
  const rows = [
    ["target p", token.p], ["draft q", token.q], ["min(1, p/q)", keep(token)],
    ["draw u", token.u], ["β", token.beta],
  ];
  for (const [name, value] of rows) {
    if (value == null) continue;
    const pair = element("div");
    pair.append(element("dt", "", name), element("dd", "", fixed(value, 3)));
    list.append(pair);
  }
  return list;
}

function lists(token) {
  const box = element("div", "sv-card-lists");
  const named = [["draft", token.top_q], ["target", token.top_p], ["what was left", token.top_residual]];
  for (const [name, choices] of named) {
    if (!choices?.length) continue;
    const list = element("ol", name === "draft" ? "is-draft" : "is-target");
    for (const choice of choices) list.append(bar(choice, choice.id === token.id));
    const part = element("div");
    part.append(element("small", "", name), list);
    box.append(part);
  }
  return box;
}

function bar(choice, isThis) {
  const row = element("li", isThis ? "is-this" : "");
  const fill = element("i");
  fill.style.width = `${Math.max(1, 100 * choice.probability)}%`;
  const track = element("span", "sv-card-track");
  track.append(fill);
  row.append(element("span", "sv-card-word", visible(choice.text)),
    track, element("span", "", percent(choice.probability)));
  return row;
}
