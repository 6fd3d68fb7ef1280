// Every number shown, from rounds: the same definitions as specviz/metrics.py.

export const OUTCOMES = ["accepted", "rejected", "ignored", "corrected", "bonus"];

const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);
const ratio = (part, whole) => (whole ? part / whole : null);
const lane = (rounds, name) => rounds.filter((round) => round.lane === name);
const clock = (rounds) => (rounds.length ? rounds[rounds.length - 1].clock : 0);

/** The figures of some rounds; null where nothing has been measured yet. */
export function measure(rounds, header) {
  const ours = lane(rounds, "speculative"), alone = lane(rounds, "baseline");
  const counts = countOutcomes(ours);
  const drafted = sum(ours, (round) => round.drafted.length);
  const emitted = sum(ours, (round) => round.emitted.length);
  const alpha = ratio(counts.accepted, counts.accepted + counts.rejected);
  const c = costRatio(ours, alone);
  const tokens = { speculative: emitted, baseline: sum(alone, (round) => round.emitted.length) };
  const seconds = { speculative: clock(ours), baseline: clock(alone) };
  return {
    counts, drafted, emitted, rounds: ours.length, alpha,
    efficiency: ratio(counts.accepted, drafted),
    beta: meanBeta(ours),
    tau: ratio(emitted, ours.length),
    tau_predicted: meanPredictedTau(draftLengths(ours), alpha),
    c,
    speedup: speedup(seconds, tokens),
    speedup_end_to_end: speedup(withPrefill(seconds, header), tokens),
    speedup_predicted: meanPredictedSpeedup(ours, alpha, c),
    tokens, seconds,
    tokens_per_second: {
      speculative: ratio(tokens.speculative, seconds.speculative),
      baseline: ratio(tokens.baseline, seconds.baseline),
    },
    draft_seconds: sum(ours, (round) => round.draft_seconds),
    verify_seconds: sum(ours, (round) => round.verify_seconds),
    overhead_seconds: sum(ours, (round) => round.overhead_seconds),
    alpha_by_position: alphaByPosition(ours),
  };
}

function countOutcomes(rounds) {
  const counts = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, 0]));
  for (const round of rounds) {
    for (const token of round.drafted) counts[token.outcome] += 1;
    for (const token of round.emitted) if (token.outcome !== "accepted") counts[token.outcome] += 1;
  }
  return counts;
}

function meanBeta(rounds) {
  const betas = rounds.flatMap((round) => round.drafted).filter((token) => token.beta != null);
  return ratio(sum(betas, (token) => token.beta), betas.length);
}

function costRatio(ours, alone) {
  const drafting = ours.filter((round) => round.drafted.length);
  const step = ratio(sum(drafting, (r) => r.draft_seconds), sum(drafting, (r) => r.drafted.length));
  const pass = ratio(sum(alone, (round) => round.verify_seconds), alone.length);
  return step && pass ? step / pass : null;
}

function speedup(seconds, tokens) {
  const slow = ratio(seconds.baseline, tokens.baseline);
  const fast = ratio(seconds.speculative, tokens.speculative);
  return slow && fast ? slow / fast : null;
}

function withPrefill(seconds, header) {
  const whole = {};
  for (const name of Object.keys(seconds)) {
    const prefill = Object.values(header?.prefill_seconds?.[name] ?? {});
    whole[name] = seconds[name] + sum(prefill, (value) => value);
  }
  return whole;
}

/** Expected tokens per round if acceptances were independent (Leviathan et al. 2022, eq. 1). */
export function predictedTau(alpha, gamma) {
  return alpha === 1 ? gamma + 1 : (1 - alpha ** (gamma + 1)) / (1 - alpha);
}

/** Drafted tokens per round -> number of such rounds: the last rounds may draft fewer. */
function draftLengths(rounds) {
  const lengths = new Map();
  for (const { drafted } of rounds) lengths.set(drafted.length, (lengths.get(drafted.length) ?? 0) + 1);
  return lengths;
}

function meanPredictedTau(lengths, alpha) {
  if (alpha === null) return null;
  const entries = [...lengths];
  return ratio(sum(entries, ([length, count]) => predictedTau(alpha, length) * count),
    sum(entries, ([, count]) => count));
}

function meanPredictedSpeedup(rounds, alpha, c) {
  if (alpha === null || c === null) return null;
  return ratio(sum(rounds, ({ drafted }) => predictedTau(alpha, drafted.length)),
    sum(rounds, ({ drafted }) => drafted.length * c + 1));
}

function positions(rounds) {
  const judged = [], accepted = [];
  for (const { drafted } of rounds) {
    drafted.forEach((token, place) => {
      judged[place] = (judged[place] ?? 0) + (token.outcome !== "ignored");
      accepted[place] = (accepted[place] ?? 0) + (token.outcome === "accepted");
    });
  }
  return { judged, accepted };
}

function alphaByPosition(rounds) {
  const { judged, accepted } = positions(rounds);
  return judged.map((count, place) => ratio(accepted[place], count));
}

/** The points of every chart, as series() of specviz/charts.py gives them. */
export function series(rounds) {
  const ours = lane(rounds, "speculative"), alone = lane(rounds, "baseline");
  return {
    tokens: [progress(ours), progress(alone)],
    ...soFar(ours),
    speed: [pace(ours), pace(alone)],
    parts: ["draft_seconds", "verify_seconds", "overhead_seconds"].map((part) => ({
      x: [alone, ours].map((list) => (list.length ? 1000 * sum(list, (r) => r[part]) / list.length : 0)),
      y: ["target alone", "draft + target"],
    })),
    positions: [byPosition(ours)],
  };
}

function progress(rounds) {
  const x = [0], y = [0];
  for (const round of rounds) {
    x.push(round.clock);
    y.push(y[y.length - 1] + round.emitted.length);
  }
  return { x, y };
}

function pace(rounds) {
  const { x, y } = progress(rounds);
  const timed = x.map((seconds, i) => [seconds, y[i] / seconds]).filter(([seconds]) => seconds > 0);
  return { x: timed.map(([seconds]) => seconds), y: timed.map(([, speed]) => speed) };
}

function soFar(rounds) {
  const x = [], alphas = [], efficiencies = [], measured = [], predicted = [];
  const lengths = new Map();
  let accepted = 0, judged = 0, drafted = 0, emitted = 0;
  rounds.forEach((round, i) => {
    lengths.set(round.drafted.length, (lengths.get(round.drafted.length) ?? 0) + 1);
    for (const token of round.drafted) {
      accepted += token.outcome === "accepted";
      judged += token.outcome !== "ignored";
    }
    drafted += round.drafted.length;
    emitted += round.emitted.length;
    const alpha = ratio(accepted, judged);
    x.push(i + 1);
    alphas.push(alpha);
    efficiencies.push(ratio(accepted, drafted));
    measured.push(emitted / (i + 1));
    predicted.push(meanPredictedTau(lengths, alpha));
  });
  return {
    rates: [{ x, y: alphas }, { x, y: efficiencies }],
    tau: [{ x, y: measured }, { x, y: predicted }],
  };
}

function byPosition(rounds) {
  const { judged, accepted } = positions(rounds);
  const places = judged.map((count, place) => [place, count]).filter(([, count]) => count);
  return {
    x: places.map(([place]) => place + 1),
    y: places.map(([place, count]) => accepted[place] / count),
  };
}
