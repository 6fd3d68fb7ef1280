"""A draft learns the target's whole distribution: on the books, then on text the target wrote."""

from __future__ import annotations

import torch
from transformers import LlamaForCausalLM

from .corpus import Windows
from .loop import Loss, head, hidden_states
from .losses import forward_kl
from .writing import WrittenRows

EMBEDDING_SIZE = 0.05  # root mean square of inherited embeddings; trained ones end up near 0.1


def distillation_loss(target: LlamaForCausalLM) -> Loss:
    """The loss KL(target || draft) in nats per position, the target in inference only."""

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
    """Begin the draft's embeddings as the target's, along their main directions.

    They are most of a small draft, and hold most of what the target knows of words that go
    together: after the same few steps the loss is a quarter lower than from a random start.
    """
    own = draft.model.embed_tokens.weight  # [vocab, width]
    left, scale, _ = torch.linalg.svd(target.model.embed_tokens.weight, full_matrices=False)
    width = min(own.shape[1], len(scale))
    main = left[:, :width] * scale[:width]
    own[:, :width] = main * (EMBEDDING_SIZE / main.pow(2).mean().sqrt())


class BooksThenWritten:
    """Windows of the books for the first share of the budget, then rows that the target wrote.

    A race shows the draft the target's own text, so that is what it should know best at the end.
    One batch in four stays with the books, whose windows are longer than the written rows.
    """

    def __init__(self, books: Windows, written: WrittenRows, switch: float) -> None:
        self.books, self.written, self.switch = books, written, switch

    def batch(self, length: int, seen: int, rows: int, progress: float) -> torch.Tensor:
        """Ids `[rows, length + 1]` of books, or about as many in rows `[.., own length + 1]`."""
        if progress < self.switch or seen // (rows * length) % 4 == 0:
            return self.books.batch(length, seen, rows)
        return self.written.batch(length, seen, rows)
