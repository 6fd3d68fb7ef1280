"""Draws in the host's memory: the same distributions and draws as with the functions on tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from toy_models import emitted_ids, mini, pair_of, relative

from specviz import Settings
from specviz.core.draws import Distributions, HostDraws
from specviz.core.events import Round
from specviz.core.lanes import LANES
from specviz.core.loop import LaneOptions, decode
from specviz.core.numpy_path import NumpyPath
from specviz.core.paths import make_context
from specviz.core.tensor_draws import draw, probabilities
from specviz.core.tensor_path import TensorPath
from specviz.core.tensor_verdict import decide_on_tensors

VOCAB = 37
SETTINGS = [
    Settings(temperature=0.0),
    Settings(temperature=0.7),
    Settings(temperature=1.3, top_k=5),
    Settings(temperature=1.0, top_p=0.6),
    Settings(temperature=1e-30),
]


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return 4 * torch.randn(count, VOCAB, generator=generator(seed))


@pytest.mark.parametrize("sizes", [(1,) * 600, (5, 1) * 90, (300, 7, 0, 511)])
def test_draws_are_the_same_in_whatever_portions_they_are_taken(sizes: tuple[int, ...]):
    parts, whole = (HostDraws(np.random.SeedSequence(3)) for _ in range(2))
    taken = torch.cat([parts.take(size) for size in sizes])
    assert torch.equal(taken, whole.take(len(taken)))
    assert taken.dtype == torch.float64 and taken.min() >= 0 and taken.max() < 1


def test_seeds_and_lanes_have_streams_of_their_own():
    cpu = torch.device("cpu")
    streams = set()
    for seed in (0, 1, 2**32, 2**32 + 1, 2**63 - 1):
        for lane in LANES:
            run = make_context(Settings(seed=seed), VOCAB, cpu, None, lane)
            streams.add(tuple(run.draws.take(3).tolist()))
    assert len(streams) == 10


@pytest.mark.parametrize("settings", SETTINGS)
def test_rows_written_again_and_again_are_the_distributions(settings: Settings):
    memory = Distributions(settings, VOCAB)
    for seed, count in enumerate([6, 2, 6, 1, 9, 6]):
        logits = rows(count, seed)
        tensor, array = memory.write(logits / memory.temperature)
        torch.testing.assert_close(tensor, probabilities(logits, settings))
        assert array.shape == (count, VOCAB)
        assert torch.equal(torch.from_numpy(array), tensor)


class Scripted:
    """An engine whose logits depend on its last input token."""

    device = torch.device("cpu")
    form = "scripted"
    length = 0

    def forward(
        self, ids: torch.Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> torch.Tensor:
        return rows(1, int(ids[-1])) / temperature

    def rollback(self, length: int) -> None:
        pass


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_draft_run_draws_what_the_plain_one_draws(settings: Settings):
    contexts = (
        make_context(settings, VOCAB, torch.device("cpu"), None, "speculative") for _ in range(2)
    )
    ours, plain = (
        path(Scripted(), run) for path, run in zip((NumpyPath, TensorPath), contexts, strict=True)
    )
    for turn in range(40):
        drawn = ours.draft([turn], 4)
        wanted = plain.draft([turn], 4)
        assert torch.equal(drawn.ids, wanted.ids)
        torch.testing.assert_close(drawn.q, wanted.q)


def lane(pair: Any, settings: Settings, rule: Any = None) -> list[Round]:
    events = decode(pair, [1, 2, 3], settings, "speculative", LaneOptions(scripted_rule=rule))
    return [event for event in events if isinstance(event, Round)]


@pytest.mark.parametrize("drafter", ["model", "ngram"])
@pytest.mark.parametrize("settings", SETTINGS[:4])
def test_the_quick_verdict_is_the_plain_one(settings: Settings, drafter: Any):
    """Another rule gets tensors; the token rule judges arrays."""

    def plain(*values: Any) -> torch.Tensor:
        return decide_on_tensors(*values)

    target = mini(VOCAB)
    pair = pair_of(target, relative(target, noise=0.1))
    long = replace(settings, gamma=4, max_new_tokens=80, ignore_eos=True, drafter=drafter)
    quick = lane(pair, long)
    asked = lane(pair, long, plain)
    assert emitted_ids(quick) == emitted_ids(asked)
    assert [[t.u for t in r.drafted] for r in quick] == [[t.u for t in r.drafted] for r in asked]
    if drafter == "model":
        assert {t.outcome for r in quick for t in r.emitted} >= {"accepted", "corrected"}


def test_a_draw_from_a_row_is_the_draw_from_its_tensor():
    settings = Settings(temperature=1.0)
    for seed in range(30):
        logits = rows(1, seed)
        u = torch.rand(1, generator=generator(seed), dtype=torch.float64)
        memory = Distributions(settings, VOCAB)  # its temperature is 1
        memory.reserve(1)
        drawn = memory.draw(0, logits, u.item())
        assert torch.equal(drawn, draw(probabilities(logits, settings), u))
