// What keys and buttons do.

import { controlsFor } from "specviz/run/address.js";
import { closable, closest, find } from "specviz/dom/dom.js";
import { listenToKeys } from "specviz/keys.js";
import { FROM_FILE, UNVERIFIED } from "specviz/words/words.js";

/** @import { Address } from "specviz/run/address.js" */
/** @import { Choosing } from "specviz/choosing.js" */
/** @import { Notice } from "specviz/dom/notice.js" */
/** @import { Run } from "specviz/run/pick.js" */
/** @import { Quiz } from "specviz/stage/quiz.js" */
/** @import { Session } from "specviz/run/session.js" */
/** @import { Shell } from "specviz/shell.js" */
/** @import { Stage } from "specviz/stage/stage.js" */
/** @import { Timeline } from "specviz/run/timeline.js" */
/** @import { View } from "specviz/view.js" */

const SETTING_TAKES = 3000; // ms, at most, until a control has its new value

/**
 * What the actions act on.
 * @typedef {object} Parts
 * @property {Server} server
 * @property {Config} config
 * @property {Address} address
 * @property {Notice} notice
 * @property {Session} session
 * @property {Shell} shell
 * @property {Stage} stage
 * @property {Timeline} timeline
 * @property {View} view
 * @property {() => Run[]} runs  that were shown, the newest last
 * @property {Quiz} quiz
 * @property {Choosing} choosing
 */

/** @typedef {() => boolean} Close  closes something; whether it was open */

/** @typedef {ReturnType<typeof actionsOn>} Actions */

/**
 * Have keys, buttons and menus act.
 * @param {HTMLElement} root
 * @param {Parts} parts
 */
export function wireActions(root, parts) {
  const closeMenu = shareMenu(root, parts);
  // One at a time: what lies over the others comes first.
  const actions = actionsOn(root, parts, [() => parts.view.closeCard(), closeMenu, () => parts.view.closePanel(),
    () => parts.shell.closePanel()]);
  listenToKeys(root, actions);
  listenToPlayback(root, actions);
  listenToPage(parts, actions);
  return actions;
}

/**
 * The menu Share: what it holds is fetched when it is first opened. Returns what closes it.
 * @param {HTMLElement} root
 * @param {Parts} parts
 */
function shareMenu(root, { server, config, notice, session }) {
  const menu = find(root, "[data-share]", HTMLDetailsElement), input = find(menu, "[data-open]", HTMLInputElement);
  const fetched = once(async () => {
    const { Takeaway } = await import("specviz/share/takeaway.js");
    return new Takeaway(root, {
      server, config, trace: () => session.trace, fail: (sentence) => notice.show(sentence, true),
      show: (trace) => {
        session.show(trace, `RECORDED (${FROM_FILE})`);
        notice.mention(UNVERIFIED);
      },
    });
  });
  menu.addEventListener("toggle", fetched);
  find(menu, "[data-choose]").addEventListener("click", () => input.click());
  input.addEventListener("change", async () => (await fetched()).open(input));
  return closable(menu);
}

/**
 * What is fetched at its first use.
 * @template Value
 * @param {() => Promise<Value>} fetch
 * @returns {() => Promise<Value>}
 */
function once(fetch) {
  /** @type {Promise<Value> | null} */
  let coming = null;
  return () => (coming ??= fetch());
}

/**
 * Actions by name.
 * @param {HTMLElement} root
 * @param {Parts} parts
 * @param {Close[]} closes in the order in which things are closed
 */
function actionsOn(root, { choosing, quiz, runs, session, shell, stage, timeline, view }, closes) {
  const explained = once(async () => {
    const { Explain } = await import("specviz/explain/explain.js");
    return new Explain(root, { trace: () => session.trace, timeline, chosen: () => view.chosen });
  });
  const compared = once(async () => new (await import("specviz/compare/compare.js")).Compare(root));
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
    forward() { if (stage.isGuessing || !stage.hasAsked || !quiz.hasQuestions) stage.guess(); else quiz.go(1); },
    back() { quiz.go(-1); },
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
    async compare() { if (!stage.isGuessing) (await compared()).open(runs()); },
    choose() { choosing.open(); },
    run() { session.awaitRun(); },
    adopt() { shell.adopt(); },
  };
}

/**
 * @param {HTMLElement} root
 * @param {Actions} actions
 */
function listenToPlayback(root, { playOrPause, slow, follow }) {
  find(root, "[data-play]").addEventListener("click", playOrPause);
  find(root, "[data-slow]").addEventListener("click", slow);
  find(root, "[data-follow]").addEventListener("click", follow);
}

/**
 * The buttons around the player. Gradio may build its own anew, so the page listens for them.
 * @param {Parts} parts
 * @param {Actions} actions
 */
function listenToPage(parts, actions) {
  /** @type {Record<string, (button: HTMLElement) => void>} */
  const buttons = {
    "#run": actions.run,
    ".preset": (button) => choosePreset(parts, button.textContent.trim()),
    "[data-explain]": actions.explain,
    "[data-compare]": actions.compare,
    "[data-differs]": actions.adopt,
    "[data-run-gamma]": (button) => runWith(parts, Number(button.dataset.runGamma)),
    "[data-toggle-stage]": actions.stage,
    "[data-toggle-help]": actions.help,
  };
  document.addEventListener("click", (event) => {
    for (const [selector, act] of Object.entries(buttons)) {
      const button = closest(event, selector);
      if (button && event.detail) button.blur(); // whoever points goes on with the player's keys, also after a dialog
      if (button) act(button);
    }
  });
}

/**
 * Show a preset's recording, if there is one, and say why the preset is there.
 * @param {Parts} parts
 * @param {string} name
 */
async function choosePreset({ config, address, notice, session, stage }, name) {
  const preset = config.presets.find((one) => one.name === name);
  if (session.busy || !preset) return;
  const settings = address.naming;
  address.change({ values: controlsFor({ preset: name, prompt: null, settings }, config) });
  if (session.recordings.has(name)) await session.showNamed(name);
  if (!stage.isOn) notice.mention(`${preset.why} Press Run.`.trim());
}

/**
 * Run what the page's controls say, with another gamma.
 * @param {Parts} parts
 * @param {number} gamma
 */
async function runWith({ address, notice, session, shell }, gamma) {
  if (session.busy) return;
  shell.setGamma(gamma);
  const until = performance.now() + SETTING_TAKES;
  while (address.settings.gamma !== gamma && performance.now() < until) {
    await new Promise((resume) => setTimeout(resume, 20));
  }
  if (address.settings.gamma === gamma) shell.run();
  else notice.show(`γ could not be set: choose ${gamma} in the settings and press Run.`, true);
}
