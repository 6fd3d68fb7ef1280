"""Exact decoding from single draws of the target, without its distributions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from reference_distribution import Ids, p_value
from test_verdicts import GAMMA, UNLIKE, WORDS, drafts, law, rows, tables
from torch import Tensor

from specviz.sides.served import drawn
from specviz.sides.served.drawn import decide_by_draws
from specviz.sides.served.interface import Drawn

SAMPLES = 2500
SIGNIFICANCE = 1e-4
Table = dict[Ids, Tensor]


def endless(chance: np.random.Generator, row: Tensor) -> Iterator[Drawn]:
    p = row.double().numpy()
    while True:
        y = int(chance.choice(WORDS, p=p / p.sum()))
        yield Drawn(y, float(p[y]), {})


def texts_of(target: Table, draft: Table) -> list[Ids]:
    """Write texts of GAMMA + 1 tokens: one round judged by draws, the rest drawn from the
    target."""
    chance = np.random.default_rng(3)
    runs, masses = zip(*drafts(draft), strict=True)
    texts = []
    for place in chance.choice(len(runs), SAMPLES, p=np.array(masses) / sum(masses)):
        ids = runs[place]
        p = rows(target, ids, GAMMA + 1)
        q = rows(draft, ids, GAMMA).numpy()
        accepted, last = decide_by_draws(
            [float(p[i, token]) for i, token in enumerate(ids)],
            q,
            ids,
            chance.random(GAMMA).tolist(),
            lambda at, p=p: endless(chance, p[at]),
            chance.random,
        )
        text = (*ids[:accepted], last.id)
        while len(text) <= GAMMA:
            text = (*text, next(endless(chance, target[text])).id)
        texts.append(text)
    return texts


def test_whole_texts_follow_the_target_and_a_wrong_rule_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, draft = (tables(seed) for seed in UNLIKE)
    assert p_value(texts_of(target, draft), law(target)) > SIGNIFICANCE
    # If every draw were kept, a rejected position would follow p instead of the residual of p and
    # q.
    monkeypatch.setattr(drawn, "MAX_TRIES", 0)
    assert p_value(texts_of(target, draft), law(target)) < SIGNIFICANCE


def test_where_p_and_q_do_not_differ_it_ends() -> None:
    q = np.array([[0.5, 0.5]], np.float32)
    told = (Drawn(1, 0.5, {}) for _ in range(drawn.MAX_TRIES + 1))
    accepted, last = decide_by_draws([0.0], q, [0], [0.3], lambda _: told, lambda: 0.0)
    assert (accepted, last.id) == (0, 1)
