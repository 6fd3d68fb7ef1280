// The player: shows the trace up to the playhead, live or finished.

import { createCard } from "./card.js";
import { createCharts } from "./charts.js";
import { keepReachable, listenToKeys } from "./keys.js";
import { createLane } from "./lane.js";
import { measure, series } from "./metrics.js";
import { createReadout } from "./readout.js";
import { summarise, wireShell } from "./shell.js";
import { createStore } from "./store.js";
import { createTimeline, shownAt } from "./timeline.js";
import { spoken } from "./words.js";

const SPEEDS = [0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10];
const SPEAK_EVERY = 2500; // ms between spoken sentences
const LOST = "The connection to the server was lost. Reload the page to go on.";

/** Bring the component in `element` to life; `watch` and `server` are Gradio's. */
export function mount({ element, props, watch, server, config }) {
  const root = element.querySelector("[data-player]");
  const find = (selector) => root.querySelector(selector);
  const readout = createReadout(root);
  const charts = createCharts(root, config);
  const lanes = [...root.querySelectorAll("[data-lane]")].map((article) =>
    ({ name: article.dataset.lane, view: createLane(article) }));
  const shell = wireShell();
  let busy = false, failed = false, drawPending = false, spokenAt = 0;

  const timeline = createTimeline(requestDraw);
  const card = createCard(root, (lane, index) =>
    store.trace?.rounds.find((round) => round.lane === lane && round.index === index));

  const store = createStore({
    ask: (run, seq) => server.missed({ run, seq }),
    on: {
      begun() { busy = true; failed = false; notice(""); requestDraw(); },
      header(trace) { begin(trace); },
      rounds(rounds) { notice(""); timeline.add(rounds); speak(rounds); },
      status(text) { notice(text); },
      over(error) { finish(error); },
      lost() { finish(LOST); },
    },
  });

  function begin(trace) {
    notice("");
    card.close();
    root.dataset.source = "live";
    for (const { view } of lanes) view.reset(trace.header.prompt);
    readout.badge(trace);
    timeline.clear(true);
  }

  function finish(error) {
    busy = false;
    failed = Boolean(error);
    notice(error ?? "", failed);
    timeline.finish();
  }

  function notice(text, isError = false) {
    const node = find("[data-notice]");
    node.textContent = text;
    node.hidden = !text;
    node.classList.toggle("is-error", isError);
    node.setAttribute("role", isError ? "alert" : "status");
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
    root.dataset.state = stateName(state);
    document.body.classList.toggle("sv-busy", busy);
    controls(state);
    if (!store.trace) return;
    const { rounds, partial } = shownAt(state.events, state.position);
    for (const { name, view } of lanes) {
      view.show(rounds.filter((round) => round.lane === name), partial[name]);
      keepReachable(view.stream);
    }
    card.refresh();
    readout.show(rounds, store.trace);
    charts.show(rounds);
    find("[data-position]").textContent =
      `${rounds.length} / ${store.trace.rounds.length} passes`;
  }

  function stateName({ playing, following, live, position, events }) {
    if (failed) return "error";
    if (playing || (busy && (following || !live))) return "running";
    if (!events.length) return "idle";
    return position === events.length && !live ? "ended" : "paused";
  }

  function controls(state) {
    const { events, position, playing, following, live } = state;
    const isRunning = playing || (live && following);
    for (const button of root.querySelectorAll("[data-play], [data-step], [data-restart], [data-scrub]")) {
      button.disabled = !events.length;
    }
    const play = find("[data-play]");
    play.setAttribute("aria-label", isRunning ? "Pause" : "Play");
    play.querySelector("path").setAttribute("d", isRunning
      ? "M3.5 2.5h3v11h-3zM9.5 2.5h3v11h-3z" : "M4 2.5v11l9-5.5z");
    const scrub = find("[data-scrub]");
    scrub.max = events.length;
    scrub.value = position;
    scrub.style.setProperty("--at", `${(100 * position) / Math.max(1, events.length)}%`);
    find("[data-follow]").hidden = !live || following;
  }

  function speak(rounds) {
    const ours = rounds.filter((round) => round.lane === "speculative").pop();
    if (!ours || performance.now() - spokenAt < SPEAK_EVERY) return;
    spokenAt = performance.now();
    find("[data-say]").textContent = spoken(ours);
  }

  function playOrPause() {
    const { playing, live, following } = timeline.state;
    if (playing || (live && following)) timeline.pause(); else timeline.play();
  }

  function sayStep() {
    spokenAt = 0;
    const { events, position } = timeline.state;
    if (events[position - 1]?.done) speak([events[position - 1].round]);
  }

  const actions = {
    playOrPause,
    stepOn() { timeline.step(1); sayStep(); },
    stepBack() { timeline.step(-1); },
    roundOn() { timeline.stepRound(1); sayStep(); },
    roundBack() { timeline.stepRound(-1); },
    restart() { timeline.restart(); },
    follow() { timeline.follow(); },
    dismiss() { card.close(); },
    theme: shell.toggleTheme,
    preset: shell.preset,
  };
  listenToKeys(root, actions);
  find("[data-play]").addEventListener("click", playOrPause);
  find("[data-step]").addEventListener("click", actions.stepOn);
  find("[data-restart]").addEventListener("click", actions.restart);
  find("[data-follow]").addEventListener("click", actions.follow);
  find("[data-scrub]").addEventListener("input", (event) => timeline.seek(Number(event.target.value)));
  offerSpeeds(find("[data-speed]"), timeline.setSpeed);

  window.specviz = {
    get trace() { return store.trace; },
    get metrics() { return measure(store.trace?.rounds ?? [], store.trace?.header); },
    get series() { return series(store.trace?.rounds ?? []); },
    get run() { return store.run; },
    finished(lane) { return shownAt(timeline.state.events, timeline.state.position)
      .rounds.filter((round) => round.lane === lane).length; },
    get position() { return timeline.state.position; },
    get events() { return timeline.state.events.length; },
    summarise,
    announcePreset(name) {
      const preset = config.presets.find((one) => one.name === name);
      if (!busy && preset) notice(`${preset.why} Press Run.`.trim());
    },
  };
  watch("value", () => store.receive(props.value));
  store.receive(props.value);
  draw();
  root.dataset.ready = "true";
}

function offerSpeeds(select, chosen) {
  for (const speed of SPEEDS) {
    const option = document.createElement("option");
    option.value = speed;
    option.textContent = `${speed}×`;
    option.selected = speed === 1;
    select.append(option);
  }
  select.addEventListener("change", () => chosen(Number(select.value)));
}
