"""The header of a GGUF file, read in bounded time and memory before anything trusts the file.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from gguf.constants import GGML_QUANT_SIZES

from ..errors import PairError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_KEYS = 10_000
MOST_TENSORS = 100_000
MOST_STRING = 8_000_000  # bytes; chat templates have some thousand
MOST_ITEMS = 4_000_000  # of a list: vocabularies have up to some 300,000
MOST_HEADER = 256_000_000  # bytes
MOST_DIMENSIONS = 4
KEPT_ITEMS = 16  # of a list: nobody asks for more of them here

_STRING, _LIST = 8, 9
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Of each kind of number its code in `struct`."""
_KINDS = {kind.value: (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
"""Of each kind of tensor its name, how many numbers stand in a block, and the bytes of a block."""


@dataclass(frozen=True)
class PackedTensor:
    """A tensor of the file. shape: the innermost dimension first. kind: such as "Q4_1". start, end:
    its bytes, from the end of the header on."""

    name: str
    shape: tuple[int, ...]
    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of itself. values: of long lists the first `KEPT_ITEMS` items."""

    path: Path
    values: dict[str, Any]
    tensors: tuple[PackedTensor, ...]

    def text(self, key: str) -> str | None:
        """A value that is a text, or None."""
        value = self.values.get(key)
        return value if isinstance(value, str) and value else None

    @property
    def architecture(self) -> str:
        return self.text("general.architecture") or ""

    @property
    def name(self) -> str:
        """What the model is called: by itself, or else by its file."""
        return self.text("general.name") or self.path.stem

    @cached_property
    def parameters(self) -> int:
        return sum(prod(one.shape) for one in self.tensors)

    @property
    def quantization(self) -> str:
        """The kind that most numbers have."""
        counts: Counter[str] = Counter()
        for one in self.tensors:
            counts[one.kind] += prod(one.shape)
        return counts.most_common(1)[0][0]


def read_gguf(path: Path) -> GgufHeader:
    """The header of a file. Raises `PairError` if it is no whole GGUF file of one model."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header, end = _Reader(file, path).header()
    except (struct.error, EOFError, UnicodeDecodeError) as error:
        raise PairError(f"{path.name} is cut off or damaged: download it again.") from error
    except OSError as error:
        raise PairError(f"{path.name} cannot be read ({error.strerror}).") from error
    if header.values.get("split.count", 1) not in (0, 1):
        raise PairError(
            f"{path.name} is one part of {header.values['split.count']}: join them first with "
            "llama-gguf-split --merge."
        )
    if not header.tensors or not header.architecture:
        raise PairError(f"{path.name} holds no model: download it again.")
    if end + max(one.end for one in header.tensors) > size:
        raise PairError(f"{path.name} is cut off: download it again.")
    return header


class _Reader:
    """Reads on from where it is, and never more than `MOST_HEADER` bytes in all."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path, self.left = file, path, MOST_HEADER

    def header(self) -> tuple[GgufHeader, int]:
        """The header, and the place in the file where the first tensor begins."""
        if self.bytes(4) != MAGIC:
            raise PairError(f"{self.path.name} is no GGUF file, whatever its name says.")
        version = self.number("I")
        if version not in VERSIONS:
            raise PairError(f"{self.path.name} is GGUF version {version}: use version 2 or 3.")
        tensors, keys = self.count(MOST_TENSORS), self.count(MOST_KEYS)
        values = {self.string(): self.value(self.number("I")) for _ in range(keys)}
        found = tuple(self.tensors(tensors))
        step = values.get("general.alignment", 32)
        if type(step) is not int or not 1 <= step <= 1 << 20:
            raise self.wrong(f"an alignment of {step!r}")
        place = self.file.tell()
        return GgufHeader(self.path, values, found), place + -place % step

    def tensors(self, count: int) -> Iterator[PackedTensor]:
        for _ in range(count):
            name, dimensions = self.string(), self.number("I")
            if dimensions > MOST_DIMENSIONS:
                raise self.wrong(f"a tensor of {dimensions} dimensions")
            shape = tuple(self.number("Q") for _ in range(dimensions))
            kind, start = self.number("I"), self.number("Q")
            if kind not in _KINDS:
                raise self.wrong(f"tensors of an unknown kind ({kind})")
            named, block, size = _KINDS[kind]
            yield PackedTensor(name, shape, named, start, start + -(-prod(shape) // block) * size)

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _LIST:
            return self.list(self.number("I"), self.count(MOST_ITEMS))
        if kind not in _NUMBERS:
            raise self.wrong(f"a value of an unknown kind ({kind})")
        return self.number(_NUMBERS[kind])

    def list(self, kind: int, count: int) -> list[Any]:
        if kind == _STRING:
            strings = (self.string() for _ in range(count))
            return [one for i, one in enumerate(strings) if i < KEPT_ITEMS]
        if kind not in _NUMBERS:
            raise self.wrong(f"a list of an unknown kind ({kind})")
        one = struct.calcsize(_NUMBERS[kind])
        data = self.bytes(count * one)[: KEPT_ITEMS * one]
        return list(struct.unpack(f"<{len(data) // one}{_NUMBERS[kind]}", data))

    def string(self) -> str:
        return self.bytes(self.count(MOST_STRING)).decode("utf-8", "replace")

    def count(self, most: int) -> int:
        count: int = self.number("Q")
        if count > most:
            raise self.wrong(f"a count of {count:,}")
        return count

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.bytes(struct.calcsize(code)))[0]

    def bytes(self, count: int) -> bytes:
        self.left -= count
        if self.left < 0:
            raise self.wrong("a header of more than 256 MB")
        data = self.file.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def wrong(self, what: str) -> PairError:
        return PairError(f"{self.path.name} has {what}: it is damaged, download it again.")
