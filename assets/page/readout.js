// Headline, verdict, figures, bars, legend: all that is said about the shown rounds.

import { measure } from "./metrics.js";
import { comparison, detail, fixed, guesser, provenance, sameness, verdict, written } from "./words.js";

const LANES = ["speculative", "baseline"];

export function createReadout(root) {
  const find = (selector) => root.querySelector(selector);
  const set = (selector, text) => {
    const node = find(selector);
    if (node && node.textContent !== text) node.textContent = text;
  };
  function show(rounds, trace) {
    const m = measure(rounds, trace.header);
    const same = comparison(rounds);
    set("[data-headline]", fixed(m.speedup, 2));
    set("[data-verdict]", verdict(m, trace, same.parted));
    set("[data-detail]", detail(m));
    set("[data-identical]", sameness(same, trace));
    for (const name of ["alpha", "efficiency", "tau", "tau_predicted", "c"]) {
      set(`[data-metric="${name}"]`, fixed(m[name], 2));
    }
    for (const [outcome, count] of Object.entries(m.counts)) {
      set(`[data-count="${outcome}"]`, String(count));
    }
    const reasons = rounds.length === trace.rounds.length ? trace.end?.reasons ?? {} : {};
    set('[data-sums="speculative"]', written(m.emitted, m.drafted, reasons.speculative));
    set('[data-sums="baseline"]', written(m.tokens.baseline, null, reasons.baseline));
    for (const name of LANES) showBar(name, m, rounds, trace);
    return m;
  }

  function showBar(name, m, rounds, trace) {
    const bar = find(`[data-bar="${name}"]`);
    const length = Math.max(1, trace.header.settings.max_new_tokens);
    bar.querySelector("i").style.transform = `scaleX(${Math.min(1, m.tokens[name] / length)})`;
    const speed = m.tokens_per_second[name];
    const text = `${m.tokens[name]} tokens · ${m.seconds[name].toFixed(2)} s · ${
      speed === null ? "–" : Math.round(speed)} tok/s`;
    bar.querySelector(".sv-value").textContent = text;
    markFinish(bar.querySelector("u"), name, m, rounds, trace);
  }

  /** On a lane's bar: where it stood when the other lane was done. */
  function markFinish(mark, name, m, rounds, trace) {
    const other = LANES.find((lane) => lane !== name);
    const then = rounds.filter((r) => r.lane === name && r.clock <= m.seconds[other]);
    const tokens = then.reduce((total, round) => total + round.emitted.length, 0);
    mark.hidden = !isDone(other, m, rounds, trace) || m.tokens[name] - tokens < 2;
    mark.style.left = `${(100 * tokens) / trace.header.settings.max_new_tokens}%`;
    mark.title = `${tokens} tokens when the other lane was done`;
  }

  function isDone(name, m, rounds, trace) {
    if (m.tokens[name] >= trace.header.settings.max_new_tokens) return true;
    const count = (list) => list.filter((round) => round.lane === name).length;
    return trace.end !== null && count(rounds) === count(trace.rounds);
  }

  /** `kind`: LIVE or RECORDED, and what else must be said of where a run comes from. */
  function badge(trace, kind) {
    const node = find("[data-badge]");
    const text = document.createElement("span");
    text.textContent = `${kind} · ${provenance(trace.header)}`;
    node.replaceChildren(document.createElement("i"), text);
    node.hidden = false;
    set("[data-guesser]", guesser(trace.header.settings));
    const { target, draft, versions } = trace.header;
    const models = [target, draft].filter(Boolean).map((model) =>
      `${model.name}: ${(model.parameters / 1e6).toFixed(1)} M parameters`);
    const made = Object.entries(versions ?? {}).map(([name, version]) => `${name} ${version}`);
    node.title = [...models, ...made].join("\n");
  }

  return { show, badge };
}
