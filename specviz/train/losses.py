"""Losses over a vocabulary: cross entropy, and what a draft learns of its target's distribution.
Also what is known without a race: held-out perplexity and the expected acceptance of a draft.

Losses are computed in slices, so that only a part of the logits is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers import LlamaForCausalLM

from ..errors import ModelError
from .loop import Loss, head, hidden_states
from .writing import Ids, inputs_and_labels, marked_rows

# Positions per slice: few enough for the cache of a CPU, many enough to use a whole GPU.
CPU_SLICE, DEVICE_SLICE = 128, 8192


PartLoss = Callable[[torch.Tensor, slice], tuple[torch.Tensor, torch.Tensor]]
"""From the logits [slice, vocab] at these positions to the sum of their losses, and its gradient in
the logits in fp32."""


class _InSlices(torch.autograd.Function):
    """The mean of a loss over all positions. Its gradient is computed with it: the forward pass has
    the probabilities that both need."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, head: torch.Tensor, loss: PartLoss) -> torch.Tensor:
        size = CPU_SLICE if hidden.device.type == "cpu" else DEVICE_SLICE
        total = hidden.new_zeros((), dtype=torch.float32)
        hidden_grad = torch.empty_like(hidden)
        head_grad = torch.zeros_like(head, dtype=torch.float32)
        for start in range(0, len(hidden), size):
            part = slice(start, start + size)
            summed, grad = loss(hidden[part] @ head.T, part)
            total += summed
            grad = grad.to(hidden.dtype)  # [slice, vocab]
            hidden_grad[part] = grad @ head / len(hidden)
            head_grad += grad.T @ hidden[part] / len(hidden)
        ctx.save_for_backward(hidden_grad, head_grad)
        return total / len(hidden)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        hidden_grad, head_grad = ctx.saved_tensors
        return hidden_grad * grads[0], head_grad * grads[0], None


def cross_entropy(hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean -log q(label) in nats. hidden `[n, width]`, head `[vocab, width]`, labels `[n]` ids. The
    gradient in the logits is q - onehot(label)."""

    def part_loss(logits: torch.Tensor, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        picked = labels[part, None]
        q, log_sum = _softmax(logits)  # [slice, vocab], [slice]
        summed = (log_sum - logits.gather(1, picked)[:, 0].float()).sum()
        return summed, q.scatter_add_(1, picked, q.new_full(picked.shape, -1.0))

    loss: torch.Tensor = _InSlices.apply(hidden, head, part_loss)  # type: ignore[no-untyped-call]
    return loss


def forward_kl(
    hidden: torch.Tensor,
    head: torch.Tensor,
    teacher_hidden: torch.Tensor,
    teacher_head: torch.Tensor,
) -> torch.Tensor:
    """Mean KL(p || q) in nats for a teacher's p. hidden `[n, width]`, head `[vocab, width]`; the
    teacher likewise. The gradient in the logits is q - p."""

    def part_loss(logits: torch.Tensor, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        taught = teacher_hidden[part] @ teacher_head.T
        p, taught_sum = _softmax(taught)
        q, log_sum = _softmax(logits)
        gap = torch.linalg.vecdot(p, (taught - logits).float())  # [slice]
        return (gap - taught_sum + log_sum).sum(), q.sub_(p)

    loss: torch.Tensor = _InSlices.apply(hidden, head, part_loss)  # type: ignore[no-untyped-call]
    return loss


def _softmax(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The probabilities in fp32, and the logarithm of the sum of exponentials: one `exp` per entry,
    since log p = logit - log_sum at the largest logit."""
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.float32)
    return probabilities, logits.amax(-1).float() - probabilities.amax(-1).log()


EMBEDDING_SIZE = 0.05  # root mean square of inherited embeddings; after training it is about 0.1


def distillation_loss(target: LlamaForCausalLM) -> Loss:
    """The loss KL(target || draft), in nats per position (Hinton et al. 2015, arXiv 1503.02531),
    for two models that `build_model` made. The logits are computed in slices.

    The target is not trained.
    """

    def loss(draft: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
        inputs, counted = inputs_and_labels(batch)
        with torch.no_grad():
            taught = hidden_states(target, inputs)[counted]
            taught_head = head(target)
        hidden = hidden_states(draft, inputs)[counted]
        return forward_kl(hidden, head(draft), taught, taught_head)

    return loss


def logits_loss(target: Any, vocab: int, *, half: bool = False) -> Loss:
    """The same loss for any two causal language models, over the ids below `vocab`. half: whether
    their products are in bf16.

    Only ids that can be drafted and emitted count: both distributions are over those alone, as in a
    race.
    """

    def loss(draft: Any, batch: torch.Tensor) -> torch.Tensor:
        inputs, counted = inputs_and_labels(batch)
        mixed = torch.autocast(inputs.device.type, torch.bfloat16, enabled=half)
        with torch.no_grad(), mixed:
            taught = target(input_ids=inputs, use_cache=False).logits[..., :vocab][counted]
        with mixed:
            logits = draft(input_ids=inputs, use_cache=False).logits[..., :vocab][counted]
        log_p = taught.float().to(logits.device).log_softmax(-1)  # [positions, vocab]
        log_q = logits.float().log_softmax(-1)
        return torch.nn.functional.kl_div(log_q, log_p, log_target=True, reduction="batchmean")

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
