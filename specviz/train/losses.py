"""Losses over a vocabulary: cross entropy, and what a draft learns of its target's distribution.
Also what is known without a race: held-out perplexity and the expected acceptance of a draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import LlamaForCausalLM

from ..errors import ModelError
from .loop import Loss
from .writing import Ids, inputs_and_labels, marked_rows


def cross_entropy(model: Any, windows: torch.Tensor) -> torch.Tensor:
    """Mean -log q(next id) in nats over ids `[rows, n + 1]`; products are in bf16."""
    with torch.autocast(windows.device.type, torch.bfloat16):
        logits = model(input_ids=windows[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())


EMBEDDING_SIZE = 0.05  # root mean square of inherited embeddings; after training it is about 0.1


def logits_loss(target: Any, vocab: int, *, half: bool = False) -> Loss:
    """The loss KL(target || draft), in nats per position (Hinton et al. 2015, arXiv 1503.02531),
    over the ids below `vocab`, which can be drafted and emitted: both distributions are over those
    alone, as in a race. half: whether products are in bf16. The target is not trained."""

    def loss(draft: Any, batch: torch.Tensor) -> torch.Tensor:
        inputs, counted = inputs_and_labels(batch)
        mixed = torch.autocast(inputs.device.type, torch.bfloat16, enabled=half)
        with torch.no_grad(), mixed:
            taught = target(input_ids=inputs, use_cache=False).logits[..., :vocab][counted]
        with mixed:
            logits = draft(input_ids=inputs, use_cache=False).logits[..., :vocab][counted]
        log_p = taught.float().to(logits.device).log_softmax(-1)  # [positions, vocab]
        log_q = logits.float().log_softmax(-1)
        return functional.kl_div(log_q, log_p, log_target=True, reduction="batchmean")

    return loss


@torch.no_grad()
def inherit_embeddings(draft: LlamaForCausalLM, target: LlamaForCausalLM) -> None:
    """Initialise the draft's embeddings with the main components of the target's embeddings.

    They are projected by a singular value decomposition. Embeddings are most of a small draft's
    weights: after the same few steps the loss is a quarter lower than with random ones.
    """
    own = draft.model.embed_tokens.weight  # [vocab, width]
    left, scale, _ = torch.linalg.svd(target.model.embed_tokens.weight, full_matrices=False)
    width = min(own.shape[1], len(scale))
    main = left[:, :width] * scale[:width]
    own[:, :width] = main * (EMBEDDING_SIZE / main.pow(2).mean().sqrt())


ROWS = 8  # windows or texts per forward


@torch.no_grad()
def held_out_loss(
    model: LlamaForCausalLM, tokens: np.ndarray, *, length: int, limit: int = 0
) -> float:
    """Mean loss in nats per token over consecutive windows of `length` tokens.

    tokens: ids `[n]`. limit: the most tokens to use; 0 is all. Each window starts without context,
    so the result is an upper bound.
    """
    used = tokens[: limit + 1] if limit else tokens
    length = min(length, len(used) - 1)
    windows = torch.from_numpy(used.astype(np.int64)).to(model.device).unfold(0, length + 1, length)
    parts = windows.split(ROWS)
    return sum(len(part) * cross_entropy(model, part).item() for part in parts) / len(windows)


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
