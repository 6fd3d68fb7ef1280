"""The weights of a GGUF file: read, checked, and in the form in which passes read them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from torch import Tensor

from ..errors import PairError
from .gguf import GgufHeader, GgufTensor
from .memory import shown_bytes
from .model_files import digest_of
from .progress import Progress, Watcher

PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Kinds of tensors that are not packed."""

PIECE = 1 << 22  # weights that are unpacked at a time
NO_NUMBERS = "the file holds weights that are no numbers: download it again."

SCALES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
"""Where the scales of a block lie, fp16: bytes from its begin on."""


class HeldTensor(NamedTuple):
    """A tensor of a file.

    packed_as: the kind of its blocks, or None if `data` are numbers. data: uint8 [rows, bytes of a
    row], or numbers in the shape that the file gives.
    """

    packed_as: str | None
    data: Tensor


class PackedWeights(NamedTuple):
    """What a file holds. tensors: by their names in the file. digest: its SHA-256."""

    tensors: dict[str, HeldTensor]
    digest: str


class ReadAhead:
    """Reads the weights of files in a thread of its own, one file after the other, while this one
    imports the modules of their models.

    free: bytes of memory that the weights of all files together may take.
    """

    def __init__(self, free: int) -> None:
        self._free = free
        self._pool = ThreadPoolExecutor(1, "weights")
        self._reading: dict[Path, Future[PackedWeights]] = {}
        self._ended = threading.Event()

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._pool.shutdown(cancel_futures=True)

    def begin(
        self, header: GgufHeader, name: str, dtype: torch.dtype | None, on_progress: Watcher | None
    ) -> None:
        """Read a file that fits into memory, as `read_weights` does; another one waits until it is
        known whether there is room for it."""
        need = header.stored if dtype is None else dtype.itemsize * header.parameters
        if need > self._free or header.path in self._reading:
            return
        self._free -= need
        self._reading[header.path] = self._pool.submit(
            read_weights, header, name, dtype, on_progress, self._ended
        )

    def weights(
        self, header: GgufHeader, name: str, dtype: torch.dtype | None, on_progress: Watcher | None
    ) -> PackedWeights:
        """What `read_weights` gives for a file, with the dtype that it was begun with."""
        reading = self._reading.pop(header.path, None)
        if reading is None:
            return read_weights(header, name, dtype, on_progress)
        return reading.result()


def read_weights(
    header: GgufHeader,
    name: str,
    dtype: torch.dtype | None = None,
    on_progress: Watcher | None = None,
    ended: threading.Event | None = None,
) -> PackedWeights:
    """The weights of a file.

    name: what the model is called. dtype: in which matrices are unpacked; None leaves them as they
    are, but for a kind that passes read faster in another one. ended: once it is set, nobody waits
    for the weights, and `CancelledError` is raised. Raises `PairError` if the file cannot be read
    or holds weights that are no numbers.
    """

    def check_ended(_: int = 0) -> None:
        if ended is not None and ended.is_set():
            raise CancelledError

    tensors: dict[str, HeldTensor] = {}
    with ThreadPoolExecutor(1) as pool:
        digest = pool.submit(digest_of, header.path, check_ended)
        for key, data in _tensors(header, name, on_progress):
            tensors[key] = _held(header, key, data, dtype)
            check_ended()
        return PackedWeights(tensors, digest.result())


def _tensors(
    header: GgufHeader, name: str, on_progress: Watcher | None
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a file by name, in its order: uint8 [rows, bytes]."""
    sentence = f"reading {name} ({shown_bytes(header.stored)})"
    done = 0
    try:
        with header.path.open("rb") as file:
            for key, tensor in sorted(header.tensors.items(), key=lambda item: item[1].start):
                data = torch.empty(tensor.bytes, dtype=torch.uint8)
                file.seek(header.begin + tensor.start)
                if file.readinto(data.numpy().data) != tensor.bytes:
                    raise PairError(f"{header.path.name} is cut off: download it again.")
                yield key, data.view(tensor.shape[0], -1)
                done += tensor.bytes
                if on_progress is not None:
                    on_progress(Progress(sentence, done / header.stored))
    except OSError as error:
        raise PairError(f"{header.path.name} cannot be read ({error.strerror}).") from error


def _held(header: GgufHeader, name: str, data: Tensor, dtype: torch.dtype | None) -> HeldTensor:
    """A tensor as it is kept. Raises `PairError` if its weights are no numbers."""
    tensor = header.tensors[name]
    heads = _rotated_heads(header, name)
    if heads is not None:
        data = _halves_apart(data, heads)
    if tensor.kind in PLAIN:
        numbers = data.view(PLAIN[tensor.kind]).view(tensor.shape)
        _check(numbers)
        if len(tensor.shape) == 1:
            return HeldTensor(None, numbers.float())
        return HeldTensor(None, numbers if dtype is None else numbers.to(dtype))
    _check_scales(tensor, data)
    if dtype is not None:
        return HeldTensor(None, _unpacked_as(data, tensor.kind, tensor.shape[1], dtype))
    if tensor.kind == "Q5_0":  # passes read Q8_0 in half of the time
        from ..sides.fast_cpu.products import as_q8_0  # which imports numba

        return HeldTensor("Q8_0", torch.from_numpy(as_q8_0(data.numpy())))
    return HeldTensor(tensor.kind, data)


def unpacked(blocks: Tensor, kind: str, width: int) -> Tensor:
    """The weights of rows of blocks, uint8 [rows, bytes], in fp32 [rows, width]: those that the
    package `gguf` computes."""
    from ..sides.fast_cpu.products import unpack  # which imports numba

    # Transformers changes torch's default dtype, of all threads, while it makes a model.
    weights = torch.empty(len(blocks), width, dtype=torch.float32)
    unpack(kind, blocks.detach().contiguous().numpy(), weights.numpy())
    return weights


def _unpacked_as(data: Tensor, kind: str, width: int, dtype: torch.dtype) -> Tensor:
    weights = torch.empty(len(data), width, dtype=dtype)
    step = max(1, PIECE // width)
    for begin in range(0, len(data), step):
        part = slice(begin, begin + step)
        weights[part] = unpacked(data[part], kind, width)
    return weights


def _rotated_heads(header: GgufHeader, name: str) -> int | None:
    """The number of heads of a projection whose outputs llama.cpp rotates in another order than
    transformers, or None."""
    part = name.split(".")[-2]
    if header.architecture != "llama" or part not in ("attn_q", "attn_k"):
        return None
    heads = header.number("attention.head_count") or 0
    if part == "attn_k":
        heads = header.number("attention.head_count_kv") or heads
    return int(heads)


def _halves_apart(rows: Tensor, heads: int) -> Tensor:
    """Outputs of a projection of queries or keys, reordered for a rotation of halves.

    llama.cpp rotates, in this architecture, outputs 2i and 2i + 1 of a head together; transformers
    rotates i and i + head_dim / 2.
    """
    pairs = rows.view(heads, len(rows) // heads // 2, 2, -1)
    return pairs.transpose(1, 2).reshape(rows.shape)


def _check(numbers: Tensor) -> None:
    if not bool(torch.isfinite(numbers).all()):
        raise PairError(NO_NUMBERS)


def _check_scales(tensor: GgufTensor, data: Tensor) -> None:
    """Whether all weights of blocks are numbers: those whose scales are."""
    _, size = GGML_QUANT_SIZES[GGMLQuantizationType[tensor.kind]]
    blocks = data.numpy().reshape(-1, size)
    for offset in SCALES[tensor.kind]:
        halves = np.ascontiguousarray(blocks[:, offset : offset + 2]).view(np.uint16)
        if ((halves & 0x7C00) == 0x7C00).any():
            raise PairError(NO_NUMBERS)
