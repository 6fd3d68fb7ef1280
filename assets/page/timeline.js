// The playhead over the events of a trace, in the order of their times.

const LONGEST_FRAME = 500; // ms
const FEW = 64; // rounds that are put in their places one by one
const FIRST = { speculative: 0, baseline: 1 }; // order of what happens at the same time

/**
 * What happens in a round, one event after the other: each draft appears, each verdict falls,
 * then the round is done. Drafts are spread evenly over the measured time of their run.
 */
export function eventsOf(round) {
  const { drafted, clock, draft_seconds: drafting } = round;
  const start = clock - drafting - round.verify_seconds - round.overhead_seconds;
  const events = drafted.map((_, i) =>
    ({ round, seen: i + 1, judged: 0, time: start + (drafting * (i + 1)) / drafted.length }));
  const judged = drafted.filter((token) => token.outcome !== "ignored").length;
  for (let i = 1; i <= judged; i += 1) {
    events.push({ round, seen: drafted.length, judged: i, time: clock });
  }
  events.push({ round, done: true, time: clock });
  return events;
}

/** A live race yields rounds almost in order, so each event sinks a few places at most. */
function insert(events, event) {
  let place = events.length;
  while (place > 0 && after(events[place - 1], event)) place -= 1;
  events.splice(place, 0, event);
}

function after(one, other) {
  if (one.time !== other.time) return one.time > other.time;
  return FIRST[one.round.lane] > FIRST[other.round.lane];
}

/** The finished rounds at a playhead, and the event inside an unfinished one by lane. */
export function shownAt(events, position) {
  const rounds = [], partial = {};
  for (const event of events.slice(0, position)) {
    partial[event.round.lane] = event.done ? null : event;
    if (event.done) rounds.push(event.round);
  }
  return { rounds, partial };
}

/**
 * A playhead: how many events are shown. While a run is live it follows the newest one, unless
 * the viewer holds it back. `changed()` is called when anything moved.
 */
export function createTimeline(changed) {
  const state = { events: [], position: 0, following: true, playing: false, speed: 1, live: false };
  let time = 0, last = 0, waiting = false;

  function run() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(frame);
  }

  function frame(now) {
    waiting = false;
    if (!state.playing) return;
    // A tab that was hidden goes on where it was.
    time += (state.speed * Math.max(0, Math.min(now - last, LONGEST_FRAME))) / 1000;
    last = now;
    const before = state.position;
    while (state.position < state.events.length && state.events[state.position].time <= time) {
      state.position += 1;
    }
    if (state.position === state.events.length) {
      state.playing = false;
      state.following = state.live;
    }
    if (state.position !== before || !state.playing) changed();
    if (state.playing) run();
  }

  function moveTo(position) {
    state.position = Math.max(0, Math.min(position, state.events.length));
    time = state.position ? state.events[state.position - 1].time : 0;
  }

  function hold() {
    state.following = false;
    state.playing = false;
  }

  const endsRound = (place) =>
    state.events[place]?.done && state.events[place].round.lane === "speculative";

  return {
    state,
    clear(live) {
      Object.assign(state, { events: [], position: 0, following: live, playing: false, live });
      time = 0;
      changed();
    },
    add(rounds) {
      const events = rounds.flatMap(eventsOf);
      if (rounds.length <= FEW) for (const event of events) insert(state.events, event);
      else state.events = [...state.events, ...events].sort((a, b) => after(a, b) - after(b, a));
      if (state.following) moveTo(state.events.length);
      changed();
    },
    finish() {
      state.live = false;
      changed();
    },
    play() {
      if (!state.events.length) return;
      if (state.position === state.events.length) moveTo(0);
      Object.assign(state, { playing: true, following: false });
      last = performance.now();
      run();
      changed();
    },
    pause() { hold(); changed(); },
    seek(position) { hold(); moveTo(position); changed(); },
    step(by) { hold(); moveTo(state.position + by); changed(); },
    /** To the end of the next round of the lane with drafts, or of the one before. */
    stepRound(by) {
      hold();
      let place = state.position - 1;
      do place += by; while (place >= 0 && place < state.events.length && !endsRound(place));
      moveTo(place + 1);
      changed();
    },
    restart() { moveTo(0); this.play(); },
    follow() {
      Object.assign(state, { following: true, playing: false });
      moveTo(state.events.length);
      changed();
    },
    setSpeed(speed) { state.speed = speed; changed(); },
    /** How long the run took, on its own clocks. */
    seconds() { return state.events[state.events.length - 1]?.time ?? 0; },
  };
}
