"""Held-out perplexity, and how often a draft would be accepted, without running a race."""

from __future__ import annotations

import math

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
    """Mean nats per token over consecutive windows of `length`, up to `limit` tokens (0: all).

    Each window starts without context, so the figure is an upper bound.
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
    """The probability that a drafted token is accepted after each id of `[rows, n]`: `[rows, n]`.

    At a temperature it is the sum of min(p, q); greedy it is 1 where both prefer the same token.
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
    """Mean acceptance over text that the target writes after prompts `[rows, n]`."""
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


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens per round if acceptances are independent: (1 - alpha^(gamma+1)) / (1 - alpha)."""
    if math.isclose(alpha, 1.0):
        return gamma + 1.0
    return (1 - alpha ** (gamma + 1)) / (1 - alpha)
