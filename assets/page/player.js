// The player: shows a trace up to the playhead, live or finished. Its parts are made and connected here: what
// is shown (the shown run), how (view), and what a visitor can do (actions).

import { wireActions } from "specviz/actions.js";
import { Address } from "specviz/run/address.js";
import { Choosing } from "specviz/opening.js";
import { find, findAll, importPart } from "specviz/dom/dom.js";
import { lanesOf } from "specviz/facts/lanes.js";
import { learn } from "specviz/facts/vocabulary.js";
import { measure, series } from "specviz/facts/metrics.js";
import { Notice } from "specviz/dom/notice.js";
import { Quiz, Stage } from "specviz/stage/stage.js";
import { Repeats } from "specviz/race/repeats.js";
import { ReadingMode } from "specviz/race/lane-grid.js";
import { AutoReplay, Timeline } from "specviz/run/timeline.js";
import { ShownRun } from "specviz/run/shown-run.js";
import { newest } from "specviz/words/moment.js";
import { Shell } from "specviz/shell.js";
import { View } from "specviz/view.js";

/**
 * @typedef {object} Mounting
 * @property {HTMLElement} element
 * @property {Server} server
 * @property {Config} config
 * @property {(page: PageParts) => void} [connect]  makes the controls of a page that has some
 */

/**
 * Start the player.
 * @param {Mounting} mounting
 */
export function mount({ element, server, config, connect }) {
  learn(config.vocabulary);
  const root = find(element, "[data-player]");
  const page = partsOf(root, server, config);
  const { address, shownRun, shell, stage, view } = page;
  wireActions(page);
  window.specviz = handles(page);
  for (const link of findAll(root, "[data-link]", HTMLAnchorElement)) {
    const url = config.links[link.dataset.link ?? ""];
    if (url) Object.assign(link, { href: url, hidden: false });
  }
  if (address.asked.theme) shell.setTheme(address.asked.theme);
  if (address.asked.stage) stage.set(true);
  connect?.(page);
  view.draw();
  root.dataset.ready = "true";
  shownRun.open();
  if (config.isLoading) watchLoading(page);
  if (config.awaited) offerFetch(page, config.awaited);
}

/** A pair that is not here yet. @type {(page: PageParts, state: FetchState) => Promise<void>} */
async function offerFetch(page, state) {
  const { config, controls } = page;
  const before = String(config.defaults.pair);
  const fetched = await page.notice.fetching(() => importPart("run/fetching.js"))();
  if (!fetched) return;
  page.fetching = new fetched.Fetching(page, state, () => {
    page.fetching = undefined;
    controls?.renew(before);
    page.view.describe();
    watchLoading(page, true);
  });
}

/** @type {(page: PageParts, isNew?: boolean) => Promise<void>} */
async function watchLoading(page, isNew = false) {
  const fetched = await page.notice.fetching(() => importPart("run/loading.js"))();
  if (fetched) new fetched.Loading(page).watch(isNew);
}

/** @type {(root: HTMLElement, server: Server, config: Config) => PageParts} */
function partsOf(root, server, config) {
  /** @type {Partial<PageParts>} */
  const begun = { root, server, config, runs: [] };
  const page = /** @type {PageParts} */ (begun); // the other parts are made below
  page.address = new Address(config);
  page.notice = new Notice(find(root, "[data-notice]"));
  page.timeline = new Timeline(() => page.view.requestDraw());
  page.shell = new Shell((theme) => page.address.change({ theme }));
  page.replay = new AutoReplay(page.timeline);
  page.shownRun = new ShownRun(page, {
    begun: () => page.view.draw(),
    pending: (pending) => {
      page.view.showPending(pending);
      page.fetching?.shown();
    },
    restored: () => {
      page.view.restore();
      page.fetching?.shown();
    },
    shown: (trace, origin) => {
      page.replay.cancel();
      page.view.begin(trace, origin);
      page.repeats.shown();
      const others = page.runs.filter((run) => run.trace !== trace);
      page.runs = newest([...others, { trace, origin, isVisitors: page.shownRun.isVisitors }]);
      page.stage.shown();
      page.fetching?.shown();
    },
    rounds: (rounds) => page.view.speak(rounds),
    replaced: (trace) => page.view.redrawTokens(trace),
    over: () => {
      page.repeats.over();
      if (!page.shownRun.failed && !page.repeats.isUnderWay) page.replay.offer();
      page.view.compareControls();
      page.view.requestDraw();
    },
  });
  page.repeats = new Repeats(page);
  page.stage = new Stage(page);
  page.quiz = new Quiz(page);
  page.reading = new ReadingMode(page);
  page.view = new View(page);
  page.choosing = new Choosing(page);
  return page;
}

// The part of the player that tools may read.
/** @param {PageParts} page */
function handles(page) {
  const { shownRun, timeline } = page;
  const shownRounds = () => timeline.shown().rounds;
  return {
    get trace() { return shownRun.trace; },
    get metrics() { return measure(shownRun.trace?.rounds ?? [], shownRun.trace?.header); },
    /** @param {LaneName} lane */
    metricsOf(lane) { return measure(shownRun.trace?.rounds ?? [], shownRun.trace?.header, lane); },
    /** The figures of the rounds before the playhead. */
    get shown() { return measure(shownRounds(), shownRun.trace?.header); },
    get series() { return series(shownRun.trace?.rounds ?? [], lanesOf(shownRun.trace?.header)); },
    get run() { return shownRun.newestRun; },
    /** @param {LaneName} lane */
    finished(lane) { return shownRounds().filter((round) => round.lane === lane).length; },
    get position() { return timeline.position; },
    get events() { return timeline.steps.length; },
  };
}
