"""What the kernels of `triton_kernels.py` read: the rows of a pass, and matrices in their layout in
a GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROWS = 16  # of a pass; one of fewer tokens is padded

KINDS = {None: 0, "Q8_0": 1, "Q4_0": 2, "Q4_K": 3}
"""Kinds of blocks by the names that GGUF files have for them, None for one number a weight, as the
numbers that kernels take."""

GROUP = 32  # weights that share a scale
SUPER = 256  # weights of a block of Q4_K


@dataclass(frozen=True)
class Matrix:
    """A matrix [outputs, inputs].

    packed_as: None, or the kind of its blocks, whose parts are in tensors of their own:

    - Q8_0: codes int8 [outputs, inputs], scales fp16 [outputs, inputs / 32];
    - Q4_0: codes uint8 [outputs, inputs / 2], of two weights each, the first in the low half;
      scales as those of Q8_0;
    - Q4_K: codes as those of Q4_0; scales uint8 [outputs, inputs / 32, 2] and factors fp16
      [outputs, inputs / 256, 2], each of a scale and a minimum.
    """

    outputs: int
    inputs: int
    data: Tensor
    scales: Tensor
    factors: Tensor
    packed_as: str | None = None

    @classmethod
    def dense(cls, weight: Tensor) -> Matrix:
        """A matrix with one number for each weight, read in place."""
        if not weight.is_contiguous():
            raise ValueError("its weights are not contiguous")
        outputs, inputs = weight.shape
        return cls(outputs, inputs, weight, weight, weight)

    @property
    def kind(self) -> int:
        return KINDS[self.packed_as]


def packed_matrix(blocks: Tensor, packed_as: str, inputs: int) -> Matrix:
    """The matrix of a GGUF tensor.

    blocks: uint8 [outputs, bytes of a row], as the file has them.
    """
    outputs = len(blocks)
    if packed_as == "Q8_0":
        split = blocks.view(outputs, -1, 2 + GROUP)
        codes = split[..., 2:].contiguous().view(torch.int8)
        data = codes.view(outputs, inputs)
        scales = _halves(split[..., :2])
        return Matrix(outputs, inputs, data, scales, factors=scales, packed_as=packed_as)
    if packed_as == "Q4_0":
        split = blocks.view(outputs, -1, 2 + GROUP // 2)
        data = _paired(split[..., 2:]).view(outputs, -1)
        scales = _halves(split[..., :2])
        return Matrix(outputs, inputs, data, scales, factors=scales, packed_as=packed_as)
    if packed_as == "Q4_K":
        split = blocks.view(outputs, -1, 144)
        factors = _halves(split[..., :4])
        scales = _group_scales(split[..., 4:16])
        data = _paired(split[..., 16:].unflatten(-1, (4, GROUP))).view(outputs, -1)
        return Matrix(outputs, inputs, data, scales, factors, packed_as)
    raise ValueError(f"blocks of the kind {packed_as}")


def _halves(data: Tensor) -> Tensor:
    """The fp16 numbers in bytes."""
    return data.contiguous().view(torch.float16)


def _paired(data: Tensor) -> Tensor:
    """Codes of 4 bits, two neighbours in a byte.

    data: uint8 [..., n], whose low halves are codes 0 to n - 1, and whose high ones are the next n.
    """
    codes = torch.cat((data & 15, data >> 4), -1).unflatten(-1, (-1, 2))
    paired: Tensor = codes[..., 0] | codes[..., 1] << 4
    return paired


def _group_scales(data: Tensor) -> Tensor:
    """Scales and minima of 6 bits of the 8 groups of a block of Q4_K: uint8 [..., 8, 2].

    data: uint8 [..., 12]. Four bytes have the scales of the first groups in their low 6 bits, the
    next four their minima. The last four have the low 4 bits of the other scales and minima, whose
    high 2 bits are those that the first eight bytes do not need.
    """
    scales, minima, low = data.unflatten(-1, (3, 4)).unbind(-2)
    later_scales = (low & 15) | (scales >> 6) << 4
    later_minima = (low >> 4) | (minima >> 6) << 4
    all_scales = torch.cat((scales & 63, later_scales), -1)
    all_minima = torch.cat((minima & 63, later_minima), -1)
    return torch.stack((all_scales, all_minima), -1)
