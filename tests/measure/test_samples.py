"""The measurement behind bench and sweep: writers take turns, and delays of the machine are
detected."""

from __future__ import annotations

import pytest
import torch
from toy_models import VirtualTime, mini, pair_of

from specviz import Settings
from specviz.core.messages import TextPrompt
from specviz.core.threads import thread_limit
from specviz.measure.bench.lanes import measured
from specviz.measure.races import RaceStopped, raced
from specviz.measure.samples import SPECVIZ, Comparison, Variant, Writer, Written, by_turns

ALONE = Variant(SPECVIZ, "baseline")
SERVER = Variant("a server, by its own clock", "baseline")


def test_writers_take_turns_on_every_prompt_after_a_turn_that_is_not_counted() -> None:
    written: list[tuple[str, TextPrompt]] = []

    def writer(name: str) -> Writer:
        def write(prompt: TextPrompt) -> Written:
            written.append((name, prompt))
            return Written({ALONE: 1.0})

        return Writer(name, write)

    ready: list[int] = []
    writers = [writer("a"), writer("b"), writer("c")]
    samples = list(by_turns(writers, ["x", "y"], 2, lambda: ready.append(len(written))))
    assert ready == [3] and written[:3] == [("a", "x"), ("b", "x"), ("c", "x")]
    counted_calls = written[3:]
    turns = ["".join(name for name, _ in counted_calls[i : i + 3]) for i in range(0, 12, 3)]
    assert turns == ["abc", "bca", "cab", "abc"], "another writer begins each turn"
    counted = [(sample.writer.name, ["x", "y"][sample.prompt]) for sample in samples]
    assert counted == counted_calls
    assert [sample.repeat for sample in samples] == 6 * [0] + 6 * [1]


def test_a_writer_computes_with_its_threads_and_no_other_does() -> None:
    seen: list[tuple[int, int]] = []

    def write(prompt: TextPrompt) -> Written:
        seen.append((torch.get_num_threads(), thread_limit()))
        return Written({ALONE: 2.0})

    usual = (torch.get_num_threads(), thread_limit())
    samples = list(by_turns([Writer("own", write, 3), Writer("usual", write)], ["x"], 1))
    assert seen == [(3, 3), usual] * 2
    assert [variant.threads for variant in Comparison.of(samples).rates] == [3, 0]
    assert (torch.get_num_threads(), thread_limit()) == usual


def test_a_variant_without_a_rate_in_every_turn_is_not_compared() -> None:
    times = iter([{SERVER: 1.0}, {SERVER: 1.0}, {}])

    def answer(prompt: TextPrompt) -> Written:
        return Written({ALONE: 2.0, **next(times)})

    samples = list(by_turns([Writer("server", answer)], ["x"], 2))
    assert list(Comparison.of(samples).rates) == [ALONE]


def test_a_race_that_is_stopped_is_no_sample() -> None:
    with pytest.raises(RaceStopped):
        raced(pair_of(mini(12)), "w1 w2", Settings(drafter="ngram"), lambda: True)


def test_bench_counts_the_races_that_something_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualTime()
    monkeypatch.setattr("specviz.core.clock.time", clock)
    settings = Settings(drafter="ngram", max_new_tokens=12, ignore_eos=True)
    delays = []
    for factor in (1.0, 20.0):
        target = clock.charge(
            mini(12, spread=6.0),
            0.01,
            load=lambda passes, _, factor=factor: factor if passes > 80 else 1.0,
        )
        (row,), _, _ = measured(pair_of(target), ["w1 w2 w3"], settings, 4, with_generate=False)
        delays.append(row.busy_runs)
    assert delays[0] == 0 and 0 < delays[1] < 4
