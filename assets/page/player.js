// The player: shows the trace up to the playhead, live or finished.

import { controlsFor, createWriter, presetFor, readAddress } from "./address.js";
import { createCard } from "./card.js";
import { createCharts } from "./charts.js";
import { createFileMenu } from "./filemenu.js";
import { keepReachable, listenToKeys } from "./keys.js";
import { keepOnReload, takeKept } from "./kept.js";
import { createLane } from "./lane.js";
import { measure, series } from "./metrics.js";
import { createPanels } from "./panels.js";
import { createNotice } from "./notice.js";
import { createReadout } from "./readout.js";
import { createShelf } from "./recordings.js";
import { summarise, wireShell } from "./shell.js";
import { createStage } from "./stage.js";
import { createStore } from "./store.js";
import { createTimeline, shownAt } from "./timeline.js";
import { createTakeaway } from "./takeaway.js";
import { createTransport } from "./transport.js";
import { spoken } from "./words.js";

const SPEAK_EVERY = 2500; // ms between spoken sentences
const CROWDED_AFTER = 1500; // ms without an answer to Run
const DEAD_AFTER = 4000; // ms without an answer to a plain question
const CROWDED = "The server is busy: your run is in line.";
const RETRY_EVERY = 2000; // ms between questions whether the server is back
const LOST = "The connection to the server was lost. What has arrived stays; waiting for it to come back.";
const BACK = "The server is back, without your run: press Run to start it again.";
const RELOADED = "The page was loaded anew, which ended your run; this is what had arrived. Press Run to start it again.";
const LEFT_OUT = "Parts of this link make no sense here and were left out";

/** Bring the component in `element` to life; `watch` and `server` are Gradio's. */
export function mount({ element, props, watch, server, config }) {
  const root = element.querySelector("[data-player]");
  const find = (selector) => root.querySelector(selector);
  const { notice, mention } = createNotice(find("[data-notice]"));
  const readout = createReadout(root);
  const charts = createCharts(root, config);
  const lanes = [...root.querySelectorAll("[data-lane]")].map((article) =>
    ({ name: article.dataset.lane, view: createLane(article) }));
  const asked = readAddress(location.search, config);
  const shelf = createShelf(config.recordings);
  const write = createWriter(config);
  const page = { values: controlsFor(asked, config), recording: null, theme: asked.theme, stage: asked.stage };
  let busy = false, lost = false, failed = false, drawPending = false, spokenAt = -Infinity, showings = 0;

  const timeline = createTimeline(requestDraw);
  const card = createCard(root, (lane, index) =>
    store.trace?.rounds.find((round) => round.lane === lane && round.index === index),
  () => store.trace?.end);
  const panels = createPanels(root, {
    server, run: () => (root.dataset.source === "live" ? store.run : null), isBusy: () => busy,
  });
  const stage = createStage(root, () => {
    page.stage = stage.isOn();
    if (page.stage) shelf.takeAll();
    changed();
    requestDraw();
  });
  const shell = wireShell((theme) => { page.theme = theme; changed(); });

  const store = createStore({
    ask: (run, seq) => server.missed({ run, seq }),
    on: {
      begun() { busy = true; failed = lost = false; notice(""); timeline.pause(); draw(); },
      header(trace) { showLive(trace); },
      rounds(rounds) { notice(""); timeline.add(rounds); speak(rounds); },
      status(text) { notice(text); },
      over(error, fallBack, remark) { finish(error, fallBack, remark); },
      lost() { reconnect(); },
    },
  });

  function showLive(trace) {
    showings += 1;
    page.recording = null;
    begin(trace, "live", "LIVE");
    timeline.clear(true);
    changed();
  }

  /** Play a finished trace; `origin` is what its badge says of it. */
  function showRecording(trace, origin = "RECORDED", name = null) {
    showings += 1;
    if (busy) leaveRun();
    failed = false;
    page.recording = name;
    store.show(trace);
    begin(trace, "recording", origin);
    timeline.clear(false);
    timeline.add(trace.rounds);
    transport.slowDown(timeline.seconds());
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) timeline.seek(Infinity);
    else timeline.restart();
    changed();
  }

  /** A recording of the shelf; false if it cannot be had. */
  async function showNamed(name, origin) {
    const showing = (showings += 1);
    try {
      const trace = await shelf.take(name);
      if (showing === showings && !busy) showRecording(trace, origin, name);
      return true;
    } catch (error) {
      console.info("specviz: a recording cannot be shown:", error.message);
      return false;
    }
  }

  function leaveRun() {
    busy = false;
    store.drop();
    document.querySelector("#stop")?.click();
  }

  function begin(trace, source, origin) {
    notice("");
    card.close();
    root.dataset.source = source;
    for (const { view } of lanes) view.reset(trace.header.prompt);
    readout.badge(trace, origin);
  }

  async function finish(error, fallBack = false, remark = "") {
    busy = false;
    timeline.finish();
    const preset = chosenPreset();
    // Where no machine can be had, another recording is better than none.
    const recorded = fallBack ? shelf.first(preset?.name)
      : stage.isOn() && shelf.has(preset?.name) ? preset.name : null;
    if (error && recorded) {
      console.info("specviz: live failed:", error);
      if (await showNamed(recorded, "RECORDED (live failed)")) {
        if (fallBack) notice(error, true);
        return;
      }
    }
    failed = Boolean(error);
    notice(error ?? remark, failed);
    requestDraw();
  }

  /** Say that the server is gone, and when it is back. */
  async function reconnect() {
    const before = store.run;
    lost = true;
    await finish(LOST);
    while (!(await isServerThere())) await pause(RETRY_EVERY);
    if (store.run === before && !busy) notice(BACK);
  }

  async function isServerThere() {
    const question = server.missed({ run: "", seq: 0 });
    const answer = await Promise.race([question, pause(DEAD_AFTER)]).catch(() => null);
    return Array.isArray(answer);
  }

  function requestDraw() {
    if (drawPending) return;
    drawPending = true;
    // A hidden tab gets no frames, but its state must stay right.
    if (document.hidden) setTimeout(draw, 100); else requestAnimationFrame(draw);
  }

  function draw() {
    drawPending = false;
    const { state } = timeline;
    const { rounds, partial } = shownAt(state.events, state.position);
    root.dataset.state = stateName(state);
    document.body.classList.toggle("sv-busy", busy);
    transport.show(state, `${rounds.length} / ${store.trace?.rounds.length ?? 0} passes`);
    if (!store.trace) return;
    for (const { name, view } of lanes) {
      view.show(rounds.filter((round) => round.lane === name), partial[name]);
      keepReachable(view.stream);
      if (stage.isOn()) view.follow(); // where nobody scrolls
    }
    card.refresh();
    readout.show(rounds, store.trace);
    charts.show(rounds);
    panels.show(rounds, store.trace);
    if (state.playing && state.position) firstPaint();
  }

  function stateName({ playing, following, live, position, events }) {
    if (failed) return "error";
    if (playing || (busy && (following || !live))) return "running";
    if (!events.length) return "idle";
    return position === events.length && !live ? "ended" : "paused";
  }

  function speak(rounds) {
    const ours = rounds.filter((round) => round.lane === "speculative").pop();
    if (!ours || performance.now() - spokenAt < SPEAK_EVERY) return;
    spokenAt = performance.now();
    find("[data-say]").textContent = spoken(ours);
  }

  function sayStep() {
    spokenAt = -Infinity;
    const { events, position } = timeline.state;
    if (events[position - 1]?.done) speak([events[position - 1].round]);
  }

  const chosenPreset = () => config.presets.find((one) => one.prompt === page.values[0]);

  function choosePreset(name) {
    const preset = config.presets.find((one) => one.name === name);
    if (busy || !preset) return;
    page.values = controlsFor({ preset: name, prompt: null, settings: {} }, config);
    if (shelf.has(name)) showNamed(name).then(say); else say();
    function say() { if (!stage.isOn()) mention(`${preset.why} Press Run.`.trim()); }
  }

  const changed = () => write(page);

  /** Whoever pressed Run gets an answer, even from a server that has gone. */
  async function awaitRun() {
    const before = store.run;
    await pause(CROWDED_AFTER);
    if (store.run !== before) return;
    notice(CROWDED);
    if (!(await isServerThere()) && store.run === before) reconnect();
  }

  const actions = {
    playOrPause() {
      const { playing, live, following } = timeline.state;
      if (playing || (live && following)) timeline.pause(); else timeline.play();
    },
    stepOn() { timeline.step(1); sayStep(); },
    stepBack() { timeline.step(-1); },
    roundOn() { timeline.stepRound(1); sayStep(); },
    roundBack() { timeline.stepRound(-1); },
    restart() { timeline.restart(); },
    follow() { timeline.follow(); },
    dismiss() { if (!card.close() && !menu.close() && !takeaway.close()) panels.close(); },
    theme: shell.toggleTheme,
    preset: shell.preset,
    stage: stage.toggle,
    larger() { stage.grow(1); },
    smaller() { stage.grow(-1); },
    guess: stage.guess,
    enter() { if (stage.isGuessing()) stage.guess(); else if (stage.isOn()) shell.run(); },
    help: stage.toggleHelp,
  };
  const transport = createTransport(root, timeline, actions);
  const menu = createFileMenu(root, {
    trace: () => store.trace,
    opened: (asked) => server.opened(asked),
    most: config.mostPacked,
    show: (trace) => showRecording(trace, "RECORDED (opened from a file)"),
    fail: (sentence) => notice(sentence, true),
  });
  const takeaway = createTakeaway(root, {
    server, config, trace: () => store.trace, charts: charts.come,
    fail: (sentence) => notice(sentence, true),
  });
  listenToKeys(root, actions);
  // Gradio may build its buttons anew, so the page listens for them.
  const outside = {
    "#run": awaitRun,
    "#presets .preset": (button) => choosePreset(button.textContent.trim()),
    "[data-toggle-stage]": actions.stage,
    "[data-toggle-help]": actions.help,
  };
  document.addEventListener("click", ({ target }) => {
    for (const [selector, act] of Object.entries(outside)) {
      const button = target.closest?.(selector);
      if (button) act(button);
    }
  });

  window.specviz = {
    modules: new URL(config.modules, document.baseURI).href,
    get trace() { return store.trace; },
    get metrics() { return measure(store.trace?.rounds ?? [], store.trace?.header); },
    /** The figures of what is shown: of the rounds before the playhead. */
    get shown() { return measure(shownRounds(), store.trace?.header); },
    get series() { return series(store.trace?.rounds ?? []); },
    get run() { return store.run; },
    finished(lane) { return shownRounds().filter((round) => round.lane === lane).length; },
    get position() { return timeline.state.position; },
    get events() { return timeline.state.events.length; },
    /** What the controls should hold when the page opens. */
    filled() { summariseAll(); return page.values; },
    changed(values) { page.values = values; summariseAll(); changed(); },
  };

  function shownRounds() {
    return shownAt(timeline.state.events, timeline.state.position).rounds;
  }

  function summariseAll() {
    const value = (name) => page.values[1 + Object.keys(config.defaults).indexOf(name)];
    summarise(value("gamma"), value("gamma_policy"), value("temperature"), value("max_new_tokens"));
  }

  keepOnReload(() => ((busy || lost) && root.dataset.source === "live" ? store.trace : null));
  if (asked.theme) shell.setTheme(asked.theme);
  if (asked.stage) stage.set(true);
  watch("value", () => store.receive(props.value));
  store.receive(props.value);
  draw();
  root.dataset.ready = "true";
  open();

  function showInterrupted(trace) {
    showRecording(trace, "RECORDED (interrupted)");
    timeline.seek(Infinity);
    notice(RELOADED);
  }

  /** A visit begins with a recording, if there is one. */
  async function open() {
    const name = shelf.first(asked.recording, presetFor(asked, config)?.name);
    const kept = config.trace ? null : takeKept();
    if (config.trace) showRecording(config.trace);
    else if (kept) showInterrupted(kept);
    else if (name) await showNamed(name);
    if (asked.wrong.length) mention(`${LEFT_OUT}: ${asked.wrong.join(", ")}.`);
  }
}

const pause = (time) => new Promise((resume) => setTimeout(resume, time)); // ms

/** Marks, once, when a visitor first saw a recording play. */
function firstPaint() {
  if (!performance.getEntriesByName("specviz-playing").length) performance.mark("specviz-playing");
}
