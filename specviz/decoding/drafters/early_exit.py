"""Drafts from the target's own first layers, its final norm and its head: self-speculation.

Weights and cache are the target's: a draft step reads the keys and values that the last whole
pass left in the first layers and adds its own, which are rolled back before the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...engines.base import Engine, host_ids
from ...engines.choose import make_engine
from ...engines.cost_model import pass_price, wider_price
from ...errors import PairError
from ...models.pair import Pair, context_length, text_config
from ...models.truncated import layer_count
from ...settings import Settings
from ...theory import best_gamma
from ..sampling import Source, draw, uniforms
from .base import UNLIMITED, Draft, draft_run

TEXT = 48  # tokens of the target's own text that exits are measured on
MOST_DEPTHS = 16  # that are measured, evenly spread over the layers


@dataclass(frozen=True, slots=True)
class Exit:
    """A depth at which the target could draft for itself.

    layers: that are run. beta: mean over a text of the sum of min(p, q) at temperature 1, the
    alpha to expect. c: price of a draft step / price of a whole pass. speedup: predicted from
    both, at its best gamma; below 1 where drafting with it cannot pay.
    """

    layers: int
    beta: float
    c: float
    speedup: float


class ExitDrafter:
    """The target's engine, stopped after its first layers."""

    def __init__(self, pair: Pair, settings: Settings, source: Source, target: Engine) -> None:
        self.layers: int | None = best_exit(pair.target, pair.vocab).layers
        self.form: str | None = target.form
        self._model = pair.target
        self._engine = target
        self._settings = settings
        self._source = source

    def prefill(self, ids: Sequence[int]) -> float:
        return 0.0  # the target has read the prompt for both

    def room(self, length: int) -> int:
        return UNLIMITED  # the target's own context is the limit

    def draft(self, ids: Sequence[int], count: int) -> Draft:
        engine, begin = self._engine, self._engine.length

        def forward(feed: Tensor, heat: float) -> Tensor:
            return engine.forward(feed, keep=1, layers=self.layers, heat=heat)

        feed = host_ids(ids[begin:]).to(engine.device)
        draft = draft_run(forward, feed, count, self._settings, self._source)
        engine.rollback(begin)
        return draft

    def rollback(self, length: int) -> None:
        pass  # the cache is the target's

    def price(self) -> float:
        return pass_price(self._model, self._engine.form, self.layers)


_best: WeakKeyDictionary[Any, dict[int, Exit]] = WeakKeyDictionary()


def best_exit(model: Any, vocab: int) -> Exit:
    """The exit with the highest predicted speed-up, measured once per model.

    The text is drawn with a seed of its own and prices come from sizes, so that every process
    on the same device chooses the same. Raises `PairError` if the model has only one layer or
    its layers cannot be found.
    """
    known = _best.setdefault(model, {})
    if vocab not in known:
        known[vocab] = max(measured_exits(model, vocab), key=lambda found: found.speedup)
    return known[vocab]


@torch.inference_mode()
def measured_exits(model: Any, vocab: int) -> list[Exit]:
    """The exits of a model, shallowest first."""
    layers = layer_count(model)
    if layers < 2:
        raise PairError(
            "the target has only one layer, so it cannot draft with fewer: choose the drafter "
            "'model' or 'ngram'."
        )
    form = make_engine(model, vocab).form
    ids = _own_text(model, vocab)
    whole, wider = pass_price(model, form), wider_price(ids.device)
    p = _softmax(model, vocab, ids)
    found = []
    for depth in _depths(layers):
        q = _softmax(model, vocab, ids, depth)
        beta = min(1.0, torch.minimum(p, q).sum(-1).mean().item())
        c = pass_price(model, form, depth) / whole
        _, speedup = best_gamma(beta, c, wider, least=1)
        found.append(Exit(depth, beta, c, speedup))
    return found


def _depths(layers: int) -> list[int]:
    """Every depth from 1 to layers - 1, or some of them evenly spread."""
    count = min(layers - 1, MOST_DEPTHS)
    return sorted({1 + round(i * (layers - 2) / max(1, count - 1)) for i in range(count)})


def _softmax(model: Any, vocab: int, ids: Tensor, layers: int | None = None) -> Tensor:
    """What follows each of `ids` [n], at temperature 1: fp32 [n, vocab]."""
    logits = make_engine(model, vocab).forward(ids, keep=len(ids), layers=layers)
    return torch.softmax(logits, -1)


def _own_text(model: Any, vocab: int) -> Tensor:
    """A short text that the model draws, int64 [n], after the token that begins its texts."""
    config = text_config(model)
    first = getattr(config, "bos_token_id", None)
    engine = make_engine(model, vocab)
    generator = torch.Generator(engine.device).manual_seed(0)
    limit = context_length(model) or TEXT
    feed = torch.tensor([first if type(first) is int and first < vocab else 0])
    ids = [feed.to(engine.device)]
    for u in uniforms(min(TEXT, limit) - 1, generator):
        p = torch.softmax(engine.forward(ids[-1], keep=1), -1)
        ids.append(draw(p, u.unsqueeze(0).to(p.device)).to(engine.device))
    return torch.cat(ids)
