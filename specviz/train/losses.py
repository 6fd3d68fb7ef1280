"""The loss of a draft against its target, and its expected acceptance, both without a race."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ..base.errors import ModelError
from .loop import Loss
from .writing import Ids, inputs_and_labels, marked_rows

ROWS = 8  # texts per forward


def logits_loss(target: Any, vocab: int, *, half: bool = False) -> Loss:
    """The loss KL(target || draft), in nats per position (Hinton et al. 2015, arXiv 1503.02531).
    Both distributions are over the ids below `vocab`, which can be drafted and emitted, as in a
    race. half: whether products are in bf16. The target is not trained."""

    def loss(draft: Any, batch: torch.Tensor) -> torch.Tensor:
        inputs, counted = inputs_and_labels(batch)
        mixed = torch.autocast(inputs.device.type, torch.bfloat16, enabled=half)
        with torch.no_grad(), mixed:
            target_logits = _logits(target, inputs, vocab)[counted]
        with mixed:
            logits = _logits(draft, inputs, vocab)[counted]
        log_p = target_logits.float().to(logits.device).log_softmax(-1)  # [positions, vocab]
        log_q = logits.float().log_softmax(-1)
        return functional.kl_div(log_q, log_p, log_target=True, reduction="batchmean")

    return loss


@torch.no_grad()
def acceptance(
    target: Any, draft: Any, ids: torch.Tensor, *, temperature: float, vocab: int | None = None
) -> torch.Tensor:
    """The probability that a drafted token is accepted after each of the ids `[rows, n]`.

    Returns `[rows, n]`: the sum over the vocabulary of min(p, q) (Leviathan et al. 2022, arXiv
    2211.17192, section 3.2); at temperature 0, 1 where both models have the same likeliest token
    and 0 elsewhere. vocab: only ids below it can be drafted and emitted; None for all.
    """
    target_logits = _logits(target, ids, vocab).float()
    draft_logits = _logits(draft, ids, vocab).float().to(target_logits.device)
    if temperature == 0:
        target_ids = target_logits.argmax(-1)
        draft_ids = draft_logits.argmax(-1)
        return (target_ids == draft_ids).float()
    p = (target_logits / temperature).softmax(-1)
    q = (draft_logits / temperature).softmax(-1)
    return torch.minimum(p, q).sum(-1)


def _logits(model: Any, ids: torch.Tensor, vocab: int | None) -> torch.Tensor:
    """The logits of one pass over ids [rows, n], of the ids below `vocab`: [rows, n, vocab]."""
    logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    return logits[..., :vocab]


def text_alphas(
    target: Any,
    draft: Any,
    prompts: Sequence[Ids],
    texts: Sequence[Ids],
    *,
    temperature: float,
    vocab: int | None = None,
) -> list[float]:
    """The mean of `acceptance` over each prompt's continuation, one value per text.

    texts: prompts with the target's continuations. Raises `ModelError` if a model's probabilities
    are not finite.
    """
    alphas: list[float] = []
    for first in range(0, len(texts), ROWS):
        part_texts = texts[first : first + ROWS]
        part_prompts = prompts[first : first + ROWS]
        width = max(map(len, part_texts))
        rows = marked_rows(part_prompts, part_texts, width, pad=0)
        batch = torch.from_numpy(rows).long().to(target.device)
        ids, counted = inputs_and_labels(batch)
        accepted = acceptance(target, draft, ids, temperature=temperature, vocab=vocab)
        counted = counted.to(accepted.device)
        totals = (accepted * counted).sum(1)
        means = totals / counted.sum(1)
        alphas += means.tolist()
    if not all(map(np.isfinite, alphas)):
        raise ModelError(
            "the probabilities of a model are not finite: load it in another dtype, or choose "
            "another model."
        )
    return alphas
