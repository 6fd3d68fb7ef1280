"""The weights of a GGUF file: read, checked, and in the form in which passes read them.

They are read while torch is imported, so it is needed only once a file has been read."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from ..errors import PairError
from ..sides.fast_cpu.kind import FIVE_BIT
from .gguf import GgufHeader, GgufTensor, checked_gguf
from .gguf_layout import EMBEDDING
from .memory import shown_bytes
from .model_files import digest_of
from .progress import Progress, Watcher

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PLAIN: dict[str, type[np.generic]] = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
"""Kinds of tensors that are not packed, as numpy holds them: bf16 as its bits."""

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number."""

LINE = 64  # bytes of a line of a processor's cache

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


class Reading(NamedTuple):
    """A file whose weights are read, and as what.

    name: what the model is called. dtype: in which matrices are unpacked; None leaves them as they
    are, but for a kind that passes read faster in another one. bits: the few that the model is to
    have: of `FIVE_BIT` all matrices have them once they are read, but for the embedding table.
    """

    header: GgufHeader
    name: str
    dtype: str | None = None
    bits: str | None = None
    on_progress: Watcher | None = None

    @property
    def key(self) -> Hashable:
        """The same for readings that give the same weights."""
        return (self.header.path, self.dtype, self.bits)


class ReadAhead:
    """Reads the weights of files in a thread of its own, one file after the other, while this one
    imports the modules of their models.

    free: bytes of memory that the weights of all files together may take.
    """

    def __init__(self, free: int) -> None:
        self._free = free
        self._pool = ThreadPoolExecutor(1, "weights")
        self._begun: dict[Hashable, Future[PackedWeights]] = {}
        self._headers: dict[Path, GgufHeader] = {}
        self._ended = threading.Event()

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._pool.shutdown(cancel_futures=True)

    def header(self, path: Path) -> GgufHeader:
        """The header of a file that can be loaded, read once. Raises `PairError`."""
        if path not in self._headers:
            self._headers[path] = checked_gguf(path)
        return self._headers[path]

    def begin(self, reading: Reading) -> None:
        """Read a file that fits into memory, as `read_weights` does; another one waits until it is
        known whether there is room for it."""
        header = reading.header
        need = header.stored
        if reading.dtype is not None:
            need = WIDTHS[reading.dtype] * header.parameters
        if need > self._free or reading.key in self._begun:
            return
        self._free -= need
        self._begun[reading.key] = self._pool.submit(read_weights, reading, self._ended)

    def weights(self, reading: Reading) -> PackedWeights:
        """What `read_weights` gives for a file. One that was begun as something else is read
        anew."""
        begun = self._begun.pop(reading.key, None)
        return read_weights(reading) if begun is None else begun.result()


def read_weights(reading: Reading, ended: threading.Event | None = None) -> PackedWeights:
    """The weights of a file.

    ended: once it is set, nobody waits for the weights, and `CancelledError` is raised. Raises
    `PairError` if the file cannot be read or holds weights that are no numbers.
    """

    def check_ended(_: int = 0) -> None:
        if ended is not None and ended.is_set():
            raise CancelledError

    header = reading.header
    arrays: dict[str, NDArray[Any]] = {}
    with ThreadPoolExecutor(1) as pool:
        digest = pool.submit(digest_of, header.path, check_ended)
        for key, data in _arrays(reading):
            arrays[key] = _checked(header, key, data)
            check_ended()
        tensors = {key: _held(reading, key, arrays.pop(key)) for key in [*arrays]}
        return PackedWeights(tensors, digest.result())


def _arrays(reading: Reading) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """The tensors of a file by name, in its order: uint8 [rows, bytes]."""
    header = reading.header
    sentence = f"reading {reading.name} ({shown_bytes(header.stored)})"
    done = 0
    try:
        with header.path.open("rb") as file:
            for key, tensor in sorted(header.tensors.items(), key=lambda item: item[1].start):
                data = _aligned(tensor.bytes)
                file.seek(header.begin + tensor.start)
                if file.readinto(data.data) != tensor.bytes:
                    raise PairError(f"{header.path.name} is cut off: download it again.")
                yield key, data.reshape(tensor.shape[0], -1)
                done += tensor.bytes
                if reading.on_progress is not None:
                    reading.on_progress(Progress(sentence, done / header.stored))
    except OSError as error:
        raise PairError(f"{header.path.name} cannot be read ({error.strerror}).") from error


def _aligned(size: int) -> NDArray[np.uint8]:
    """So many bytes that begin with a line of the processor's cache."""
    memory = np.empty(size + LINE, np.uint8)
    begin = -memory.ctypes.data % LINE
    return memory[begin : begin + size]


def _checked(header: GgufHeader, name: str, data: NDArray[np.uint8]) -> NDArray[Any]:
    """A tensor in the order in which passes read it: uint8 [rows, bytes of a row], or numbers in
    their shape. Raises `PairError` if its weights are no numbers."""
    tensor = header.tensors[name]
    heads = _rotated_heads(header, name)
    if heads is not None:
        data = _halves_apart(data, heads)
    if tensor.kind in PLAIN:
        numbers = data.view(PLAIN[tensor.kind]).reshape(tensor.shape)
        _check(numbers)
        return numbers
    _check_scales(tensor, data)
    return data


def _held(reading: Reading, name: str, data: NDArray[Any]) -> HeldTensor:
    """A tensor as it is kept. data: as `_checked` gives it."""
    import torch  # which another thread may import meanwhile

    from .few_bits import repacked

    header = reading.header
    tensor = header.tensors[name]
    in_five_bits = reading.bits == FIVE_BIT and len(tensor.shape) == 2 and name != EMBEDDING
    kept = None if reading.dtype is None else getattr(torch, reading.dtype)
    if tensor.kind in PLAIN:
        numbers = torch.from_numpy(data)
        if tensor.kind == "BF16":
            numbers = numbers.view(torch.bfloat16)
        if in_five_bits:
            return HeldTensor(FIVE_BIT, repacked(numbers, None, tensor.shape[1], FIVE_BIT))
        if len(tensor.shape) == 1:
            kept = torch.float32
        return HeldTensor(None, numbers if kept is None else numbers.to(kept))
    if in_five_bits:
        blocks = torch.from_numpy(data)
        return HeldTensor(FIVE_BIT, repacked(blocks, tensor.kind, tensor.shape[1], FIVE_BIT))
    if kept is not None:
        return HeldTensor(None, _unpacked_as(data, tensor.kind, tensor.shape[1], kept))
    is_multiplied = name != EMBEDDING or (header.tied and reading.bits != FIVE_BIT)
    if tensor.kind == "Q5_0" and is_multiplied:  # passes read Q8_0 in half of the time
        from ..sides.fast_cpu.products import as_q8_0  # which imports numba

        return HeldTensor("Q8_0", torch.from_numpy(as_q8_0(data)))
    return HeldTensor(tensor.kind, torch.from_numpy(data))


def _unpacked_as(data: NDArray[np.uint8], kind: str, width: int, dtype: torch.dtype) -> Tensor:
    import torch

    from .few_bits import PIECE, unpacked

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
