// The drawer over the page's right edge, with one of two panels in it, and what opens them.

import { createExperiment } from "./experiment.js";
import { element } from "./lane.js";
import { showGreedy, showSampled } from "./same.js";
import { showWhy } from "./why.js";

const TITLES = { why: "Why this speed?", same: "Is it the same text?" };
const REDRAW = 300; // ms between drawings, at least

/** `run()` is the id of the live run that is shown, if it is one; `isBusy()`: one is under way. */
export function createPanels(root, { server, run, isBusy }) {
  const drawer = element("aside", "sv-drawer");
  const title = element("h2"), close = element("button", "sv-close", "×"), body = element("div", "sv-drawer-body");
  const openers = [...root.querySelectorAll("[data-panel-open]")];
  let open = null, shown = null, filled = null, due = 0;

  Object.assign(drawer, { id: "sv-drawer", hidden: true, tabIndex: -1 });
  drawer.setAttribute("role", "dialog");
  title.id = "sv-drawer-title";
  drawer.setAttribute("aria-labelledby", title.id);
  close.type = "button";
  close.setAttribute("aria-label", "Close");
  const head = element("header");
  head.append(title, close);
  drawer.append(head, body);
  root.append(drawer);

  const experiment = createExperiment(server, () => {
    const { prompt, settings } = shown.trace.header;
    return { run: run(), prompt, settings };
  }, isBusy);

  for (const button of openers) {
    button.setAttribute("aria-controls", drawer.id);
    button.addEventListener("click", () => (open === button.dataset.panelOpen ? shut() : openPanel(button.dataset.panelOpen)));
  }
  close.addEventListener("click", shut);

  function openPanel(name) {
    open = name;
    filled = null;
    drawer.dataset.panel = name;
    title.textContent = TITLES[name];
    drawer.hidden = false;
    tell();
    fill();
    body.scrollTop = 0;
    drawer.focus({ preventScroll: true });
  }

  function shut() {
    if (open === null) return false;
    const opener = openers.find((button) => button.dataset.panelOpen === open);
    const isInside = drawer.contains(document.activeElement);
    open = null;
    drawer.hidden = true;
    experiment.end();
    tell();
    if (isInside) opener.focus();
    return true;
  }

  function tell() {
    for (const button of openers) button.setAttribute("aria-expanded", String(button.dataset.panelOpen === open));
  }

  function fill() {
    if (open === null || !shown) return;
    const { rounds, trace } = shown;
    if (open === "why") showWhy(body, rounds, trace);
    else if (trace.header.settings.temperature === 0) showGreedy(body, rounds, trace);
    else if (filled !== trace) showSampled(body, trace, experiment);
    filled = trace;
  }

  function fillSoon() {
    if (due) return;
    due = setTimeout(() => { due = 0; fill(); }, REDRAW);
  }

  return {
    close: shut,
    show(rounds, trace) {
      if (shown?.trace !== trace) experiment.forget();
      shown = { rounds, trace };
      for (const button of openers) button.hidden = !rounds.length;
      if (open !== null) fillSoon();
    },
  };
}
