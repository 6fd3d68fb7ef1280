"""Evaluation without a race: held-out perplexity and the expected acceptance rate of a draft."""

from __future__ import annotations

import numpy as np
import torch
from transformers import LlamaForCausalLM

from .loop import head, hidden_states
from .losses import cross_entropy
from .writing import write

ROWS = 8  # windows per forward


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
    target: LlamaForCausalLM, draft: LlamaForCausalLM, ids: torch.Tensor, *, temperature: float
) -> torch.Tensor:
    """The probability that a drafted token is accepted after each of the ids `[rows, n]`.

    Returns `[rows, n]`: the sum over the vocabulary of min(p, q) (Leviathan et al. 2022,
    arXiv 2211.17192, section 3.2); at temperature 0, 1 where both models have the same likeliest
    token and 0 elsewhere.
    """
    p: torch.Tensor = target(input_ids=ids, use_cache=False).logits.float()
    q: torch.Tensor = draft(input_ids=ids, use_cache=False).logits.float()
    if temperature == 0:
        return (p.argmax(-1) == q.argmax(-1)).float()
    return torch.minimum((p / temperature).softmax(-1), (q / temperature).softmax(-1)).sum(-1)


def estimated_alpha(
    target: LlamaForCausalLM,
    draft: LlamaForCausalLM,
    prompts: torch.Tensor,
    *,
    temperature: float,
    new_tokens: int,
    end_id: int,
    seed: int,
) -> float:
    """The mean of `acceptance` over text that the target writes after prompts `[rows, n]`."""
    ids = write(
        target,
        prompts,
        new_tokens=new_tokens,
        temperatures=torch.full((len(prompts),), temperature, device=prompts.device),
        end_id=end_id,
        generator=torch.Generator(prompts.device).manual_seed(seed),
    )
    kept = acceptance(target, draft, ids[:, :-1], temperature=temperature)
    return kept[:, prompts.shape[1] - 1 :].mean().item()
