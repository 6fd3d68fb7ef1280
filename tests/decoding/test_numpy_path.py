"""Drawing in the host's memory: the same laws and the same draws as the functions on tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from toy_models import emitted_ids, mini, pair_of, relative

from specviz import Settings
from specviz.decoding.drafters.base import draft_run
from specviz.decoding.loop import decode
from specviz.decoding.numpy_path import HostRows, HostSource, make_source
from specviz.decoding.sampling import decide, draw, probabilities
from specviz.trace import Round

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
def test_draws_come_in_the_generators_order_however_many_are_asked_for(sizes: tuple[int, ...]):
    source = HostSource(generator(), Settings(), VOCAB)
    taken = torch.cat([source.take(size) for size in sizes])
    wanted = torch.rand(len(taken), generator=generator(), dtype=torch.float64)
    assert torch.equal(taken, wanted)


@pytest.mark.parametrize("settings", SETTINGS)
def test_rows_written_again_and_again_are_the_distributions(settings: Settings):
    memory = HostRows(settings, VOCAB)
    for seed, count in enumerate([6, 2, 6, 1, 9, 6]):
        logits = rows(count, seed)
        tensor, array = memory.write(logits / memory.heat)
        torch.testing.assert_close(tensor, probabilities(logits, settings))
        assert array.shape == (count, VOCAB)
        assert torch.equal(torch.from_numpy(array), tensor)


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_draft_run_draws_what_the_plain_one_draws(settings: Settings):
    source = make_source(settings, VOCAB, torch.device("cpu"))
    plain = generator(settings.seed)
    assert isinstance(source, HostSource)
    for turn in range(40):
        given = rows(5, turn)

        def forward(feed: torch.Tensor, heat: float, given: torch.Tensor = given) -> torch.Tensor:
            return given[int(feed[-1]) % 5 :][:1] / heat

        feed = torch.tensor([turn])
        ours = draft_run(forward, feed, 4, settings, source)
        theirs = draft_run(forward, feed, 4, settings, plain)
        assert torch.equal(ours.ids, theirs.ids)
        torch.testing.assert_close(ours.q, theirs.q)


def lane(pair: Any, settings: Settings, decider: Any = None) -> list[Round]:
    events = decode(pair, [1, 2, 3], settings, "speculative", decider)
    return [event for event in events if isinstance(event, Round)]


@pytest.mark.parametrize("drafter", ["model", "ngram"])
@pytest.mark.parametrize("settings", SETTINGS[:4])
def test_the_quick_verdict_is_the_plain_one(settings: Settings, drafter: Any):
    """A decider of one's own is asked with tensors; by default the arrays are judged."""

    def plain(*values: Any) -> torch.Tensor:
        return decide(*values)

    target = mini(VOCAB)
    pair = pair_of(target, relative(target, noise=0.1))
    long = replace(settings, gamma=4, max_new_tokens=80, ignore_eos=True, drafter=drafter)
    quick, asked = lane(pair, long), lane(pair, long, plain)
    assert emitted_ids(quick) == emitted_ids(asked)
    assert [[t.u for t in r.drafted] for r in quick] == [[t.u for t in r.drafted] for r in asked]
    if drafter == "model":
        assert {t.outcome for r in quick for t in r.emitted} >= {"accepted", "corrected"}


def test_a_draw_from_a_row_is_the_draw_from_its_tensor():
    settings = Settings(temperature=1.0)
    for seed in range(30):
        logits, u = rows(1, seed), torch.rand(1, generator=generator(seed), dtype=torch.float64)
        drawn = HostRows(settings, VOCAB).drawn(0, logits, u.item())  # heat is 1
        assert torch.equal(drawn, draw(probabilities(logits, settings), u))
