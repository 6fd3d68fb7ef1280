"""Distillation: the draft learns the target's distribution, on books and on the target's text."""

from __future__ import annotations

import torch
from transformers import LlamaForCausalLM

from .corpus import Windows
from .loop import Loss, head, hidden_states
from .losses import forward_kl
from .writing import WrittenRows

EMBEDDING_SIZE = 0.05  # root mean square of inherited embeddings; after training it is about 0.1


def distillation_loss(target: LlamaForCausalLM) -> Loss:
    """The loss KL(target || draft), in nats per position (Hinton et al. 2015, arXiv 1503.02531).

    The target is not trained.
    """

    def loss(draft: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
        inputs = ids[:, :-1]
        with torch.no_grad():
            taught = hidden_states(target, inputs).flatten(0, 1)
            taught_head = head(target)
        hidden = hidden_states(draft, inputs).flatten(0, 1)
        return forward_kl(hidden, head(draft), taught, taught_head)

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
        """The next batch after `seen` trained tokens: ids `[rows, length + 1]` of books, or about
        as many ids in rows of the written text's own length. progress: the share of the budget."""
        if progress < self.switch or seen // (rows * length) % 4 == 0:
            return self.books.batch(length, seen, rows)
        return self.written.batch(length, seen, rows)
