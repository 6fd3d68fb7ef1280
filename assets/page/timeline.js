// The playhead over the rounds of a trace, in the order of their clocks.

const BEHIND = { speculative: 0, baseline: 1 }; // order of two rounds that end together

/** Rounds by clock. A live race yields them almost in order, so each sinks a step or two. */
export function insertByClock(rounds, round) {
  let place = rounds.length;
  while (place > 0 && after(rounds[place - 1], round)) place -= 1;
  rounds.splice(place, 0, round);
}

function after(one, other) {
  if (one.clock !== other.clock) return one.clock > other.clock;
  return BEHIND[one.lane] > BEHIND[other.lane];
}

/**
 * A playhead: how many rounds are shown. While a run is live it follows the newest one, unless
 * the viewer holds it back. `changed()` is called when anything moved.
 */
export function createTimeline(changed) {
  const state = { rounds: [], position: 0, following: true, playing: false, speed: 1, live: false };
  let time = 0, last = 0;

  function frame(now) {
    if (!state.playing) return;
    time += (state.speed * (now - last)) / 1000;
    last = now;
    const before = state.position;
    while (state.position < state.rounds.length && state.rounds[state.position].clock <= time) {
      state.position += 1;
    }
    if (state.position === state.rounds.length) {
      state.playing = false;
      state.following = state.live;
    }
    if (state.position !== before || !state.playing) changed();
    requestAnimationFrame(frame);
  }

  function moveTo(position) {
    state.position = Math.max(0, Math.min(position, state.rounds.length));
    time = state.position ? state.rounds[state.position - 1].clock : 0;
  }

  function hold() {
    state.following = false;
    state.playing = false;
  }

  return {
    state,
    clear(live) {
      Object.assign(state, { rounds: [], position: 0, following: true, playing: false, live });
      time = 0;
      changed();
    },
    add(rounds) {
      for (const round of rounds) insertByClock(state.rounds, round);
      if (state.following) moveTo(state.rounds.length);
      changed();
    },
    finish() {
      state.live = false;
      changed();
    },
    play() {
      if (!state.rounds.length) return;
      if (state.position === state.rounds.length) moveTo(0);
      Object.assign(state, { playing: true, following: false });
      last = performance.now();
      requestAnimationFrame(frame);
      changed();
    },
    pause() { hold(); changed(); },
    seek(position) { hold(); moveTo(position); changed(); },
    step(by) { hold(); moveTo(state.position + by); changed(); },
    /** To the end of the next round of the draft + target lane, or back to the one before. */
    stepRound(by) {
      hold();
      let place = state.position - (by < 0 ? 1 : 0);
      const isOurs = (at) => state.rounds[at]?.lane === "speculative";
      if (by > 0) while (place < state.rounds.length && !isOurs(place)) place += 1;
      else do place -= 1; while (place > 0 && !isOurs(place));
      moveTo(place + 1);
      changed();
    },
    restart() { moveTo(0); this.play(); },
    follow() {
      Object.assign(state, { following: true, playing: false });
      moveTo(state.rounds.length);
      changed();
    },
    setSpeed(speed) { state.speed = speed; },
  };
}
