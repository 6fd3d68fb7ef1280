// The actions of keys and buttons. Keys do nothing on the player while a visitor types.

import { closest, find, findAll } from "specviz/dom/dom.js";
import { openersOf, shareMenu } from "specviz/opening.js";
import { pairBeside } from "specviz/run/controls.js";

const TYPING = "input:not([type=range], [type=radio], [type=checkbox]), textarea, select, "
  + "[contenteditable=true]";
const CHOOSING = "input[type=radio], input[type=checkbox]"; // whose keys are the browser's
const PRESSABLE = "button, a, [role=button], summary, label";
const ANSWER = /^[abc]$/i;
/** The keys of a presenter's remote. @type {Record<string, keyof Actions>} */
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

/** The actions that do nothing while a requested run has not begun. @type {(keyof Actions)[]} */
const NEED_A_RUN = [
  "playOrPause", "stepOn", "stepBack", "roundOn", "roundBack", "restart", "follow", "explain", "slow",
  "compare",
];

/** @typedef {() => boolean} Close  closes something, and returns whether it was open */

/** @typedef {ReturnType<typeof actionsOn>} Actions */

/**
 * Connect keys, buttons and menus with their actions.
 * @param {PageParts} page
 */
export function wireActions(page) {
  const { root, view, shell } = page;
  const closeMenu = shareMenu(page);
  // One at a time, from the top layer down.
  const closes = [() => view.closeCard(), closeMenu, () => view.closePanel(), () => shell.closePanel()];
  const actions = actionsOn(page, closes);
  listenToKeys(page, actions);
  find(root, "[data-play]").addEventListener("click", actions.playOrPause);
  find(root, "[data-slow]").addEventListener("click", actions.slow);
  find(root, "[data-follow]").addEventListener("click", actions.follow);
  listenToPage(page, actions);
}

/**
 * Actions by name.
 * @param {PageParts} page
 * @param {Close[]} closes  in the order in which layers are closed
 */
function actionsOn(page, closes) {
  const { choosing, quiz, reading, shownRun, shell, stage, timeline, view } = page;
  const { compare, explain } = openersOf(page);
  return {
    playOrPause() {
      const { isPlaying, isGrowing, isFollowing } = timeline;
      if (isPlaying || (isGrowing && isFollowing)) timeline.pause(); else timeline.play();
    },
    stepOn() { timeline.step(1); view.speakStep(); },
    stepBack() { timeline.step(-1); },
    roundOn() { timeline.stepRound(1); view.speakStep(); },
    roundBack() { timeline.stepRound(-1); },
    restart() { timeline.restart(); },
    follow() { timeline.follow(); },
    dismiss() { if (!closes.some((close) => close()) && !stage.closeQuestion()) stage.leave(); },
    vote(/** @type {number} */ number) { stage.vote(number - 1); },
    question() { quiz.go(1); },
    /** One key for a whole talk: ask, show the answer, ask the next question. */
    forward() {
      if (stage.isGuessing || !stage.hasAsked || !quiz.hasQuestions) stage.guess();
      else quiz.go(1);
    },
    back() { quiz.go(-1); },
    reading() { reading.toggle(); },
    theme() { shell.toggleTheme(); },
    preset(/** @type {number} */ number) { shell.choosePreset(number); },
    stage() { stage.toggle(); },
    larger() { stage.grow(1); },
    smaller() { stage.grow(-1); },
    guess() { stage.guess(); },
    enter() { if (stage.isGuessing) stage.guess(); else if (stage.isOn) shell.run(); },
    help() { stage.toggleHelp(); },
    explain,
    slow() { view.slowDown(explain); },
    compare() { if (!stage.isGuessing) compare(); },
    choose() { choosing.open(); },
    adopt() { page.controls?.adopt(shownRun.controls); },
  };
}

// The buttons in and around the player.
/** @type {(page: PageParts, actions: Actions) => void} */
function listenToPage(page, actions) {
  /** @type {Record<string, (button: HTMLElement) => void>} */
  const buttons = {
    ".preset": (button) => choosePreset(page, button.textContent.trim()),
    "[data-explain]": actions.explain,
    "[data-compare]": actions.compare,
    "[data-differs]": actions.adopt,
    "[data-run-gamma]": (button) => runWith(page, Number(button.dataset.runGamma)),
    "[data-toggle-stage]": actions.stage,
    "[data-toggle-help]": actions.help,
  };
  document.addEventListener("click", (event) => {
    for (const [selector, act] of Object.entries(buttons)) {
      const button = closest(event, selector);
      // After a click the player's keys must work, also after a dialog: the button gives up the focus.
      if (button && event.detail) button.blur();
      if (button) act(button);
    }
  });
}

// Show a preset's recording, if there is one, and the purpose of the preset.
/** @type {(page: PageParts, name: string) => Promise<void>} */
async function choosePreset({ address, config, notice, shownRun, stage }, name) {
  const preset = config.presets.find((candidate) => candidate.name === name);
  if (shownRun.busy || shownRun.pending || !preset) return;
  const isShown = shownRun.recordings.has(name) && await shownRun.showNamed(name);
  const whose = isShown ? otherPair(shownRun, config, String(address.settings.pair)) : "";
  if (!stage.isOn) notice.mention([preset.why, whose, "Press Run."].filter(Boolean).join(" "));
}

// The pair of the recording, if Run would race another pair.
/** @type {(shownRun: ShownRun, config: Config, pair: string) => string} */
function otherPair({ trace, differences }, config, pair) {
  if (!trace || !differences.has("target")) return "";
  return `This recording is of ${pairBeside(trace.header, config, pair)}.`;
}

// Run with the page's controls and another gamma.
/** @type {(page: PageParts, gamma: number) => void} */
function runWith({ controls, shownRun, shell }, gamma) {
  if (shownRun.busy) return;
  controls?.write({ gamma });
  shell.run();
}

/**
 * Connect keys with actions; those for presets and answers get a number, from 1.
 * @type {(page: PageParts, actions: Actions) => void}
 */
function listenToKeys({ root, shownRun }, actions) {
  document.addEventListener("keydown", (event) => {
    // A key that has just closed a dialog must not open it again.
    if (event.defaultPrevented || (document.querySelector("dialog[open]") && event.key !== "?")) return;
    const isFor = (/** @type {string} */ selector) =>
      event.target instanceof Element && event.target.matches(selector);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    // Escape also closes the panel from one of its fields, unless it ends an input method's composition.
    const isLeaving = event.key === "Escape" && !event.isComposing && isFor("#panel *");
    if (isFor(TYPING) && !isLeaving) return;
    const name = nameOf(event, isFor);
    if (!name) return;
    event.preventDefault();
    if (shownRun.pending && NEED_A_RUN.includes(name)) return;
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

// The action of a key; null if it has none, or another function at the focused element.
/** @type {(event: KeyboardEvent, isFor: (selector: string) => boolean) => keyof Actions | null} */
function nameOf({ key, shiftKey }, isFor) {
  if (key === " ") return isFor(PRESSABLE) || isFor(CHOOSING) ? null : "playOrPause";
  if (key in REMOTE) return document.body.classList.contains("sv-stage") ? REMOTE[key] : null;
  if (key === "Escape") return "dismiss";
  if (isFor("input[type=range]") || isFor(CHOOSING)) return null;
  if (key === "ArrowRight") return shiftKey ? "roundOn" : "stepOn";
  if (key === "ArrowLeft") return shiftKey ? "roundBack" : "stepBack";
  if (key === "Enter") return isFor(PRESSABLE) ? null : "enter";
  const isAnswer = key === "ArrowUp" || key === "ArrowDown" || ANSWER.test(key);
  if (isAnswer && document.querySelector("[data-guess]")) return "vote";
  if (/^[1-9]$/.test(key)) return "preset";
  return NAMES[key.toLowerCase()] ?? null;
}

// The number of the preset or the answer of a key, from 1: of two answers, up is the first.
/** @param {string} key */
function numberOf(key) {
  if (key.startsWith("Arrow")) return key === "ArrowUp" ? 1 : 2;
  return ANSWER.test(key) ? parseInt(key, 16) - 9 : Number(key);
}

// One token of a lane is in the tab order; arrows move from it to others.
/** @type {(token: HTMLElement, key: string) => boolean} */
function moveFocus(token, key) {
  /** @type {Record<string, number>} */
  const steps = { ArrowRight: 1, ArrowDown: 8, ArrowLeft: -1, ArrowUp: -8 };
  const lane = token.closest("[data-lane]");
  const all = lane ? findAll(lane, ".t[data-index]", HTMLElement).filter(isShown) : [token];
  let index = all.indexOf(token);
  if (key in steps) index += steps[key];
  else if (key === "Home") index = 0;
  else if (key === "End") index = all.length - 1;
  else return false;
  const next = all[Math.max(0, Math.min(index, all.length - 1))];
  token.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  return true;
}

// Whether a token is visible: the reading mode "text" hides tokens that were never judged.
/** @param {HTMLElement} token */
const isShown = (token) => !token.matches("[data-reading='text'] :is(.ignored, .pending)");
