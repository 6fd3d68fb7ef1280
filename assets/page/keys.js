// Keyboard: the player's keys, and arrows from token to token. Never while someone types.

const TYPING = "input:not([type=range]), textarea, select, [contenteditable=true]";
const NAMES = {
  r: "restart", t: "theme", s: "stage", g: "guess", l: "follow", end: "follow",
  "+": "larger", "=": "larger", "-": "smaller", "?": "help",
};
const PRESSABLE = "button, a, [role=button], summary, label";

/** `actions` maps the names below to functions; a preset gets its number from 1. */
export function listenToKeys(root, actions) {
  document.addEventListener("keydown", (event) => {
    const at = event.target;
    if (document.querySelector("dialog[open]") && event.key !== "?") return;
    if (event.ctrlKey || event.metaKey || event.altKey || at.matches?.(TYPING)) return;
    const name = nameOf(event, at);
    if (!name) return;
    event.preventDefault();
    actions[name](Number(event.key));
  });
  root.addEventListener("keydown", (event) => {
    const token = event.target.closest?.(".t[data-index]");
    if (token && moveFocus(token, event.key)) {
      event.preventDefault();
      event.stopPropagation();
    }
  });
}

function nameOf(event, at) {
  const { key, shiftKey } = event;
  if (key === " ") return at.matches?.(PRESSABLE) ? null : "playOrPause";
  if (at.matches?.("input[type=range]")) return null;
  if (key === "ArrowRight") return shiftKey ? "roundOn" : "stepOn";
  if (key === "ArrowLeft") return shiftKey ? "roundBack" : "stepBack";
  if (key === "Enter") return at.matches?.(PRESSABLE) ? null : "enter";
  if (key === "Escape") return "dismiss";
  if (/^[1-9]$/.test(key)) return "preset";
  return NAMES[key.toLowerCase()] ?? null;
}

/** One token of a lane is in the tab order; arrows go on from it. */
function moveFocus(token, key) {
  const lane = token.closest("[data-lane]");
  const steps = { ArrowRight: 1, ArrowDown: 8, ArrowLeft: -1, ArrowUp: -8 };
  const all = lane.querySelectorAll(".t[data-index]");
  let place = Number(token.dataset.index);
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

/** Keep exactly one token of a lane reachable by Tab. */
export function keepReachable(stream) {
  if (stream.querySelector(".t[tabindex='0']")) return;
  const first = stream.querySelector(".t[data-index]");
  if (first) first.tabIndex = 0;
}
