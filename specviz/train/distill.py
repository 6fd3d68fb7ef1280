"""Distillation: the draft learns the target's distribution, on books and on the target's text."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from transformers import LlamaForCausalLM

from .corpus import Windows
from .loop import Loss, head, hidden_states
from .losses import forward_kl
from .writing import WrittenRows, inputs_and_labels

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


class Autocast(Protocol):
    """What `accelerate.Accelerator` offers here: a context of mixed precision."""

    def autocast(self) -> AbstractContextManager[Any]: ...


def logits_loss(target: Any, vocab: int, accelerator: Autocast) -> Loss:
    """The same loss for any two causal language models, over the ids below `vocab`.

    Only ids that can be drafted and emitted count: both distributions are over those alone, as in a
    race.
    """

    def loss(draft: Any, batch: torch.Tensor) -> torch.Tensor:
        inputs, counted = inputs_and_labels(batch)
        with torch.no_grad(), accelerator.autocast():
            taught = target(input_ids=inputs, use_cache=False).logits[..., :vocab][counted]
        with accelerator.autocast():
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


class BooksThenWritten:
    """Windows of the books for the first part of the budget, then text that the target wrote.

    switch: the share of the budget for books. In a race the draft reads the target's text, so it
    is trained on such text last. One batch in four is still from the books, because their windows
    are longer than the written rows.
    """

    def __init__(self, books: Windows, written: WrittenRows, switch: float) -> None:
        self.books, self.written, self.switch = books, written, switch

    def batch(self, length: int, seen: int, rows: int, progress: float) -> torch.Tensor:
        """The next batch after `seen` trained tokens: ids `[rows, length + 1]` of books, or marked
        rows with about as many tokens. progress: the share of the budget."""
        if progress < self.switch or seen // (rows * length) % 4 == 0:
            return self.books.batch(length, seen, rows)
        return self.written.batch(length, seen, rows)
