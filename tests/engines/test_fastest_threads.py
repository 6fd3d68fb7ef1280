"""A lane runs with the number of threads that makes its rounds fastest on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from toy_models import llama, pair_of, relative

from specviz import Pair, Settings, race
from specviz.core import threads
from specviz.core.engine_choice import eager_only, make_engine
from specviz.core.lanes import BASELINE, SPECULATIVE
from specviz.core.loop import start_lane
from specviz.core.threads import thread_counts, use_threads
from specviz.sides.fast_cpu import fastest_threads as module
from specviz.sides.fast_cpu.engine import CompiledEngine
from specviz.sides.fast_cpu.fastest_threads import fastest_threads

SMALL = {"hidden_size": 64, "num_hidden_layers": 2}


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend eight processors, on which more threads pay for any pass."""
    monkeypatch.setattr(threads, "processors", lambda: 8)
    monkeypatch.setattr("specviz.sides.fast_cpu.engine.BYTES_PER_THREAD", 1)
    return


@pytest.fixture(autouse=True)
def free_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECVIZ_THREADS", raising=False)


def toy_pair() -> Pair:
    target = llama(64, **SMALL)
    return pair_of(target, relative(target, noise=0.1))


def pretended(monkeypatch: pytest.MonkeyPatch, seconds: dict[tuple[int, bool], float]) -> None:
    """Make rounds take scripted times. seconds: by the target's threads and whether a draft takes
    part."""

    def of(target: CompiledEngine, *drafts: object, width: int) -> float:
        return seconds[target.threads, bool(drafts)]

    monkeypatch.setattr(module, "_seconds", of)


def threads_of_lanes(pair: Pair) -> dict[str, int]:
    header = next(race(pair, [1, 2, 3], Settings(max_new_tokens=2)))
    return header.lane_threads


def test_numbers_to_choose_from(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, wanted in ((1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])):
        monkeypatch.setattr(threads, "processors", lambda n=processors: n)
        assert thread_counts() == wanted
    monkeypatch.setattr(threads, "_left_to_the_page", 1)
    assert thread_counts() == [1, 2, 4, 7]
    with use_threads(5):
        assert thread_counts() == [5]
    monkeypatch.setenv("SPECVIZ_THREADS", "3")
    assert thread_counts() == [3]


def test_each_lane_has_its_own_best_number(eight: None, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {1: 8.0, 2: 4.0, 4: 3.0, 8: 2.99}  # eight threads gain too little
    drafting = {1: 5.0, 2: 4.0, 4: 6.0, 8: 9.0}
    by_draft = ((alone, False), (drafting, True))
    pretended(monkeypatch, {(n, d): s for times, d in by_draft for n, s in times.items()})
    pair = toy_pair()
    assert fastest_threads(pair.target, None, pair.vocab, 1) == 4
    assert fastest_threads(pair.target, pair.draft, pair.vocab, 6) == 2
    assert threads_of_lanes(pair) == {"speculative": 2, "baseline": 4}
    for lane, number in ((SPECULATIVE, 2), (BASELINE, 4)):
        target = start_lane(pair, [1, 2, 3], Settings(), lane).target_engine
        assert isinstance(target, CompiledEngine) and target.threads == number


def test_it_is_measured_once(eight: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended(monkeypatch, {(n, False): float(n) for n in (1, 2, 4, 8)})
    target = llama(64, **SMALL)
    assert fastest_threads(target, None, 64, 1) == 1
    monkeypatch.setattr(module, "_measured", None)
    assert fastest_threads(target, None, 64, 1) == 1


def test_the_rounds_are_made(eight: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)  # one turn of each number
    pair = toy_pair()
    assert fastest_threads(pair.target, pair.draft, pair.vocab, 6) in thread_counts()
    short = llama(64, max_position_embeddings=8, **SMALL)
    assert fastest_threads(short, None, 64, 6) in thread_counts()


def test_other_engines_run_with_the_threads_of_torch(
    eight: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended(monkeypatch, {(n, d): 1 / n for n in (1, 2, 4, 8) for d in (False, True)})
    pair = toy_pair()
    with eager_only():
        assert set(threads_of_lanes(pair).values()) == {torch.get_num_threads()}
    assert torch.get_num_threads() < 8
    assert set(threads_of_lanes(pair).values()) == {8}


def test_a_fixed_number_is_used(eight: None) -> None:
    target = llama(64, **SMALL)
    with use_threads(3):
        assert make_engine(target, 64).threads == 3  # type: ignore[attr-defined]
        assert fastest_threads(target, None, 64, 1) == 3
