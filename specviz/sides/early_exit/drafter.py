"""Drafts from the target's own first layers, its final norm and its head: self-speculation.

Weights and cache are the target's. A draft step reads the first layers' keys and values of the last
whole pass and adds its own, which are rolled back before the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...base.errors import PairError
from ...core.cost import extra_token_cost, pass_cost, reads_again
from ...core.drafter import UNLIMITED, Drafter
from ...core.engine_choice import make_engine
from ...core.header import described
from ...core.layers import first_layers, layer_count
from ...core.model_facts import context_length, parameter_count, text_config
from ...core.pair import Pair
from ...core.policy import DraftCosts, best_gamma
from ...core.tensor_draws import draw, uniforms
from ...core.types import Draft, RunContext

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

TEXT = 48  # tokens of the target's own text on which early exits are measured
MAX_DEPTHS = 16  # measured depths, evenly spread over the layers


@dataclass(frozen=True, slots=True)
class EarlyExit:
    """A depth at which the target could draft for itself.

    layers: the number of layers in a draft step.
    beta: mean over a text of the sum of min(p, q) at temperature 1, the alpha to expect.
    c: cost of a draft step / cost of a whole pass.
    speedup: predicted from both, at the best gamma; below 1 if drafting with it cannot pay.
    """

    layers: int
    beta: float
    c: float
    speedup: float


class EarlyExitDrafter(Drafter):
    """The target's engine, stopped after its first layers."""

    path: DecodingPath

    def __init__(self, pair: Pair, run: RunContext, target_path: DecodingPath) -> None:
        self.layers = best_exit(pair.target, run.vocab).layers
        self.engine_name = target_path.engine.name
        self.path = target_path
        self._model = pair.target
        self._max_new_tokens = run.settings.max_new_tokens
        self._context = context_length(pair.target) or UNLIMITED

    def prefill(self, ids: Sequence[int]) -> float:
        length = len(ids) + 1
        max_length = min(length + self._max_new_tokens, self._context)
        self.path.prepare("draft", length, max_length, self.layers)
        return 0.0  # the target has read the prompt for both

    def draft(self, ids: Sequence[int], count: int) -> Draft:
        begin = self.path.engine.length
        draft = self.path.draft(ids, count, self.layers, self.min_confidence)
        self.path.engine.rollback(begin)  # the other layers have not seen these tokens
        return draft

    def step_cost(self) -> float:
        return pass_cost(self._model, self.path.engine.name, self.layers)


_best_exits: WeakKeyDictionary[Any, dict[int, EarlyExit]] = WeakKeyDictionary()
"""The best exit by model and by vocabulary size."""


def best_exit(model: Any, vocab: int) -> EarlyExit:
    """The early exit with the highest predicted speed-up, measured once per model.

    The text is drawn with a seed of its own and costs come from sizes, so that every process
    on the same device chooses the same one. Raises `PairError` if the model has only one layer or
    its layers cannot be found.
    """
    by_vocab = _best_exits.setdefault(model, {})
    if vocab not in by_vocab:
        exits = measured_exits(model, vocab)
        by_vocab[vocab] = max(exits, key=lambda early: early.speedup)
    return by_vocab[vocab]


@torch.inference_mode()
def measured_exits(model: Any, vocab: int) -> list[EarlyExit]:
    """The early exits of a model, shallowest first."""
    layers = layer_count(model)
    if layers < 2:
        raise PairError(
            "the target has only one layer, so it cannot draft with fewer: choose the drafter "
            "'model' or 'ngram'."
        )
    engine = make_engine(model, vocab).name
    ids = _own_text(model, vocab)
    whole_pass = pass_cost(model, engine)
    extra_token = extra_token_cost(model, engine)
    again = reads_again(model, engine)
    p = _softmax(model, vocab, ids)
    exits = []
    for depth in _depths(layers):
        q = _softmax(model, vocab, ids, depth)
        overlaps = torch.minimum(p, q).sum(-1)
        beta = min(1.0, overlaps.mean().item())
        c = pass_cost(model, engine, depth) / whole_pass
        _, speedup = best_gamma(beta, DraftCosts(c, extra_token, again), min_gamma=1)
        exits.append(EarlyExit(depth, beta, c, speedup))
    return exits


def _depths(layers: int) -> list[int]:
    """Every depth from 1 to layers - 1, or at most `MAX_DEPTHS`, evenly spread."""
    count = min(layers - 1, MAX_DEPTHS)
    span = layers - 2  # from depth 1 to the deepest
    intervals = max(1, count - 1)
    depths = set()
    for index in range(count):
        beyond_first = round(index * span / intervals)
        depths.add(1 + beyond_first)
    return sorted(depths)


def _softmax(model: Any, vocab: int, ids: Tensor, layers: int | None = None) -> Tensor:
    """The distribution after each of `ids` [n], at temperature 1: fp32 [n, vocab]."""
    engine = make_engine(model, vocab)
    logits = engine.forward(ids, keep=len(ids), layers=layers)
    return torch.softmax(logits, -1)


def _own_text(model: Any, vocab: int) -> Tensor:
    """A short text drawn from the model after its BOS token, int64 [n]."""
    first_id = getattr(text_config(model), "bos_token_id", None)
    if type(first_id) is not int or first_id >= vocab:
        first_id = 0
    engine = make_engine(model, vocab)
    generator = torch.Generator(engine.device).manual_seed(0)
    length = min(TEXT, context_length(model) or TEXT)
    ids = [torch.tensor([first_id]).to(engine.device)]
    for u in uniforms(length - 1, generator):
        logits = engine.forward(ids[-1], keep=1)
        p = torch.softmax(logits, -1)
        uniform = u.unsqueeze(0).to(p.device)
        next_id = draw(p, uniform)
        ids.append(next_id.to(engine.device))
    return torch.cat(ids)


def described_exit(pair: Pair, engine: str, layers: int) -> dict[str, Any]:
    """The description, for a header, of the layers that draft. engine: the name of the engine that
    runs them."""
    description = described(pair.target, engine, context_length(pair.target))
    target_name = description["name"]
    description["name"] = f"{target_name}, layers 1 to {layers}"
    description["parameters"] = parameter_count(first_layers(pair.target, layers))
    return description
