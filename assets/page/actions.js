// What keys and buttons do.

import { closable, closest, find, once } from "specviz/dom/dom.js";
import { listenToKeys } from "specviz/keys.js";
import { pairBeside } from "specviz/run/controls.js";

/** @typedef {() => boolean} Close  closes something; whether it was open */

/** @typedef {ReturnType<typeof actionsOn>} Actions */

/**
 * Have keys, buttons and menus act.
 * @param {PageParts} page
 */
export function wireActions(page) {
  const { root, view, shell } = page;
  const closeMenu = shareMenu(page);
  // One at a time: what lies over the others comes first.
  const closes = [() => view.closeCard(), closeMenu, () => view.closePanel(), () => shell.closePanel()];
  const actions = actionsOn(page, closes);
  listenToKeys(root, actions);
  find(root, "[data-play]").addEventListener("click", actions.playOrPause);
  find(root, "[data-slow]").addEventListener("click", actions.slow);
  find(root, "[data-follow]").addEventListener("click", actions.follow);
  listenToPage(page, actions);
}

// The menu Share: what it holds is fetched when it is first opened. Returns what closes it.
/** @param {PageParts} page */
function shareMenu(page) {
  const menu = find(page.root, "[data-share]", HTMLDetailsElement);
  const input = find(menu, "[data-open]", HTMLInputElement);
  const fetched = once(async () => new (await import("specviz/share/takeaway.js")).Takeaway(page));
  menu.addEventListener("toggle", fetched);
  find(menu, "[data-choose]").addEventListener("click", () => input.click());
  input.addEventListener("change", async () => (await fetched()).open(input));
  return closable(menu);
}

/**
 * Actions by name.
 * @param {PageParts} page
 * @param {Close[]} closes in the order in which things are closed
 */
function actionsOn(page, closes) {
  const { choosing, quiz, reading, session, shell, stage, timeline, view } = page;
  const explained = once(async () => new (await import("specviz/explain/explain.js")).Explain(page));
  const compared = once(async () => new (await import("specviz/compare/compare.js")).Compare(page.root));
  const explain = async () => (await explained()).open();
  return {
    playOrPause() {
      const { playing, live, following } = timeline;
      if (playing || (live && following)) timeline.pause(); else timeline.play();
    },
    stepOn() { timeline.step(1); view.speakStep(); },
    stepBack() { timeline.step(-1); },
    roundOn() { timeline.stepRound(1); view.speakStep(); },
    roundBack() { timeline.stepRound(-1); },
    restart() { timeline.restart(); },
    follow() { timeline.follow(); },
    dismiss() { if (!closes.some((close) => close())) stage.leave(); },
    vote(/** @type {number} */ number) { stage.vote(number - 1); },
    question() { quiz.go(1); },
    /** With one key through a talk: ask, show the answer, ask the next question. */
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
    async compare() { if (!stage.isGuessing) (await compared()).open(page.runs); },
    choose() { choosing.open(); },
    adopt() { page.controls?.adopt(session.controls); },
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
      // Whoever points goes on with the player's keys, also after a dialog.
      if (button && event.detail) button.blur();
      if (button) act(button);
    }
  });
}

// Show a preset's recording, if there is one, and say why the preset is there.
/** @type {(page: PageParts, name: string) => Promise<void>} */
async function choosePreset({ address, config, notice, session, stage }, name) {
  const preset = config.presets.find((one) => one.name === name);
  if (session.busy || !preset) return;
  const isShown = session.recordings.has(name) && await session.showNamed(name);
  const whose = isShown ? otherPair(session, config, String(address.settings.pair)) : "";
  if (!stage.isOn) notice.mention([preset.why, whose, "Press Run."].filter(Boolean).join(" "));
}

// Whose recording it is, if Run would race another pair.
/** @type {(session: Session, config: Config, pair: string) => string} */
function otherPair({ trace, differences }, config, pair) {
  if (!trace || !differences.has("target")) return "";
  return `This recording is of ${pairBeside(trace.header, config, pair)}.`;
}

// Run what the page's controls say, with another gamma.
/** @type {(page: PageParts, gamma: number) => void} */
function runWith({ controls, session, shell }, gamma) {
  if (session.busy) return;
  controls?.write({ gamma });
  shell.run();
}
