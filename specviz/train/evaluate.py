"""Evaluation without a race: held-out perplexity and the expected acceptance rate of a draft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import LlamaForCausalLM

from ..errors import ModelError
from .loop import head, hidden_states
from .losses import cross_entropy
from .writing import Ids, inputs_and_labels, marked_rows

ROWS = 8  # windows or texts per forward


@torch.no_grad()
def held_out_loss(
    model: LlamaForCausalLM, tokens: np.ndarray, *, length: int, limit: int = 0
) -> float:
    """Mean loss in nats per token over consecutive windows of `length` tokens.

    tokens: ids `[n]`. limit: the most tokens to use; 0 is all. Each window starts without context,
    so the result is an upper bound.
    """
    length = min(length, len(tokens) - 1)
    windows = (len(tokens) - 1) // length
    if limit:
        windows = min(windows, max(1, limit // length))
    ids = torch.from_numpy(tokens[: windows * length + 1].astype(np.int64)).to(model.device)
    total = 0.0
    for first in range(0, windows, ROWS):
        count = min(ROWS, windows - first)
        part = ids[first * length : (first + count) * length + 1]
        inputs, labels = part[:-1].view(count, length), part[1:]
        hidden = hidden_states(model, inputs).flatten(0, 1)
        total += count * cross_entropy(hidden, head(model), labels).item()
    return total / windows


@torch.no_grad()
def acceptance(
    target: Any, draft: Any, ids: torch.Tensor, *, temperature: float, vocab: int | None = None
) -> torch.Tensor:
    """The probability that a drafted token is accepted after each of the ids `[rows, n]`.

    Returns `[rows, n]`: the sum over the vocabulary of min(p, q) (Leviathan et al. 2022,
    arXiv 2211.17192, section 3.2); at temperature 0, 1 where both models have the same likeliest
    token and 0 elsewhere. vocab: only ids below it can be drafted and emitted; None is all.
    """
    p: torch.Tensor = target(input_ids=ids, use_cache=False).logits[..., :vocab].float()
    q: torch.Tensor = draft(input_ids=ids, use_cache=False).logits[..., :vocab].float()
    q = q.to(p.device)
    if temperature == 0:
        return (p.argmax(-1) == q.argmax(-1)).float()
    return torch.minimum((p / temperature).softmax(-1), (q / temperature).softmax(-1)).sum(-1)


def text_alphas(
    target: Any,
    draft: Any,
    prompts: Sequence[Ids],
    texts: Sequence[Ids],
    *,
    temperature: float,
    vocab: int | None = None,
) -> list[float]:
    """The mean of `acceptance` over what was written after each prompt, one value for each text.

    texts: prompts with what the target wrote after them. Raises `ModelError` if a model's
    probabilities are not finite.
    """
    found: list[float] = []
    for first in range(0, len(texts), ROWS):
        part = slice(first, first + ROWS)
        width = max(map(len, texts[part]))
        rows = marked_rows(prompts[part], texts[part], width, pad=0)
        ids, counted = inputs_and_labels(torch.from_numpy(rows).long().to(target.device))
        kept = acceptance(target, draft, ids, temperature=temperature, vocab=vocab)
        counted = counted.to(kept.device)
        found += ((kept * counted).sum(1) / counted.sum(1)).tolist()
    if not all(map(np.isfinite, found)):
        raise ModelError(
            "a model's probabilities are not finite: load it in another dtype, or choose another "
            "model."
        )
    return found
