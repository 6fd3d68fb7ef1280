"""Losses over a vocabulary, computed in slices so that only a part of the logits is in memory."""

from __future__ import annotations

from typing import Any

import torch

# Positions per slice: few enough for the cache of a CPU, many enough to use a whole GPU.
CPU_SLICE, DEVICE_SLICE = 128, 8192


class _CrossEntropy(torch.autograd.Function):
    """Mean -log q(label). The forward pass also computes the gradient in the logits,
    q - onehot(label), because it has q."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        total = hidden.new_zeros((), dtype=torch.float32)
        hidden_grad = torch.empty_like(hidden)
        head_grad = torch.zeros_like(head, dtype=torch.float32)
        for part in _slices(hidden):
            logits, picked = hidden[part] @ head.T, labels[part, None]
            q, log_sum = _softmax(logits)  # [slice, vocab], [slice]
            total += (log_sum - logits.gather(1, picked)[:, 0].float()).sum()
            q.scatter_add_(1, picked, q.new_full(picked.shape, -1.0))
            _accumulate(q, hidden, head, part, hidden_grad, head_grad)
        ctx.save_for_backward(hidden_grad, head_grad)
        return total / len(hidden)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        hidden_grad, head_grad = ctx.saved_tensors
        return hidden_grad * grads[0], head_grad * grads[0], None


class _ForwardKL(torch.autograd.Function):
    """Mean KL(p || q) for a teacher's p; the gradient in the logits is q - p."""

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
        for part in _slices(hidden):
            taught, logits = teacher_hidden[part] @ teacher_head.T, hidden[part] @ head.T
            p, taught_sum = _softmax(taught)
            q, log_sum = _softmax(logits)
            gap = torch.linalg.vecdot(p, (taught - logits).float())  # [slice]
            total += (gap - taught_sum + log_sum).sum()
            _accumulate(q.sub_(p), hidden, head, part, hidden_grad, head_grad)
        ctx.save_for_backward(hidden_grad, head_grad)
        return total / len(hidden)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        hidden_grad, head_grad = ctx.saved_tensors
        return hidden_grad * grads[0], head_grad * grads[0], None, None


def cross_entropy(hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean nats per token. hidden `[n, width]`, head `[vocab, width]`, labels `[n]` ids."""
    loss: torch.Tensor = _CrossEntropy.apply(hidden, head, labels)  # type: ignore[no-untyped-call]
    return loss


def forward_kl(
    hidden: torch.Tensor,
    head: torch.Tensor,
    teacher_hidden: torch.Tensor,
    teacher_head: torch.Tensor,
) -> torch.Tensor:
    """Mean nats per position. hidden `[n, width]`, head `[vocab, width]`; the teacher likewise."""
    rows = (hidden, head, teacher_hidden, teacher_head)
    loss: torch.Tensor = _ForwardKL.apply(*rows)  # type: ignore[no-untyped-call]
    return loss


def _softmax(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The probabilities in fp32, and the logarithm of the sum of exponentials: one `exp` per entry,
    since log p = logit - log_sum at the largest logit."""
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.float32)
    return probabilities, logits.amax(-1).float() - probabilities.amax(-1).log()


def _slices(hidden: torch.Tensor) -> list[slice]:
    size = CPU_SLICE if hidden.device.type == "cpu" else DEVICE_SLICE
    return [slice(start, start + size) for start in range(0, len(hidden), size)]


def _accumulate(
    grad: torch.Tensor,
    hidden: torch.Tensor,
    head: torch.Tensor,
    part: slice,
    hidden_grad: torch.Tensor,
    head_grad: torch.Tensor,
) -> None:
    grad = grad.to(hidden.dtype)  # [slice, vocab]
    hidden_grad[part] = grad @ head / len(hidden)
    head_grad += grad.T @ hidden[part] / len(hidden)
