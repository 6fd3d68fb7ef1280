// Keyboard: the player's keys, and arrows from token to token. Never while someone types.

import { closest, findAll } from "specviz/dom/dom.js";

const TYPING = "input:not([type=range]), textarea, select, [contenteditable=true]";
const PRESSABLE = "button, a, [role=button], summary, label";
const ANSWER = /^[abc]$/i;
/** What a presenter's remote sends. @type {Record<string, keyof Actions>} */
const REMOTE = { PageDown: "forward", PageUp: "back" };
/** @type {Record<string, keyof Actions>} */
const NAMES = {
  r: "restart",
  t: "theme",
  s: "stage",
  g: "guess",
  e: "explain",
  x: "slow",
  c: "compare",
  d: "choose",
  q: "question",
  l: "follow",
  end: "follow",
  m: "reading",
  "+": "larger",
  "=": "larger",
  "-": "smaller",
  "?": "help",
};

/**
 * Have keys call actions; those for presets and answers get a number, from 1.
 * @type {(root: HTMLElement, actions: Actions) => void}
 */
export function listenToKeys(root, actions) {
  document.addEventListener("keydown", (event) => {
    // A dialog that a key has just closed must not be opened by the same key.
    if (event.defaultPrevented || (document.querySelector("dialog[open]") && event.key !== "?")) return;
    const isFor = (/** @type {string} */ selector) =>
      event.target instanceof Element && event.target.matches(selector);
    if (event.ctrlKey || event.metaKey || event.altKey || isFor(TYPING)) return;
    const name = nameOf(event, isFor);
    if (!name) return;
    event.preventDefault();
    actions[name](numberOf(event.key));
  });
  root.addEventListener("keydown", (event) => {
    const token = closest(event, ".t[data-index]");
    if (token && moveFocus(token, event.key)) {
      event.preventDefault();
      event.stopPropagation();
    }
  });
}

// The action of a key; null if it has none, or does something else where the focus is.
/** @type {(event: KeyboardEvent, isFor: (selector: string) => boolean) => keyof Actions | null} */
function nameOf({ key, shiftKey }, isFor) {
  if (key === " ") return isFor(PRESSABLE) ? null : "playOrPause";
  if (key in REMOTE) return document.body.classList.contains("sv-stage") ? REMOTE[key] : null;
  if (key === "Escape") return "dismiss";
  if (isFor("input[type=range]")) return null;
  if (key === "ArrowRight") return shiftKey ? "roundOn" : "stepOn";
  if (key === "ArrowLeft") return shiftKey ? "roundBack" : "stepBack";
  if (key === "Enter") return isFor(PRESSABLE) ? null : "enter";
  const isAnswer = key === "ArrowUp" || key === "ArrowDown" || ANSWER.test(key);
  if (isAnswer && document.querySelector("[data-guess]")) return "vote";
  if (/^[1-9]$/.test(key)) return "preset";
  return NAMES[key.toLowerCase()] ?? null;
}

// Which preset or answer a key stands for, from 1: of two answers, up is the first.
/** @param {string} key */
function numberOf(key) {
  if (key.startsWith("Arrow")) return key === "ArrowUp" ? 1 : 2;
  return ANSWER.test(key) ? parseInt(key, 16) - 9 : Number(key);
}

// One token of a lane is in the tab order; arrows go on from it.
/** @type {(token: HTMLElement, key: string) => boolean} */
function moveFocus(token, key) {
  /** @type {Record<string, number>} */
  const steps = { ArrowRight: 1, ArrowDown: 8, ArrowLeft: -1, ArrowUp: -8 };
  const lane = token.closest("[data-lane]");
  const all = lane ? findAll(lane, ".t[data-index]", HTMLElement).filter(isShown) : [token];
  let place = all.indexOf(token);
  if (key in steps) place += steps[key];
  else if (key === "Home") place = 0;
  else if (key === "End") place = all.length - 1;
  else return false;
  const next = all[Math.max(0, Math.min(place, all.length - 1))];
  token.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  return true;
}

// Whether a token is on the page: the text alone leaves out what was never judged.
/** @param {HTMLElement} token */
const isShown = (token) => !token.matches("[data-reading='text'] :is(.ignored, .pending)");

/** Keep exactly one token of a lane reachable by Tab. @param {HTMLElement} stream */
export function keepReachable(stream) {
  if (stream.querySelector(".t[tabindex='0']")) return;
  const first = stream.querySelector(".t[data-index]");
  if (first instanceof HTMLElement) first.tabIndex = 0;
}
