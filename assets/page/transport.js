// Playback: its buttons, the scrubber and the speed.

const SPEEDS = [0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10];
const SLOWEST = 0.05; // at which a recording plays by itself
const READABLE = 12; // seconds that a recording should take to play
const PAUSE = "M3.5 2.5h3v11h-3zM9.5 2.5h3v11h-3z", PLAY = "M4 2.5v11l9-5.5z";

export function createTransport(root, timeline, actions) {
  const find = (selector) => root.querySelector(selector);
  const [play, scrub, speed] = ["[data-play]", "[data-scrub]", "[data-speed]"].map(find);
  const needy = root.querySelectorAll("[data-play], [data-step], [data-restart], [data-scrub]");

  play.addEventListener("click", actions.playOrPause);
  find("[data-step]").addEventListener("click", actions.stepOn);
  find("[data-restart]").addEventListener("click", actions.restart);
  find("[data-follow]").addEventListener("click", actions.follow);
  scrub.addEventListener("input", () => timeline.seek(Number(scrub.value)));
  speed.addEventListener("change", () => timeline.setSpeed(Number(speed.value)));
  for (const times of SPEEDS) {
    const option = document.createElement("option");
    option.value = times;
    option.textContent = `${times}×`;
    option.selected = times === 1;
    speed.append(option);
  }

  function show({ events, position, playing, following, live, speed: times }, passes) {
    const isRunning = playing || (live && following);
    for (const control of needy) control.disabled = !events.length;
    play.setAttribute("aria-label", isRunning ? "Pause" : "Play");
    play.querySelector("path").setAttribute("d", isRunning ? PAUSE : PLAY);
    scrub.max = events.length;
    scrub.value = position;
    scrub.style.setProperty("--at", `${(100 * position) / Math.max(1, events.length)}%`);
    find("[data-follow]").hidden = !live || following;
    find("[data-position]").textContent = passes;
    const pace = find("[data-pace]");
    pace.textContent = `played at ${times}×`;
    pace.hidden = times === 1 || following || !events.length;
  }

  /** A speed at which people can read along: no faster than it was. */
  function slowDown(seconds) {
    const fit = SPEEDS.filter((times) => times >= SLOWEST && times <= 1 && seconds / times >= READABLE);
    speed.value = fit.pop() ?? SLOWEST;
    timeline.setSpeed(Number(speed.value));
  }

  return { show, slowDown };
}
