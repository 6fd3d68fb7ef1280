"""Short continuations of a prompt, drawn many times over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from ..core.events import Round
from ..core.loop import decode
from ..lanes import LANES, Lane
from ..pairs.pair import Pair
from ..settings import RANGES, Settings
from .equivalence import Continuation


def draw_continuations(
    pair: Pair, prompt: Sequence[int], settings: Settings, count: int, length: int, lane: Lane
) -> Iterator[Continuation]:
    """`count` independent continuations of `prompt`, each of at most `length` tokens.

    Raises `SpecvizError` subclasses. The generator may be abandoned at any point.
    """
    ids = pair.encode(list(prompt))
    for seed in _seeds(settings.seed, count, lane):
        own = replace(settings, max_new_tokens=length, seed=seed, stop=())
        events = decode(pair, ids, own, lane)
        tokens = [token for r in events if isinstance(r, Round) for token in r.emitted]
        yield Continuation(tuple(t.id for t in tokens), "".join(t.text for t in tokens))


def _seeds(seed: int, count: int, lane: Lane) -> list[int]:
    # No draw shares its seed with one of the other lane: lanes that draw with the same uniforms
    # would agree more than chance allows, and the test would find nothing.
    generator = torch.Generator().manual_seed(seed)
    most = int(RANGES["seed"][1])
    drawn = torch.randint(0, most, (len(LANES), count), generator=generator)
    return [int(value) for value in drawn[LANES.index(lane)].tolist()]
