"""The time of a model's matrix products with several kernels, the basis of the choice in
`engines/packed/matmul.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..engines.packed.matmul import (
    BlockedProduct,
    PackedProduct,
    Product,
    Rows,
    new_rows,
    small_kernels,
)
from ..models.pair import Pair

ROUNDS = 25  # each kernel runs once per round
ProductRun: TypeAlias = Callable[[Rows, Rows], object]  # arguments: x, and where to put the product


def _product(kind: Callable[[Tensor, None], Product]) -> Callable[[Tensor], ProductRun]:
    return lambda weight: kind(weight, None).into


def _torch(weight: Tensor) -> ProductRun:
    return lambda x, _: torch.nn.functional.linear(x.tensor, weight)


def _numpy(weight: Tensor) -> ProductRun:
    turned = weight.t().contiguous().numpy()
    return lambda x, out: np.dot(x.array, turned, out=out.array)


KERNELS: dict[str, Callable[[Tensor], ProductRun]] = {
    "torch": _torch,
    "torch, oneDNN prepacked": _product(PackedProduct),
    "NumPy": _numpy,
    "NumPy, blocks": _product(BlockedProduct),
}


@torch.inference_mode()
def kernel_seconds(model: Any, widths: Sequence[int]) -> dict[str, dict[int, float]]:
    """The least seconds of all products of a model, by kernel and by number of rows.

    Each kernel multiplies by all weights in the order of a pass, so that the weights come from the
    same caches or memory as in a pass.
    """
    small_kernels()  # one thread
    weights = [m.weight for m in model.modules() if isinstance(m, torch.nn.Linear)]
    by_kernel = {name: [kernel(weight) for weight in weights] for name, kernel in KERNELS.items()}
    seconds = {name: dict.fromkeys(widths, float("inf")) for name in by_kernel}
    for rows in widths:
        x = [new_rows(rows, weight.shape[1]) for weight in weights]
        out = [new_rows(rows, weight.shape[0]) for weight in weights]
        for one in x:
            one.tensor.normal_()
        for _ in range(ROUNDS):
            for name, products in by_kernel.items():
                seconds[name][rows] = min(seconds[name][rows], _once(products, x, out))
    return seconds


def _once(products: Sequence[ProductRun], x: Sequence[Rows], out: Sequence[Rows]) -> float:
    for _ in range(2):  # the first run loads this kernel's weights into the processor's caches
        start = time.perf_counter()
        for product, here, there in zip(products, x, out, strict=True):
            product(here, there)
    return time.perf_counter() - start


def kernel_lines(pair: Pair, widths: Sequence[int]) -> list[str]:
    """A Markdown table of both models' products, in milliseconds."""
    lines = ["| model | kernel | " + " | ".join(f"{n} rows" for n in widths) + " |"]
    lines.append("|---|---|" + "---|" * len(widths))
    for role, model in (("target", pair.target), ("draft", pair.draft)):
        if model is not None:
            for name, by_width in kernel_seconds(model, widths).items():
                cells = " | ".join(f"{by_width[n] * 1e3:.3f}" for n in widths)
                lines.append(f"| {role} | {name} | {cells} |")
    return lines
