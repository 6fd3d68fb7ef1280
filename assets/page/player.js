// The player: shows a trace up to the playhead, live or finished. Here its parts are made and
// told of each other: what is shown (session), how (view), and what a visitor can do (actions).

import { wireActions } from "specviz/actions.js";
import { Address, usualTemperature } from "specviz/run/address.js";
import { Choosing } from "specviz/choosing.js";
import { drafterControl } from "specviz/run/controls.js";
import { closest, find, findAll } from "specviz/dom/dom.js";
import { lanesOf } from "specviz/facts/lanes.js";
import { learn } from "specviz/facts/vocabulary.js";
import { measure, series } from "specviz/facts/metrics.js";
import { Loading } from "specviz/run/loading.js";
import { Notice } from "specviz/dom/notice.js";
import { Quiz, Stage } from "specviz/stage/stage.js";
import { Repeats } from "specviz/race/repeats.js";
import { ReadingMode } from "specviz/race/reading.js";
import { newest } from "specviz/run/pick.js";
import { signsIn } from "specviz/words/markdown.js";
import { signsText } from "specviz/words/words.js";
import { SlowReplay, Timeline } from "specviz/run/timeline.js";
import { Session } from "specviz/run/session.js";
import { withFiles } from "specviz/run/recordings.js";
import { Shell } from "specviz/shell.js";
import { View } from "specviz/view.js";

/**
 * What Gradio gives to a component: `watch` calls back when a property has changed.
 * @typedef {object} Mounting
 * @property {HTMLElement} element
 * @property {{ value: string | null }} props  the value is the newest delta
 * @property {(name: string, changed: () => void) => void} watch
 * @property {Server} server
 * @property {Config} config
 */

/**
 * Bring the component to life.
 * @param {Mounting} mounting
 */
export function mount({ element, props, watch, server, config }) {
  learn(config.vocabulary);
  const root = find(element, "[data-player]");
  const page = partsOf(root, withFiles(server, config.files), config);
  const { address, session, shell, stage, view } = page;
  wireActions(page);
  window.specviz = handles(page);
  for (const link of findAll(root, "[data-link]", HTMLAnchorElement)) {
    const url = config.links[link.dataset.link ?? ""];
    if (url) Object.assign(link, { href: url, hidden: false });
  }
  if (address.asked.theme) shell.setTheme(address.asked.theme);
  if (address.asked.stage) stage.set(true);
  watch("value", () => session.receive(props.value));
  session.receive(props.value);
  view.draw();
  root.dataset.ready = "true";
  session.open();
  if (config.served) new Loading(page).watch();
}

/** @type {(root: HTMLElement, server: Server, config: Config) => PageParts} */
function partsOf(root, server, config) {
  const page = /** @type {PageParts} */ (/** @type {Partial<PageParts>} */ ({ root, server, config, runs: [] }));
  page.address = new Address(config);
  page.notice = new Notice(find(root, "[data-notice]"));
  page.timeline = new Timeline(() => page.view.requestDraw());
  page.shell = new Shell((theme) => page.address.change({ theme }));
  page.replay = new SlowReplay(page.timeline);
  page.session = new Session(page, {
    begun: () => page.view.draw(),
    shown: (trace, origin) => {
      page.replay.cancel();
      page.view.begin(trace, origin);
      page.repeats.shown();
      page.runs = newest([...page.runs.filter((run) => run.trace !== trace), { trace, origin }]);
      page.stage.shown();
    },
    rounds: (rounds) => page.view.speak(rounds),
    retold: (trace) => page.view.retell(trace),
    over: () => {
      page.repeats.over();
      if (!page.session.failed && !page.repeats.isUnderWay) page.replay.offer();
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

// What tools may read of the player, and what Gradio's controls tell it.
/** @param {PageParts} page */
function handles(page) {
  const { session, timeline } = page;
  const shown = () => timeline.shown().rounds;
  return {
    get trace() { return session.trace; },
    get metrics() { return measure(session.trace?.rounds ?? [], session.trace?.header); },
    /** @param {LaneName} lane */
    metricsOf(lane) { return measure(session.trace?.rounds ?? [], session.trace?.header, lane); },
    /** The figures of what is shown: of the rounds before the playhead. */
    get shown() { return measure(shown(), session.trace?.header); },
    get series() { return series(session.trace?.rounds ?? [], lanesOf(session.trace?.header)); },
    get run() { return session.run; },
    /** @param {LaneName} lane */
    finished(lane) { return shown().filter((round) => round.lane === lane).length; },
    get position() { return timeline.position; },
    get events() { return timeline.events.length; },
    ...told(page),
  };
}

// What Gradio's controls tell the player, and ask of it.
/** @param {PageParts} page */
function told({ config, address, session, shell, view, choosing, notice }) {
  const names = ["prompt", ...Object.keys(config.defaults)];
  let given = /** @type {Value[]} */ ([]); // what the controls were last told to hold, by no hand
  let lanesBefore = /** @type {Value} */ (config.defaults.lanes ?? null);
  // A prompt of one's own begins with the pair's own drafter, not with the one that a preset shows.
  function begin(/** @type {string} */ pair) {
    const own = /** @type {Record<string, Value>} */ ({ gamma: config.defaults.gamma, drafter: config.drafters[pair]?.[0] });
    choosing.wanted = names.map((name) => own[name] ?? null);
    shell.adopt();
  }
  const signs = () => (address.settings.chat === "literal" ? [] : signsIn(String(address.state.values[0] ?? "")));
  document.addEventListener("click", (event) => { // Gradio may make the button anew
    if (closest(event, "#signs")) notice.show(signsText(signs()));
  });
  return {
    /** What the controls should hold when the page opens. */
    filled: () => (given = address.state.values),
    /** They hold it. A pair that the address names is examined like one that is chosen by hand. */
    opened() {
      shell.summarise(address);
      shell.markSigns(signs());
      const isNamed = ["pair", "target", "draft", "weights"].some((name) => name in address.asked.settings);
      if (isNamed && address.settings.pair !== config.defaults.pair && !address.state.stage) shell.examine();
    },
    /** @param {Value[]} values of the controls, which have changed */
    changed(values) {
      const { chosen, state } = address;
      const isGiven = values[0] === given[0]; // by no hand
      const isTyped = !isGiven && values.every((value, i) => (value === state.values[i]) !== (names[i] === "prompt"));
      address.change({ values });
      if (chosen && isTyped && !address.preset) begin(String(address.settings.pair));
      shell.summarise(address);
      shell.markSigns(signs());
      view.compareControls();
    },
    // Another pair is chosen: what becomes of the control of the drafter. Whoever chose it by hand
    // begins with the pair's own drafter.
    paired(/** @type {string} */ pair, /** @type {string} */ drafter) {
      const isGiven = given[names.indexOf("pair")] === pair && given[names.indexOf("drafter")] === drafter;
      return drafterControl(pair, isGiven || !config.drafters[pair] ? drafter : null, config);
    },
    /** Another drafter is chosen, perhaps by a preset that knows nothing of the pair. */
    drafted(/** @type {string} */ pair, /** @type {string} */ drafter) {
      const isOffered = config.drafters[pair]?.includes(drafter) ?? true; // the doctor knows of others
      return isOffered ? null : drafterControl(pair, drafter, config);
    },
    /**
     * Other lanes are chosen, by hand: the temperature with which they begin, unless somebody has set another.
     * @type {(lanes: string, temperature: number) => Value}
     */
    compared(lanes, temperature) {
      const before = usualTemperature(lanesBefore, config);
      lanesBefore = lanes;
      return temperature === before ? usualTemperature(lanes, config) : temperature;
    },
    // What the controls should hold to be those of the shown run, or of a row of a sweep.
    /** @param {Value[]} values  what they hold */
    adopted(values) {
      const controls = choosing.wanted ?? session.controls;
      choosing.wanted = null;
      return (given = values.map((value, i) => controls[i] ?? value));
    },
  };
}
