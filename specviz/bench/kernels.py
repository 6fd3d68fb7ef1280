"""The time of a model's matrix products by kernel and number of rows: the lanes' own kernel, and
what else could multiply on a processor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..engines.compiled.products import MOST_ROWS
from ..engines.compiled.rows import Sizes, arranged_rows, product
from ..engines.compiled.vector import BYTES, KINDS
from ..models.pair import Pair

ROUNDS = 25  # each kernel runs once per round
Product: TypeAlias = Callable[[Tensor], object]  # of x, fp32 [rows, inputs]


def _compiled(weight: Tensor) -> Product:
    outputs, inputs = weight.shape
    kind = KINDS[str(weight.dtype).removeprefix("torch.")]
    sizes = Sizes(kind, BYTES[kind], inputs, outputs, 1, 1, 1, outputs, 1, 0, threads=1)

    def run(x: Tensor) -> None:
        y = np.empty((len(x), outputs), np.float32)
        product(sizes, arranged_rows(kind, x.numpy()), weight.data_ptr(), 0, 0, outputs, y)

    return run


def _torch(weight: Tensor) -> Product:
    wide = weight.float()
    return lambda x: torch.nn.functional.linear(x, wide)


def _transposed(weight: Tensor) -> Product:
    turned = weight.float().t().contiguous()
    return lambda x: torch.mm(x, turned)


def _packed(weight: Tensor) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.float(), MOST_ROWS)
    operator = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: operator(x, packed, None, "none", [], "")


def _numpy(weight: Tensor) -> Product:
    turned = weight.float().t().contiguous().numpy()
    return lambda x: np.dot(x.numpy(), turned)


KERNELS: dict[str, Callable[[Tensor], Product]] = {
    "compiled, weights in place": _compiled,
    "torch linear, fp32": _torch,
    "torch mm, fp32, transposed": _transposed,
    "oneDNN prepacked, fp32": _packed,
    "NumPy, fp32": _numpy,
}


@torch.inference_mode()
def kernel_seconds(model: Any, widths: Sequence[int]) -> dict[str, dict[int, float]]:
    """The least seconds of all products of a model, by kernel and by number of rows.

    Each kernel multiplies by all weights in the order of a pass, so that the weights come from the
    same caches or memory as in a pass.
    """
    weights = [m.weight for m in model.modules() if isinstance(m, torch.nn.Linear)]
    kernels = dict(KERNELS)
    if not torch.backends.mkldnn.is_available():
        del kernels["oneDNN prepacked, fp32"]
    by_kernel = {name: [kernel(weight) for weight in weights] for name, kernel in kernels.items()}
    seconds = {name: dict.fromkeys(widths, float("inf")) for name in by_kernel}
    for rows in widths:
        x = [torch.randn(rows, weight.shape[1]) for weight in weights]
        for _ in range(ROUNDS):
            for name, products in by_kernel.items():
                seconds[name][rows] = min(seconds[name][rows], _once(products, x))
    return seconds


def _once(products: Sequence[Product], x: Sequence[Tensor]) -> float:
    for _ in range(2):  # the first run loads this kernel's weights into the processor's caches
        start = time.perf_counter()
        for run, here in zip(products, x, strict=True):
            run(here)
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
