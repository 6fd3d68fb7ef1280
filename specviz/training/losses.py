"""Losses over a vocabulary, computed in slices so that the logits never exist all at once."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import log_softmax

SLICE = 2048  # positions whose logits are held at a time


class _CrossEntropy(torch.autograd.Function):
    """Mean -log q(label). The gradient, q - onehot(label), is made while q is at hand."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        total = hidden.new_zeros((), dtype=torch.float32)
        hidden_grad = torch.empty_like(hidden)
        head_grad = torch.zeros_like(head, dtype=torch.float32)
        for part in _slices(len(hidden)):
            log_q = log_softmax((hidden[part] @ head.T).float(), dim=-1)  # [slice, vocab]
            picked = labels[part, None]
            total -= log_q.gather(1, picked).sum()
            grad = log_q.exp_()
            grad.scatter_add_(1, picked, grad.new_full(picked.shape, -1.0))
            _accumulate(grad, hidden, head, part, hidden_grad, head_grad)
        ctx.save_for_backward(hidden_grad, head_grad)
        return total / len(hidden)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        hidden_grad, head_grad = ctx.saved_tensors
        return hidden_grad * grads[0], head_grad * grads[0], None


class _ForwardKL(torch.autograd.Function):
    """Mean KL(p || q) for a teacher's p. Its gradient in the logits is q - p."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        head: torch.Tensor,
        teacher_hidden: torch.Tensor,
        teacher_head: torch.Tensor,
    ) -> torch.Tensor:
        total = hidden.new_zeros((), dtype=torch.float32)
        hidden_grad = torch.empty_like(hidden)
        head_grad = torch.zeros_like(head, dtype=torch.float32)
        for part in _slices(len(hidden)):
            log_p = log_softmax((teacher_hidden[part] @ teacher_head.T).float(), dim=-1)
            log_q = log_softmax((hidden[part] @ head.T).float(), dim=-1)  # [slice, vocab]
            p = log_p.exp()
            total += (p * (log_p - log_q)).sum()
            _accumulate(log_q.exp_().sub_(p), hidden, head, part, hidden_grad, head_grad)
        ctx.save_for_backward(hidden_grad, head_grad)
        return total / len(hidden)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        hidden_grad, head_grad = ctx.saved_tensors
        return hidden_grad * grads[0], head_grad * grads[0], None, None


def cross_entropy(hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean nats per token. hidden `[n, width]`, head `[vocab, width]`, labels `[n]` ids."""
    return _CrossEntropy.apply(hidden, head, labels)


def forward_kl(
    hidden: torch.Tensor,
    head: torch.Tensor,
    teacher_hidden: torch.Tensor,
    teacher_head: torch.Tensor,
) -> torch.Tensor:
    """Mean nats per position. hidden `[n, width]`, head `[vocab, width]`; the teacher likewise."""
    return _ForwardKL.apply(hidden, head, teacher_hidden, teacher_head)


def _slices(rows: int) -> list[slice]:
    return [slice(start, min(start + SLICE, rows)) for start in range(0, rows, SLICE)]


def _accumulate(
    grad: torch.Tensor,
    hidden: torch.Tensor,
    head: torch.Tensor,
    part: slice,
    hidden_grad: torch.Tensor,
    head_grad: torch.Tensor,
) -> None:
    grad = (grad / len(hidden)).to(hidden.dtype)  # [slice, vocab]
    hidden_grad[part] = grad @ head
    head_grad += grad.T @ hidden[part]
