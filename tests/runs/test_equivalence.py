"""The equivalence test: it detects a biased sampler, and accepts an exact one."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds
from mpmath import gammainc
from toy_models import llama, pair_of, relative

from specviz import Pair, Settings
from specviz.base.errors import SettingsError
from specviz.core.lanes import BASELINE, LANES, SPECULATIVE, Lane
from specviz.core.tensor_verdict import decide_on_tensors
from specviz.inspect.equivalence import MIN_DRAWS, two_sample_chi_square
from specviz.inspect.prove import draw_continuations
from specviz.page.controls import checked_settings
from specviz.page.delivery import delivery_questions
from specviz.page.failures import answering
from specviz.page.follow_ups import follow_up_questions
from specviz.page.jobs import Run
from specviz.page.queue import RunQueue
from specviz.worker.local import LocalWorker

SETTINGS = Settings(gamma=3, temperature=1.0, seed=3, max_new_tokens=8)
DRAWS = 200  # of an experiment; the biased sampler gives a p-value of 6e-7


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(9, seed=0)
    return pair_of(target, relative(target, noise=0.5))


def drawn(
    pair: Pair, lane: Lane, count: int, settings: Settings = SETTINGS
) -> list[tuple[int, ...]]:
    with bare_rounds():
        return [c.ids for c in draw_continuations(pair, [1, 2], settings, count, 2, lane)]


def samples(pair: Pair, count: int) -> list[list[tuple[int, ...]]]:
    return [drawn(pair, lane, count) for lane in LANES]


@pytest.fixture(scope="module")
def of_the_target(pair: Pair) -> list[tuple[int, ...]]:
    """Draws of the target alone, without a verdict."""
    return drawn(pair, BASELINE, DRAWS)


def test_an_exact_sampler_passes(pair: Pair, of_the_target: list[tuple[int, ...]]) -> None:
    compared = two_sample_chi_square(drawn(pair, SPECULATIVE, DRAWS), of_the_target)
    assert compared.degrees >= 5
    assert compared.p_value is not None and compared.p_value > 0.01


def test_a_sampler_that_accepts_too_often_is_detected(
    pair: Pair, of_the_target: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lenient(p: Any, q: Any, drafted: Any, u: Any, generator: torch.Generator) -> Any:
        return decide_on_tensors(p, q, drafted, u**3, generator)

    monkeypatch.setattr("specviz.core.loop.other_rule_of", lambda _: lenient)
    compared = two_sample_chi_square(drawn(pair, SPECULATIVE, DRAWS), of_the_target)
    assert compared.p_value is not None and compared.p_value < 0.001


def test_draws_repeat_with_their_seed_and_differ_between_lanes(pair: Pair) -> None:
    ours, theirs = samples(pair, 20)
    assert samples(pair, 20) == [ours, theirs]
    assert ours != theirs  # with the same uniforms their first tokens would be equal
    other = Settings(gamma=3, temperature=1.0, seed=4)
    assert drawn(pair, SPECULATIVE, 20, other) != ours
    assert {len(ids) for ids in ours} == {2}


def test_the_statistic_and_its_tail_are_pearsons() -> None:
    counts = ((60, 45), (30, 35), (10, 20))
    a, b = ([(i,) for i, one in enumerate(counts) for _ in range(one[lane])] for lane in (0, 1))
    compared = two_sample_chi_square(a, b)
    # Both lanes drew equally often, so half of an outcome's draws are expected from each.
    statistic = sum((n - sum(one) / 2) ** 2 / (sum(one) / 2) for one in counts for n in one)
    assert compared.statistic == pytest.approx(statistic)
    assert compared.degrees == 2
    tail = float(gammainc(1, statistic / 2, regularized=True))
    assert compared.p_value == pytest.approx(tail)


def test_rare_outcomes_share_a_cell_and_every_draw_is_counted() -> None:
    a = [(1, 1)] * 80 + [(2, i) for i in range(20)]
    b = [(1, 1)] * 70 + [(3, i) for i in range(30)]
    compared = two_sample_chi_square(a, b)
    assert [(c.outcome, c.speculative, c.baseline) for c in compared.cells] == [
        ((1, 1), 80, 70),
        ((), 20, 30),
    ]
    few = two_sample_chi_square([(1,)] * 50 + [(2,)] * 40 + [(3,)], [(1,)] * 51 + [(2,)] * 40)
    assert [(c.speculative, c.baseline) for c in few.cells] == [(50, 51), (41, 40)]
    assert all(c.speculative + c.baseline >= MIN_DRAWS for c in (*compared.cells, *few.cells))


def test_fewer_tokens_are_compared_where_no_continuation_repeats() -> None:
    a = [(i % 2, i) for i in range(100)]
    b = [(i % 2, 100 + i) for i in range(100)]
    compared = two_sample_chi_square(a, b)
    assert compared.length == 1
    assert Counter({c.outcome: c.speculative for c in compared.cells}) == {(0,): 50, (1,): 50}


def test_one_outcome_gives_no_p_value() -> None:
    assert two_sample_chi_square([(1, 2)] * 30, [(1, 2)] * 30).p_value is None
    assert two_sample_chi_square([(i,) for i in range(9)], [(9,)]).p_value is None


def queue_of(pair: Pair) -> RunQueue:
    queue = RunQueue(LocalWorker(lambda *_: pair, lambda *_: iter(())))
    queue.start("toy")
    return queue


def functions_of(queue: RunQueue) -> list[Any]:
    """The page's functions to begin an experiment, to poll it, and to end it."""
    (begin, *_) = follow_up_questions(queue, "toy")
    (_, ask, end, *_) = delivery_questions(queue)
    return [answering(one) for one in (begin, ask, end)]


def finished(ask: Any, state: dict[str, Any]) -> dict[str, Any]:
    while not state["over"]:
        time.sleep(0.02)  # seconds; asking without a pause starves the thread that draws
        state = ask({"id": state["id"]})
    return state


def test_the_page_begins_an_experiment_and_asks_until_it_is_over(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This test may be stalled.
    monkeypatch.setattr("specviz.page.jobs.VISITOR_PATIENCE", float("inf"))
    begin, ask, _ = functions_of(queue_of(pair))
    settings = {"gamma": 3, "temperature": 1.0, "seed": 3}
    asked = {"prompt": "w1 w2", "settings": settings, "draws": 40}
    result = finished(ask, begin(asked))["result"]
    assert sum(cell["ours"] for cell in result["cells"]) == 40
    assert sum(cell["theirs"] for cell in result["cells"]) == 40
    assert all(cell["text"] is None or cell["text"].startswith(" w") for cell in result["cells"])
    again = finished(ask, begin({**asked, "again": 1}))["result"]
    assert again["cells"] != result["cells"]


def test_an_experiment_ends_when_it_is_told_to_or_its_visitor_runs(pair: Pair) -> None:
    queue = queue_of(pair)
    begin, ask, end = functions_of(queue)
    asked = {"prompt": "w1 w2", "settings": {"temperature": 1.0}}
    state = begin(asked)
    end({"id": state["id"]})
    assert finished(ask, state)["stopped"]

    run = Run("one", "toy", "w1", SETTINGS)
    queue.submit(run)
    while not run.over:
        time.sleep(0.02)
    state = begin({"run": run.id, **asked})
    queue.submit(Run("one", "toy", "w1", SETTINGS))
    assert finished(ask, state)["stopped"]


def test_a_run_under_way_is_not_disturbed(pair: Pair) -> None:
    # Not started: its runs wait.
    queue = RunQueue(LocalWorker(lambda *_: pair, lambda *_: iter(())))
    begin, *_ = functions_of(queue)
    run = Run("one", "toy", "w1", SETTINGS)
    queue.submit(run)
    state = begin({"run": run.id})
    assert "still under way" in state["error"]
    assert not run.stopping.is_set()


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"prompt": "w1"},
        {"prompt": "w1", "settings": {"nonsense": 1}},
        {"prompt": "w1", "settings": 3},
    ],
)
def test_invalid_requests_are_rejected_with_a_sentence(pair: Pair, asked: dict[str, Any]) -> None:
    begin, ask, _ = functions_of(queue_of(pair))
    assert begin(asked)["error"].endswith(".")
    assert ask({"id": "unknown"})["error"].endswith(".")
    with pytest.raises(SettingsError):
        checked_settings({"temperature": -1})
