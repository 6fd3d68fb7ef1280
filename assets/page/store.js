// The shown trace: that of the newest run, put together from numbered deltas, or a recording.

const PATIENCE = 4000; // ms without news of a live run before the server is asked

/** Rounds are sent without what can be rebuilt and with empty fields: back to the schema. */
function rebuilt(wire) {
  const { kept, ...round } = wire;
  round.drafted = wire.drafted.map(compact);
  round.emitted = [...round.drafted.slice(0, kept), ...wire.emitted.map(compact)];
  return round;
}

function compact(token) {
  const full = Object.entries(token).filter(
    ([, value]) => value !== null && !(Array.isArray(value) && value.length === 0));
  return Object.fromEntries(full);
}

/**
 * `ask(run, seq)` promises the deltas from `seq` on, or null if the run is not known. `on` holds the callbacks `begun(run)`,
 * `header(trace)`, `rounds(list)`, `status(text)`, `over(error, fallBack)` and `lost()`.
 */
export function createStore({ ask, on }) {
  let run = null, next = 0, over = true, asking = false, heard = 0;
  let live = null, trace = null; // the newest run's, and the one that is shown
  const past = new Set();
  const early = new Map();

  function receive(text) {
    if (!text) return;
    const delta = JSON.parse(text);
    if (past.has(delta.run)) return;
    if (delta.run !== run) begin(delta.run);
    heard = performance.now();
    if (delta.seq >= next) early.set(delta.seq, delta);
    drain();
    if (early.size) askMissed();
  }

  function begin(id) {
    if (run) past.add(run);
    run = id; next = 0; over = false;
    early.clear();
    on.begun(id);
  }

  function drain() {
    while (early.has(next)) {
      const delta = early.get(next);
      early.delete(next);
      next += 1;
      apply(delta);
    }
  }

  function apply(delta) {
    if (delta.status) on.status(delta.status);
    if (delta.header) {
      live = trace = { schema: 1, header: delta.header, rounds: [], end: null };
      on.header(trace);
    }
    if (delta.rounds) {
      const rounds = delta.rounds.map(rebuilt);
      live.rounds.push(...rounds);
      on.rounds(rounds);
    }
    if (delta.end) live.end = delta.end;
    if (delta.over) {
      over = true;
      on.over(delta.error ?? null, Boolean(delta.fall_back), delta.remark ?? "");
    }
  }

  async function askMissed() {
    if (asking) return;
    asking = true;
    const id = run;
    try {
      const texts = await ask(id, next);
      if (id === run && !over) {
        if (texts) texts.forEach(receiveMissed);
        else lose(); // the server does not know the run: it has begun anew
      }
      drain();
    } catch (error) {
      console.warn("specviz: the server did not answer", error);
      if (id === run && !over) lose();
    }
    asking = false;
  }

  function receiveMissed(text) {
    const delta = JSON.parse(text);
    if (delta.run === run && delta.seq >= next) early.set(delta.seq, delta);
    heard = performance.now();
  }

  function lose() {
    drop();
    on.lost();
  }

  /** Whatever this run still sends is not heard. */
  function drop() {
    over = true;
    past.add(run);
  }

  setInterval(() => {
    const silence = performance.now() - heard;
    if (over || silence < PATIENCE) return;
    if (silence > 4 * PATIENCE) lose(); else askMissed();
  }, 1000);

  return {
    receive, drop,
    show(other) { trace = other; },
    get trace() { return trace; },
    get run() { return run; },
  };
}
