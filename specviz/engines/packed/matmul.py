"""Matrix products of a few rows on a processor: which kernel multiplies how many rows.

The choice is a table, not a race at load: kernels differ in the last bit, and a seed must write
the same text again tomorrow, when the machine may be busier. docs/performance.md has the
measurements behind it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]

BLOCK = 32  # columns of a matrix that lie together
ALIGNED = 16  # numbers that a kernel reads at a time, if they lie well
# Its kernels take six rows at once, and other numbers up to six in two goes: 1.2 ms against 1.5
# to 1.8 for all of the built-in target's products.
PADDED = {3: 6, 4: 6, 5: 6}
# OpenBLAS's names for processors on which it multiplies small blocks where they lie: AVX-512.
SMALL_KERNELS = ("skylakex", "cooperlake", "sapphirerapids")
# What its functions are called, in NumPy's own build and in others.
NAMES = tuple(a + "{}" + b for a in ("scipy_openblas", "openblas") for b in ("64_", ""))
PACKING_WIDTH = 256  # narrower matrices stay in cache, where packing only adds a call's cost
PACKED_ROWS = 6  # a hint to the packer: a verify pass of gamma = 5


class Rows(NamedTuple):
    """A contiguous fp32 matrix [n, width], as torch and as NumPy see its memory.

    padded: the same rows and perhaps some more behind them, [m, width]. blocks: [width / BLOCK,
    m, BLOCK], the whole blocks of its columns.
    """

    tensor: Tensor
    array: Floats
    padded: Floats
    blocks: Floats

    def part(self, rows: slice) -> Rows:
        """Some of the rows."""
        array = self.array[rows]
        return Rows(self.tensor[rows], array, array, self.blocks[:, : len(self.array)][:, rows])


def rows_of(count: int, tensor: Tensor, padded: Floats) -> Rows:
    """The first `count` rows of one memory [m, width], seen as `Rows`."""
    rows, width = padded.shape
    whole = padded if width % BLOCK == 0 else padded[:, : width // BLOCK * BLOCK]
    blocks = whole.reshape(rows, width // BLOCK, BLOCK).transpose(1, 0, 2)
    if count == rows:
        return Rows(tensor, padded, padded, blocks)
    return Rows(tensor[:count], padded[:count], padded, blocks)


def new_rows(count: int, width: int) -> Rows:
    """Rows of zeros. torch's memory is aligned, so that kernels round alike each time."""
    with torch.inference_mode(False):  # or nothing could write to it outside of that mode
        tensor = torch.zeros(padded_rows(count), width)
    return rows_of(count, tensor, tensor.numpy())


def padded_rows(count: int) -> int:
    """With how many rows so many are multiplied soonest."""
    return PADDED.get(count, count)


class Product(Protocol):
    """x [n, inputs] to x @ weight.T + bias [n, outputs]."""

    def into(self, x: Rows, out: Rows) -> None:
        """Write the product of `x` into `out`; both lie contiguous."""
        ...


def product(weight: Tensor, bias: Tensor | None) -> Product:
    """The product with fp32 `weight` [outputs, inputs] and `bias` [outputs], if any, in the
    layout that suits this processor and as many threads as torch now has."""
    if small_kernels() and threads() == 1:
        return BlockedProduct(weight, bias)
    return PackedProduct(weight, bias)


def threads() -> int:
    """How many threads a product may use."""
    return torch.get_num_threads()


class BlockedProduct:
    """Blocks of columns, each small enough to be multiplied where it lies.

    A pass over several rows then reads each weight once, in order, and costs little more than
    one over a single row, which has the same layout and so finds it in the cache.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        outputs, inputs = weight.shape
        whole = outputs // BLOCK * BLOCK
        self._whole = whole
        blocks = weight[:whole].view(-1, BLOCK, inputs).transpose(1, 2).contiguous()
        self.blocks: Floats = blocks.numpy()  # [outputs / BLOCK, inputs, BLOCK]
        self._rest = weight[whole:].t().contiguous().numpy()  # [inputs, what is left]
        self._bias = None if bias is None else bias.numpy()

    def into(self, x: Rows, out: Rows) -> None:
        np.matmul(x.padded, self.blocks, out=out.blocks)
        if self._rest.size:
            np.matmul(x.array, self._rest, out=out.array[:, self._whole :])
        if self._bias is not None:
            np.add(out.array, self._bias, out=out.array)


def in_one_memory(products: Sequence[Product]) -> None:
    """Move the weights of blocked products behind each other, in the order of a pass.

    From 4 MiB on NumPy asks for huge pages, without which a pass waits for the addresses of some
    thousand small ones.
    """
    blocked = [one for one in products if isinstance(one, BlockedProduct)]
    memory = np.empty(sum(one.blocks.size for one in blocked) + ALIGNED, np.float32)
    begin = -memory.ctypes.data % (4 * ALIGNED) // 4
    for one in blocked:
        place = memory[begin : begin + one.blocks.size].reshape(one.blocks.shape)
        place[:] = one.blocks
        one.blocks = place
        begin += place.size


class PackedProduct:
    """torch's own product for a single row, oneDNN's with prepacked weights for more."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._turned = weight.t().contiguous()  # [inputs, outputs]
        self._bias = bias
        self._packed: Tensor | None = None
        if min(weight.shape) >= PACKING_WIDTH and torch.backends.mkldnn.is_available():
            weight = weight.contiguous()
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS)

    def into(self, x: Rows, out: Rows) -> None:
        if len(x.array) > 1 and self._packed is not None:
            operator = torch.ops.mkldnn._linear_pointwise.default
            out.tensor.copy_(operator(x.tensor, self._packed, self._bias, "none", [], ""))
            return
        torch.mm(x.tensor, self._turned, out=out.tensor)
        if self._bias is not None:
            torch.add(out.tensor, self._bias, out=out.tensor)


@cache
def small_kernels() -> bool:
    """Whether NumPy multiplies small blocks where they lie.

    Whatever the answer, its OpenBLAS is told to start no threads: it would do so for matrices as
    small as a draft's, and wait for the slowest.
    """
    home = Path(np.__file__).parent
    for folder in (home.parent / "numpy.libs", home / ".dylibs", home / ".libs"):
        for path in sorted(folder.glob("*openblas*")):
            library = ctypes.CDLL(str(path))
            for name in (n for n in NAMES if hasattr(library, n.format("_get_corename"))):
                corename = getattr(library, name.format("_get_corename"))
                corename.restype = ctypes.c_char_p
                getattr(library, name.format("_set_num_threads"))(ctypes.c_int(1))
                return corename().decode().lower() in SMALL_KERNELS
    return False
