"""The weights of a GGUF file: checked, and in the form in which passes read them.

What a pass reads as it stands stays in the file, which is mapped into memory: it takes no time to
read, no memory beside the system's cache of files, and processes share it."""

from __future__ import annotations

import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray
from torch import Tensor

from ..base.errors import PairError
from ..core.kinds import FP32_PRODUCTS
from ..core.threads import one_torch_thread, used_processors
from .few_bits.unpacking import PIECE, unpacked
from .gguf.header import GgufHeader, GgufTensor
from .gguf.layout import EMBEDDING
from .memory import shown_bytes
from .model_files import digest_of
from .progress import Progress, Watcher

PLAIN: dict[str, type[np.generic]] = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
"""Kinds of tensors that are not packed, as numpy holds them: bf16 as its bits."""

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


class MappedFile(NamedTuple):
    """A file from which weights are mapped. status: what the system said of it then."""

    path: Path
    status: os.stat_result

    def was_written_to(self) -> bool:
        """Whether its content may have changed. Another file that took its place changes nothing,
        since what is mapped stays."""
        try:
            now = self.path.stat()
        except OSError:
            return False
        return os.path.samestat(now, self.status) and (now.st_size, now.st_mtime_ns) != (
            self.status.st_size,
            self.status.st_mtime_ns,
        )


class PackedWeights(NamedTuple):
    """What a file holds. tensors: by their names in the file. digest: its SHA-256. content: the
    bytes that tensors are mapped from."""

    tensors: dict[str, HeldTensor]
    digest: str
    file: MappedFile
    content: mmap.mmap

    def give_back(self, data: Tensor) -> None:
        """Leave the pages of weights that were copied to the system's cache of files. Weights that
        lie elsewhere stay as they are."""
        begin = data.data_ptr() - np.frombuffer(self.content, np.uint8).ctypes.data
        if 0 <= begin < len(self.content):
            _leave_pages(self.content, begin, data.nbytes)


class Reading(NamedTuple):
    """A file whose weights are read, and as what.

    name: what the model is called. dtype: in which matrices are unpacked; None leaves them as they
    are. products: how they are multiplied, one of `PRODUCTS`: for those in fp32 a kind becomes
    another one that passes read faster.
    """

    header: GgufHeader
    name: str
    dtype: torch.dtype | None = None
    products: str = FP32_PRODUCTS
    on_progress: Watcher | None = None


def read_weights(reading: Reading) -> PackedWeights:
    """The weights of a file, whose tensors are shared among the processors.

    As long as they are used, the file must not be written to; another may take its place. Raises
    `PairError` if it cannot be read or holds weights that are no numbers.
    """
    header = reading.header
    sentence = f"reading {reading.name} ({shown_bytes(header.stored)})"
    content, file = _mapped(header)
    hold = partial(_held, reading, np.frombuffer(content, np.uint8)[header.begin :])
    tensors = {}
    names = sorted(header.tensors, key=lambda name: header.tensors[name].start)
    done = 0
    with one_torch_thread(), ThreadPoolExecutor(1 + used_processors()) as pool:
        digest = pool.submit(digest_of, header.path)
        for name, tensor in zip(names, pool.map(hold, names), strict=True):
            tensors[name] = tensor
            begin = header.begin + header.tensors[name].start
            _leave_pages(content, begin, header.tensors[name].bytes)
            done += header.tensors[name].bytes
            if reading.on_progress is not None:
                reading.on_progress(Progress(sentence, done / header.stored))
        return PackedWeights(tensors, digest.result(), file, content)


def _mapped(header: GgufHeader) -> tuple[mmap.mmap, MappedFile]:
    """The bytes of a file. What is written to them stays in memory. Raises `PairError`."""
    try:
        with header.path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:  # the latter of an empty file
        reason = getattr(error, "strerror", None) or error
        raise PairError(f"{header.path.name} cannot be read ({reason}).") from error
    if len(content) < header.begin + header.stored:
        raise PairError(f"{header.path.name} is cut off: download it again.")
    return content, MappedFile(header.path, status)


def _leave_pages(content: mmap.mmap, begin: int, size: int) -> None:
    """Leave pages that were read to the system's cache of files: of a tensor that was unpacked,
    nobody reads them again, and passes that do find them there."""
    if hasattr(mmap, "MADV_DONTNEED"):
        start = begin - begin % mmap.PAGESIZE
        content.madvise(mmap.MADV_DONTNEED, start, begin + size - start)


def _held(reading: Reading, content: NDArray[np.uint8], name: str) -> HeldTensor:
    """A tensor as it is kept. content: of the file, from its first tensor on."""
    header = reading.header
    tensor = header.tensors[name]
    data = _checked(header, name, content)
    kept = reading.dtype
    if tensor.kind in PLAIN:
        numbers = torch.from_numpy(data)
        if tensor.kind == "BF16":
            numbers = numbers.view(torch.bfloat16)
        if len(tensor.shape) == 1:
            kept = torch.float32
        return HeldTensor(None, numbers if kept is None else numbers.to(kept))
    if kept is not None:
        return HeldTensor(None, _unpacked_as(data, tensor.kind, tensor.shape[1], kept))
    is_multiplied = reading.products == FP32_PRODUCTS and (name != EMBEDDING or header.tied)
    if tensor.kind == "Q5_0" and is_multiplied:  # passes read Q8_0 in half of the time
        from .few_bits.products import as_q8_0  # which imports numba

        return HeldTensor("Q8_0", torch.from_numpy(as_q8_0(data)))
    return HeldTensor(tensor.kind, torch.from_numpy(data))


def _checked(header: GgufHeader, name: str, content: NDArray[np.uint8]) -> NDArray[Any]:
    """A tensor in the order in which passes read it: uint8 [rows, bytes of a row], or numbers in
    their shape. Raises `PairError` if its weights are no numbers."""
    tensor = header.tensors[name]
    data = content[tensor.start : tensor.start + tensor.bytes].reshape(tensor.shape[0], -1)
    heads = _rotated_heads(header, name)
    if heads is not None:
        data = _halves_apart(data, heads)
    if tensor.kind in PLAIN:
        numbers = data.view(PLAIN[tensor.kind]).reshape(tensor.shape)
        _check(numbers)
        return np.require(numbers, requirements="A")  # a file may begin its tensors anywhere
    _check_scales(tensor, data)
    return data


def _unpacked_as(data: NDArray[np.uint8], kind: str, width: int, dtype: torch.dtype) -> Tensor:
    blocks = torch.from_numpy(data)
    weights = torch.empty(len(data), width, dtype=dtype)
    step = max(1, PIECE // width)
    for begin in range(0, len(data), step):
        part = slice(begin, begin + step)
        weights[part] = unpacked(blocks[part], kind, width)
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


def _halves_apart(rows: NDArray[np.uint8], heads: int) -> NDArray[np.uint8]:
    """Outputs of a projection of queries or keys, reordered for a rotation of halves.

    llama.cpp rotates, in this architecture, outputs 2i and 2i + 1 of a head together; transformers
    rotates i and i + head_dim / 2.
    """
    pairs = rows.reshape(heads, len(rows) // heads // 2, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _check(numbers: NDArray[Any]) -> None:
    is_bf16 = numbers.dtype == np.uint16
    finite = (numbers & 0x7F80) != 0x7F80 if is_bf16 else np.isfinite(numbers)
    if not finite.all():
        raise PairError(NO_NUMBERS)


def _check_scales(tensor: GgufTensor, data: NDArray[np.uint8]) -> None:
    """Whether all weights of blocks are numbers: those whose scales are."""
    _, size = GGML_QUANT_SIZES[GGMLQuantizationType[tensor.kind]]
    blocks = data.reshape(-1, size)
    for offset in SCALES[tensor.kind]:
        high_bytes = blocks[:, offset + 1]  # with the whole exponent
        if ((high_bytes & 0x7C) == 0x7C).any():
            raise PairError(NO_NUMBERS)
