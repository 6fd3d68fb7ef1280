"""Rounds that a device runs alone: the text and the draws of the other paths, with one wait each.

On a processor a program runs when it is called, so the next round is over before the previous one
is read. `LateDevice` is the other extreme: it runs nothing before the host waits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds
from reference_distribution import text_p_value
from sentences import Sentences
from stand_in_device import host_waits, on_device, stand_in
from toy_models import emitted_ids, generated, llama, pair_of, relative

from specviz import Pair, Settings, baseline, race, speculate
from specviz.core.loop import LaneRun, start_lane
from specviz.sides.fast_gpu import engine as engines
from specviz.sides.fast_gpu.cache import Program
from specviz.sides.fast_gpu.rounds import (
    DeviceRounds,
    Mark,
    RoundFunction,
    step_by_step,
)

PROMPT = [3, 1, 4, 1, 5]
VOCAB = 40
SAMPLED = Settings(gamma=3, temperature=0.9, top_k=9, top_p=0.9, max_new_tokens=40, seed=3)

pytestmark = pytest.mark.usefixtures("static_form")


def started(pair: Pair, settings: Settings) -> LaneRun:
    run = start_lane(pair, PROMPT, settings, "speculative")
    run.prefill()
    return run


def draws_of(pair: Pair, settings: Settings) -> list[Any]:
    """The ids, outcomes and draws of a lane, without the clocks."""
    rounds = list(speculate(pair, PROMPT, settings))
    return [(t.id, t.outcome, t.u) for r in rounds for t in (*r.drafted, r.emitted[-1])]


class LateDevice:
    """A device that runs the programs of rounds in the order of their calls, as late as possible.

    max_rounds: the largest number of rounds enqueued at once.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.max_rounds = 0
        self._queue: list[Any] = []
        self._runs = False
        self._call = Program.__call__
        self._set = Mark.set
        monkeypatch.setattr(Program, "__call__", lambda *arguments: self._enqueue(*arguments))
        monkeypatch.setattr(Mark, "set", lambda mark: self._enqueue_mark(mark))
        monkeypatch.setattr(Mark, "wait", lambda mark: self._run_until(mark))

    def _enqueue(self, program: Program, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not isinstance(program.function, RoundFunction) or not program.outputs:
            assert not self._queue, "the stream runs in order"
            return self._call(program, *inputs)
        self._queue.append((program, inputs))
        self.max_rounds = max(self.max_rounds, sum(type(job) is tuple for job in self._queue))
        return program.outputs

    def _enqueue_mark(self, mark: Mark) -> None:
        if self._runs:
            self._set(mark)
        else:
            self._queue.append(mark)

    def _run_until(self, mark: Mark) -> None:
        self._runs = True
        while mark in self._queue:
            job = self._queue.pop(0)
            if isinstance(job, Mark):
                self._set(job)
            else:
                self._call(job[0], *job[1])
        self._runs = False


@pytest.mark.parametrize("drafter", ["model", "early-exit"])
def test_whole_rounds_draw_what_single_steps_draw(pair: Pair, drafter: str):
    settings = replace(SAMPLED, drafter=drafter)
    whole = draws_of(pair, settings)
    with step_by_step():
        assert started(pair, settings).whole_rounds is None
        single = draws_of(pair, settings)
    assert whole == single
    assert {"accepted", "rejected", "bonus"} <= {outcome for _, outcome, _ in whole}


@pytest.mark.parametrize("settings", [SAMPLED, Settings(gamma=2, max_new_tokens=40)])
def test_a_device_that_runs_late_writes_the_same(
    pair: Pair, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    """A round that was enqueued ahead depends on no value that the host has read."""
    wanted = draws_of(pair, settings)
    alone = emitted_ids(baseline(pair, PROMPT, settings))
    late = LateDevice(monkeypatch)
    assert draws_of(pair, settings) == wanted
    assert emitted_ids(baseline(pair, PROMPT, settings)) == alone
    assert late.max_rounds == 2


def test_greedy_lanes_agree_with_generate_while_buffers_grow(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("specviz.sides.fast_gpu.path.AHEAD", 4)
    settings = Settings(gamma=3, max_new_tokens=50)
    wanted = generated(pair.target, PROMPT, 50)
    *rounds, end = race(pair, PROMPT, settings)
    assert end.identical
    for lane in ("speculative", "baseline"):
        assert emitted_ids(r for r in rounds[1:] if r.lane == lane) == wanted


def test_a_long_sampled_text_follows_the_target():
    """The verdict is `block`; tests/engines/test_static.py tests the token rule."""
    settings = Settings(gamma=2, temperature=1.5, top_k=3, top_p=0.8, verdict="block")
    settings = replace(settings, max_new_tokens=250)
    pair = pair_of(llama(4, seed=0), llama(4, seed=1))
    with bare_rounds():
        text = emitted_ids(speculate(pair, [2, 0], settings))
    assert text_p_value(pair.target, [2, 0], text, settings) > 1e-4
    assert text_p_value(pair.target, [2, 0], text, replace(settings, temperature=1.0)) < 1e-4


def test_only_the_last_rounds_of_a_budget_are_single_steps(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    calls: list[bool] = []
    whole_round = DeviceRounds.round

    def noted(rounds: DeviceRounds, ids: list[int], is_followed: bool) -> Any:
        calls.append(is_followed)
        return whole_round(rounds, ids, is_followed)

    monkeypatch.setattr(DeviceRounds, "round", noted)
    run = started(pair, Settings(gamma=3, max_new_tokens=40))
    widths = []
    while run.ended is None:
        widths.append(len(run.round().drafted))
    assert len(calls) == widths.count(3) > 8
    assert not any(width > 3 for width in widths) and sorted(widths, reverse=True) == widths
    # Rounds are enqueued ahead only while another whole round is certain to follow.
    assert calls == sorted(calls, reverse=True) and calls.count(False) <= 4


def test_nothing_is_enqueued_that_could_draft_another_number(pair: Pair):
    room_for_two = started(pair, Settings(gamma=3, max_new_tokens=8))
    assert room_for_two._is_followed(3)
    less = started(pair, Settings(gamma=3, max_new_tokens=7))
    assert not less._is_followed(3)


def test_a_policy_that_reads_verdicts_has_no_whole_rounds(pair: Pair):
    settings = Settings(gamma=3, max_new_tokens=20)
    for policy in ("heuristic", "optimal", "confidence"):
        assert started(pair, replace(settings, gamma_policy=policy)).whole_rounds is None
    assert started(pair, replace(settings, drafter="ngram")).whole_rounds is None
    assert started(pair, settings).whole_rounds is not None
    assert started(pair, replace(settings, gamma=0)).whole_rounds is not None


def test_an_end_within_a_round_ends_the_lane_though_another_one_is_enqueued(pair: Pair):
    text = generated(pair.target, PROMPT, 40)
    ending = pair_of(pair.target, pair.draft)
    end_id = text[9]
    ending.__dict__["eos_ids"] = frozenset([end_id])
    first = text.index(end_id)
    settings = Settings(gamma=3, max_new_tokens=40)
    assert emitted_ids(speculate(ending, PROMPT, settings)) == text[: first + 1]


def test_a_round_that_was_followed_has_no_overhead(pair: Pair):
    run = started(pair, Settings(gamma=3, max_new_tokens=40))
    rounds = []
    while run.ended is None:
        is_whole = run.gamma() == 3
        is_followed = is_whole and run._is_followed(3)
        before = run.clock
        r = run.round()
        parts = r.draft_seconds + r.verify_seconds + r.overhead_seconds
        assert r.clock - before == pytest.approx(parts)
        assert r.draft_seconds > 0 < r.verify_seconds or not is_whole
        assert r.wall > r.clock
        rounds.append((is_followed, r.overhead_seconds > 0))
    assert (True, False) in rounds and (False, True) in rounds and (True, True) not in rounds


def test_a_second_run_makes_no_program(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    settings = Settings(gamma=3, max_new_tokens=30)
    wanted = emitted_ids(speculate(pair, PROMPT, settings))
    monkeypatch.setattr(engines, "Program", None)
    assert emitted_ids(speculate(pair, PROMPT, settings)) == wanted


def test_a_program_is_of_two_caches(pair: Pair):
    """A program that was made with another cache of the draft would read that cache."""
    with step_by_step():
        wanted = draws_of(pair, SAMPLED)
    engines._pools.clear()
    list(speculate(pair, PROMPT[::-1], SAMPLED))
    kept = engines._pools[pair.draft]._idle.pop()
    assert draws_of(pair, SAMPLED) == wanted
    del kept


def test_whole_rounds_go_on_after_one_that_the_host_took_part_in(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(LaneRun, "_is_followed", lambda *_: False)
    run = started(pair, Settings(gamma=3, max_new_tokens=40))
    for _ in range(3):
        run.round()
        with torch.inference_mode():
            run.commit(run.path.judge(run.ids, None))
        assert run.whole_rounds is not None and run.whole_rounds.fits(run.ids, 3)
    assert run.ids == PROMPT + generated(pair.target, PROMPT, len(run.ids) - len(PROMPT))


def test_a_round_that_cannot_be_a_program_is_told_once_and_done_in_steps(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
):
    settings = Settings(gamma=3, max_new_tokens=20)
    wanted = emitted_ids(speculate(pair, PROMPT, settings))
    engines._pools.clear()

    def fails(*_: Any) -> Any:
        raise RuntimeError("no event can be recorded here\nsome trace")

    monkeypatch.setattr(RoundFunction, "__call__", fails)
    with sentences.warns(UserWarning):
        assert emitted_ids(speculate(pair, PROMPT, settings)) == wanted
        assert emitted_ids(speculate(pair, PROMPT, settings)) == wanted
    assert engines._pool_of(pair.target, VOCAB).refusal is None, "its passes are programs still"


# On a device other than the host


@pytest.mark.usefixtures(stand_in.__name__)
@pytest.mark.parametrize("drafter", ["model", "early-exit", "none"])
@pytest.mark.parametrize("policy", ["fixed", "optimal"])
def test_the_host_waits_once_a_round_and_once_for_its_cards(drafter: str, policy: str):
    target = llama(VOCAB, num_hidden_layers=2, initializer_range=0.2)
    draft = relative(target, noise=0.1)
    pair = pair_of(on_device(target), on_device(draft))
    settings = replace(SAMPLED, gamma_policy=policy, max_new_tokens=16)
    if drafter == "none":
        settings = replace(settings, gamma=0)
    else:
        settings = replace(settings, drafter=drafter)
    run = started(pair, settings)
    assert (run.whole_rounds is None) == (policy == "optimal" and drafter != "none")
    with host_waits() as waits:
        count = 0
        while run.ended is None:
            run.round()
            count += 1
    assert waits == ["tolist", "_to_copy"] * count and count > 3
