"""The weights of a GGUF file: checked, and in the form that passes read.

Weights that passes use in their stored format stay in the file, which is mapped into memory.
Reading them takes no time and no memory besides the system's file cache, and processes share it.
"""

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
from ..core.products import FP32_PRODUCTS
from ..core.threads import all_threads, one_torch_thread
from .few_bits.unpacking import PIECE, unpacked
from .gguf.header import GgufHeader, GgufTensor
from .gguf.layout import EMBEDDING
from .memory import shown_bytes
from .model_files import digest_of
from .progress import Progress, Watcher

PLAIN: dict[str, type[np.generic]] = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
"""Kinds of tensors that are not packed, with their dtypes in numpy: bf16 as its bits."""

NO_NUMBERS = "the file contains weights that are not finite: download it again."

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
"""Offsets of a block's scales, which are fp16, in bytes."""


class HeldTensor(NamedTuple):
    """A tensor of a file.

    packed_as: the kind of its blocks, or None if `data` are numbers. data: uint8 [rows, bytes of a
    row], or numbers in the shape of the file.
    """

    packed_as: str | None
    data: Tensor


class MappedFile(NamedTuple):
    """A file from which weights are mapped. status: its status when it was opened."""

    path: Path
    status: os.stat_result

    def was_written_to(self) -> bool:
        """Whether its content may have changed. Another file in its place changes nothing: the old
        content stays mapped."""
        try:
            now = self.path.stat()
        except OSError:
            return False
        has_new_size = now.st_size != self.status.st_size
        has_new_time = now.st_mtime_ns != self.status.st_mtime_ns
        return os.path.samestat(now, self.status) and (has_new_size or has_new_time)


class PackedWeights(NamedTuple):
    """The weights of a file."""

    tensors: dict[str, HeldTensor]  # by their names in the file
    digest: str  # the file's SHA-256
    file: MappedFile
    content: mmap.mmap  # the bytes that tensors are mapped from

    def release(self, data: Tensor) -> None:
        """Release the pages of weights that were copied; the system's file cache still has them.
        Does nothing for weights outside of the file."""
        content_address = np.frombuffer(self.content, np.uint8).ctypes.data
        begin = data.data_ptr() - content_address
        if 0 <= begin < len(self.content):
            _release_pages(self.content, begin, data.nbytes)


class Reading(NamedTuple):
    """A request for the weights of a file. For fp32 products some blocks become another kind, which
    passes read faster."""

    header: GgufHeader
    name: str  # of the model
    dtype: torch.dtype | None = None  # of unpacked matrices; None keeps the stored format
    products: str = FP32_PRODUCTS  # how passes multiply them, one of `PRODUCTS`
    on_progress: Watcher | None = None


def read_weights(reading: Reading) -> PackedWeights:
    """Read the weights of a file; the processors share its tensors.

    As long as they are in use, the file must not be written to; another file may take its place.
    Raises `PairError` if it cannot be read or holds weights that are not finite.
    """
    header = reading.header
    sentence = f"reading {reading.name} ({shown_bytes(header.stored)})"
    content, file = _mapped(header)
    tensor_bytes = np.frombuffer(content, np.uint8)[header.begin :]
    hold = partial(_held, reading, tensor_bytes)
    tensors = {}
    names = sorted(header.tensors, key=lambda name: header.tensors[name].start)
    done_bytes = 0
    with one_torch_thread(), ThreadPoolExecutor(1 + all_threads()) as pool:
        digest = pool.submit(digest_of, header.path)
        for name, held in zip(names, pool.map(hold, names), strict=True):
            tensors[name] = held
            tensor = header.tensors[name]
            _release_pages(content, header.begin + tensor.start, tensor.bytes)
            done_bytes += tensor.bytes
            if reading.on_progress is not None:
                reading.on_progress(Progress(sentence, done_bytes / header.stored))
        return PackedWeights(tensors, digest.result(), file, content)


def _mapped(header: GgufHeader) -> tuple[mmap.mmap, MappedFile]:
    """Map the bytes of a file. Writing to them changes memory only. Raises `PairError`."""
    try:
        with header.path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:  # ValueError: an empty file
        reason = getattr(error, "strerror", None) or error
        raise PairError(f"{header.path.name} cannot be read ({reason}).") from error
    if len(content) < header.begin + header.stored:
        raise PairError(f"{header.path.name} is cut off: download it again.")
    return content, MappedFile(header.path, status)


def _release_pages(content: mmap.mmap, begin: int, size: int) -> None:
    """Release pages that were read. An unpacked tensor is not read again, and passes find other
    pages in the system's file cache."""
    if hasattr(mmap, "MADV_DONTNEED"):
        page_begin = begin - begin % mmap.PAGESIZE
        end = begin + size
        content.madvise(mmap.MADV_DONTNEED, page_begin, end - page_begin)


def _held(reading: Reading, content: NDArray[np.uint8], name: str) -> HeldTensor:
    """A tensor in the requested format. content: of the file, from its first tensor on."""
    header = reading.header
    tensor = header.tensors[name]
    data = _checked(header, name, content)
    if tensor.kind in PLAIN:
        numbers = _plain_numbers(tensor, data, reading.dtype)
        return HeldTensor(None, numbers)
    if reading.dtype is not None:
        width = tensor.shape[1]
        numbers = _unpacked_as(data, tensor.kind, width, reading.dtype)
        return HeldTensor(None, numbers)
    is_multiplied = reading.products == FP32_PRODUCTS and (name != EMBEDDING or header.tied)
    if tensor.kind == "Q5_0" and is_multiplied:  # passes read Q8_0 in half of the time
        from .few_bits.products import as_q8_0  # imports numba

        return HeldTensor("Q8_0", torch.from_numpy(as_q8_0(data)))
    return HeldTensor(tensor.kind, torch.from_numpy(data))


def _plain_numbers(tensor: GgufTensor, data: NDArray[Any], dtype: torch.dtype | None) -> Tensor:
    """The numbers of a tensor that is not packed; norms and biases are in fp32. dtype: of matrices,
    None for the stored one."""
    numbers = torch.from_numpy(data)
    if tensor.kind == "BF16":
        numbers = numbers.view(torch.bfloat16)
    if len(tensor.shape) == 1:
        return numbers.to(torch.float32)
    if dtype is None:
        return numbers
    return numbers.to(dtype)


def _checked(header: GgufHeader, name: str, content: NDArray[np.uint8]) -> NDArray[Any]:
    """A tensor in the order in which passes read it: uint8 [rows, bytes of a row], or numbers in
    their shape. Raises `PairError` if its weights are not finite."""
    tensor = header.tensors[name]
    end = tensor.start + tensor.bytes
    data = content[tensor.start : end].reshape(tensor.shape[0], -1)
    heads = _rotated_heads(header, name)
    if heads is not None:
        data = _halves_apart(data, heads)
    if tensor.kind in PLAIN:
        dtype = PLAIN[tensor.kind]
        numbers = data.view(dtype).reshape(tensor.shape)
        if not _are_finite(numbers):
            raise PairError(NO_NUMBERS)
        return np.require(numbers, requirements="A")  # tensors may begin at any offset
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
    """The number of heads of a projection that llama.cpp rotates in another order than
    transformers, or None."""
    part = name.split(".")[-2]
    if header.architecture != "llama" or part not in ("attn_q", "attn_k"):
        return None
    heads = header.number("attention.head_count") or 0
    if part == "attn_k":
        heads = header.number("attention.head_count_kv") or heads
    return int(heads)


def _halves_apart(rows: NDArray[np.uint8], heads: int) -> NDArray[np.uint8]:
    """Reorder the outputs of a query or key projection for transformers' rotation.

    In this architecture llama.cpp rotates outputs 2i and 2i + 1 of a head together; transformers
    rotates i and i + head_dim / 2.
    """
    pairs_of_head = len(rows) // heads // 2
    pairs = rows.reshape(heads, pairs_of_head, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _are_finite(numbers: NDArray[Any]) -> bool:
    if numbers.dtype == np.uint16:  # the bits of bf16
        exponents = numbers & 0x7F80
        return bool((exponents != 0x7F80).all())
    return bool(np.isfinite(numbers).all())


def _check_scales(tensor: GgufTensor, data: NDArray[np.uint8]) -> None:
    """Raise `PairError` if a weight is not finite: it is finite if its block's scales are."""
    _, size = GGML_QUANT_SIZES[GGMLQuantizationType[tensor.kind]]
    blocks = data.reshape(-1, size)
    for offset in SCALES[tensor.kind]:
        high_bytes = blocks[:, offset + 1]  # they hold the whole exponent
        if ((high_bytes & 0x7C) == 0x7C).any():
            raise PairError(NO_NUMBERS)
