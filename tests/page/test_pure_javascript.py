"""Compare the page's pure JavaScript with Python, in node and without a browser."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import pytest
import torch
from node import called, evaluated
from same_figures import check
from sentences import Sentences
from toy_models import llama, pair_of, relative
from toy_recordings import SAMPLED, recorded
from wording import visible

from scripts.record_presets import PAIRS
from specviz import Metrics, Settings, Token, Trace, compute_metrics, race
from specviz.base.environment import ASSETS
from specviz.core.engine_choice import eager_only
from specviz.core.lanes import LANES
from specviz.inspect.parting import parting_of
from specviz.page.follow_ups import read_run
from specviz.page.offer import QUESTIONS, folder_of
from specviz.runs.recording import read_recording
from specviz.runs.series import series
from specviz.runs.uncertainty import spread, uncertainty

ANSWERS = """async ([runs, asked]) => {
  const { QUESTIONS } = await import("specviz/stage/questions.js");
  return asked.map(({ question, run, beside }) => {
    const { ask, reveal } = QUESTIONS[question], parts = [runs[run], runs[beside]];
    return [question, ask(...parts), reveal(...parts).right, reveal(...parts).why];
  });
}"""


def test_counts_and_days_are_told_without_the_formats_of_a_browser() -> None:
    counts = [0, 7, 999, 1000, 14_160_000, 151_936]
    days = ["2026-11-05T12:00:00+00:00", "2026-09-30T12:00:00+00:00", "no date"]
    told = evaluated(
        """async ([counts, days]) => {
          const { dayOf, grouped } = await import("specviz/words/words.js");
          return [counts.map(grouped), days.map(dayOf)];
        }""",
        [counts, days],
    )
    assert told == [[f"{count:,}" for count in counts], ["5 Nov 2026", "30 Sep 2026", ""]]


def test_every_value_is_read_or_refused() -> None:
    """The values in a page address: ranges and formats."""
    cases = {
        "gamma=1": [1, []], "gamma=16": [16, []], "gamma=0": [None, ["gamma"]],
        "gamma=": [None, ["gamma"]], "gamma=+3": [None, ["gamma"]], "gamma=3.0": [3, []],
        "gamma=0x3": [None, ["gamma"]], "gamma=3&gamma=99": [3, []],
        "gamma=%00": [None, ["gamma"]], "__proto__=1&constructor=2": [None, []],
        "recording=toString": [None, ["recording"]], "preset=__proto__": [None, ["preset"]],
        "gamma=4&drafter=ngram": [4, []], "drafter=n-gram": [None, ["drafter"]],
        f"prompt={'x' * 8001}": [None, ["prompt"]],
    }  # fmt: skip
    read = evaluated(
        """async (queries) => {
          const { readAddress } = await import("specviz/run/address.js");
          const config = { presets: [{ name: "easy" }], recordings: {},
            defaults: { gamma: 5, drafter: "model" }, limits: { gamma: [1, 16] },
            choices: { drafter: ["model", "ngram"] }, whole: ["gamma"], mostPrompt: 8000 };
          return queries.map((query) => {
            const { settings, wrong } = readAddress(`?${query}`, config);
            return [settings.gamma ?? null, wrong];
          });
        }""",
        list(cases),
    )
    assert dict(zip(cases, read, strict=True)) == cases


def test_a_run_says_from_how_many_earlier_texts_it_drafted() -> None:
    """Runs from Python may use earlier texts; the page keeps none."""
    header = {**recorded(SAMPLED).to_dict()["header"], "memory": {"texts": 1, "tokens": 1234}}
    items = called("words/description.js", "describe", header)
    (memory,) = [item for item in items if item["name"] == "memory"]
    assert memory["text"] == "+ 1 earlier text" and "1234 tokens" in memory["title"]


def test_lost_and_repeated_deltas_are_mended() -> None:
    heard = evaluated(
        """async () => {
          const { Store } = await import("specviz/run/store.js");
          const round = (index) => ({ lane: "baseline", index, drafted: [], last: null });
          const told = (seq, next, more) =>
            ({ run: "a", seq, next, over: false, ...more });
          const rounds = (from, to) => [0, 1, 2, 3].slice(from - 1, to - 1).map(round);
          const some = (seq, next) => told(seq, next, { rounds: rounds(seq, next) });
          const header = { lanes: {}, drafts: {} };
          const deltas = [told(0, 0, { status: "wait" }), told(0, 1, { header }), some(1, 3),
            some(3, 4), some(4, 5), told(5, 6, { end: {}, over: true })];
          const heard = [], asked = [];
          const note = (name) => (what) => heard.push(`${name} ${what}`);
          const store = new Store({
            schema: 1,
            ask: async (run, seq) => { asked.push(seq); return [some(seq, 5)]; },
            on: { begun: note("begun"), status: note("status"), over: note("over"),
                  header: () => heard.push("header"), retold: note("retold"), lost() {},
                  rounds: (some) => heard.push(some.map((one) => one.index).join(" ")) },
          });
          for (const place of [0, 1, 1, 2, 4, 4, 2]) store.receive(deltas[place]);
          await new Promise((resume) => setTimeout(resume, 50));
          for (const place of [3, 4, 5, 5]) store.receive(deltas[place]);
          const known = store.trace.rounds.map((one) => one.index);
          store.receive({ run: "b", seq: 0, next: 0, over: true });
          store.receive(deltas[5]);
          return [heard, asked, known];
        }"""
    )
    run = ["begun a", "status wait", "header", "0 1", "2 3", "over null"]
    assert heard == [[*run, "begun b", "over null"], [3], [0, 1, 2, 3]]


def test_several_runs_are_told_by_median_and_quartiles(sentences: Sentences) -> None:
    ratios = [1.5, 3.0, 2.0, 2.5, 1.75]
    words = called("race/repeats.js", "summary", [*ratios, None])
    found = spread(ratios)
    assert f"median {found.median:.2f}, quartiles {found.low:.2f} to {found.high:.2f}" in words
    sentences(words)


@pytest.mark.parametrize("pair", PAIRS)
def test_what_each_question_says_of_the_recordings_is_what_python_counts_in_them(pair: str) -> None:
    asked = json.loads((folder_of(pair) / QUESTIONS).read_text("utf-8"))["asked"]
    names = {one[role] for one in asked for role in ("run", "beside") if role in one}
    folder = ASSETS / "recordings"
    runs = {name: read_recording((folder / f"{name}.json.gz").read_bytes()) for name in names}
    said = evaluated(ANSWERS, [{name: run.to_dict() for name, run in runs.items()}, asked])
    answers = {name: (right, why.replace("\u00a0", " ")) for name, _, right, why in said}
    assert len(answers) == 7
    shown = {one["question"]: (runs[one["run"]], runs.get(one.get("beside", ""))) for one in asked}
    m = {name: tuple(run and compute_metrics(run) for run in both) for name, both in shown.items()}

    right, why = answers["good-enough"]
    rejected = [
        t for t in drafted(shown["good-enough"][0]) if t.outcome == "rejected" and t.u is not None
    ]
    token = max(rejected, key=lambda t: t.p)
    assert right == 1 and f"“{visible(token.text)}” was rejected" in why
    for number in (token.p, token.q, token.p / token.q, token.u):
        assert f" {number:.2f}" in why

    (right, why) = answers["one-guess"]
    (own, _) = m["one-guess"]
    assert right == place(own.speedup, 1) and f"τ = {own.tau:.2f}" in why
    assert f"{100 * own.alpha:.0f} % of the guesses" in why and ratio(own) in why
    (right, why) = answers["judged-only"]
    (own, _) = m["judged-only"]
    assert right == (place(own.alpha, own.efficiency) == 0)
    assert f"other {own.counts['ignored']} guesses" in why
    (right, why) = answers["long-drafts"]
    (own, other) = m["long-drafts"]
    assert right == place(own.speedup, other.speedup)
    assert f"yields {own.tau:.2f} tokens instead of {other.tau:.2f}" in why
    assert f"{ratio(own)} " in why and f"instead of {ratio(other)}" in why
    (right, why) = answers["judging-costs"]
    (own, _) = m["judging-costs"]
    assert right == (place(own.tau, own.speedup) == 0) and f"not {own.tau:.2f}×" in why
    rounds = shown["judging-costs"][0].lane("speculative")
    taken = [sum(getattr(r, part) for r in rounds) for part in PARTS]
    share = float(re.findall(r"([\d.]+) %", why)[0])
    assert share == pytest.approx(100 * taken[0] / sum(taken), rel=0.06, abs=0.05)
    (right, why) = answers["after-temperature"]
    (own, other) = m["after-temperature"]
    assert right == 1 and re.search(f"α is {other.alpha:.2f} at .* and {own.alpha:.2f} at", why)
    (right, why) = answers["same-letters"]
    parted = parting(shown["same-letters"][0])
    assert right == (parted is not None)
    assert (f"diverge after {parted} token" if parted is not None else "Here all") in why


PARTS = ("draft_seconds", "verify_seconds", "overhead_seconds")


def drafted(run: Trace) -> list[Token]:
    return [token for r in run.lane("speculative") for token in r.drafted]


def place(value: float, than: float) -> int:
    """The index of the right answer among "higher", "lower" and "about the same"."""
    return 0 if value > 1.03 * than else 1 if value < 0.97 * than else 2


def ratio(m: Metrics) -> str:
    return f"{m.speedup:.2f}×"


def parting(run: Trace) -> int | None:
    """The first position at which the lanes differ."""
    ours, theirs = ([t.id for r in run.lane(lane) for t in r.emitted] for lane in LANES)
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)


@pytest.mark.parametrize("name", ["easy", "copies", "loses"])
def test_the_page_computes_of_a_recording_what_python_does(name: str) -> None:
    run = read_recording((ASSETS / "recordings" / f"{name}.json.gz").read_bytes())
    metrics, points, doubts = evaluated(
        """async ({ header, rounds }) => {
          const { measure, series } = await import("specviz/facts/metrics.js");
          const { uncertainty } = await import("specviz/facts/uncertainty.js");
          return [measure(rounds, header), series(rounds), uncertainty(rounds)];
        }""",
        run.to_dict(),
    )
    check(metrics, asdict(compute_metrics(run)), "metrics")
    check(points, series(run.rounds), "series")
    found = uncertainty(run)
    check(doubts, found and asdict(found), "uncertainty")


def test_the_verdict_is_plain_when_nothing_can_pay(sentences: Sentences) -> None:
    why = {
        "m": {"drafted": 5, "tau": 2.0, "alpha": 0.5, "tau_predicted": 2.0},
        "costs": {"step": 0.86, "judging": 1.9, "price": 6.2, "gamma": 5},
        "speedup": 0.32,
        "break_even": None,
        "best_gamma": 0,
        "best_speedup": 1.0,
        "speeds": [1.0],
    }
    fixed = {"gamma": 5, "gamma_policy": "fixed"}
    said = called("panels/why.js", "verdictOf", why, fixed)
    sentences(said)
    assert "γ would" not in said  # γ is recommended in one place, next to its bars
    assert called("words/verdict.js", "adapts", {**fixed, "gamma_policy": "optimal"}, 0.7)
    easy = {**why, "costs": {**why["costs"], "judging": 1.0}}  # type: ignore[dict-item]
    sentences(called("panels/why.js", "verdictOf", easy, fixed))


def test_a_round_is_told_in_a_sentence_to_those_who_listen() -> None:
    trace = recorded(SAMPLED)
    rounds = [r for r in trace.rounds if r.lane == "speculative"]
    texts = evaluated(
        """async (rounds) => {
          const { spoken } = await import("specviz/words/words.js");
          return rounds.map(spoken);
        }""",
        [r for r in trace.to_dict()["rounds"] if r["lane"] == "speculative"],
    )
    for r, said in zip(rounds, texts, strict=True):
        own = r.last
        counts = [t.outcome for t in r.drafted]
        assert said.startswith(f"Round {r.index + 1}: ")
        assert visible(own.text) in said
        assert ("is the bonus token" in said) == (own.outcome == "bonus" and bool(counts))
        if own.outcome == "corrected":
            assert f"{counts.count('accepted')} of {len(counts)} guesses accepted" in said
            assert said.endswith(f"the target wrote {visible(own.text)} instead.")


def test_the_last_of_several_turns_is_said_to_be_that(sentences: Sentences) -> None:
    header = recorded(SAMPLED).to_dict()["header"]
    header["question"] = "And how?"
    turns = [{"role": role, "content": "Why?"} for role in ("user", "assistant")]
    header["messages"] = [*turns, {"role": "user", "content": "And how?"}]
    first, *_ = called("words/description.js", "describe", header)
    sentences(first["text"])


def test_a_run_whose_lanes_part_is_read_without_its_alternatives() -> None:
    with eager_only():
        target = llama(64, seed=2, num_hidden_layers=3).to(torch.bfloat16)
        pair = pair_of(target, relative(target, noise=0.1))
        settings = Settings(gamma=4, max_new_tokens=30, ignore_eos=True)
        several = {"two": settings, "three": replace(settings, gamma=3)}
        for lanes in (settings, several):
            run = Trace.from_events(race(pair, [1, 2, 3, 4], lanes))
            told = called("panels/check.js", "bareOf", run.to_dict())
            wanted = parting_of(run)
            assert wanted is not None and parting_of(read_run(told, "")) == wanted
            assert "'probability'" not in str(told)
