"""The header of a GGUF file, read in bounded time and memory before anything trusts the file.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ..errors import PairError

MOST_HEADER = 64_000_000  # bytes, so that no count in it can ask for more; known ones take 20 MB
MOST_DIMENSIONS = 4

_STRING, _LIST = 8, 9
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Of each kind of number its code in `struct`."""


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of itself. values: by key, without lists. numbers: how many of each
    kind of tensor, such as "Q4_1". end: where the last tensor ends in the file."""

    path: Path
    values: dict[str, Any]
    numbers: Counter[str]
    end: int

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

    @property
    def parameters(self) -> int:
        return sum(self.numbers.values())

    @property
    def unpacked(self) -> int:
        """Bytes that it takes on the disk as bf16, with some to spare."""
        return int(2 * self.parameters * 1.05)

    @property
    def quantization(self) -> str:
        """The kind that most numbers have."""
        return self.numbers.most_common(1)[0][0]


def read_gguf(path: Path) -> GgufHeader:
    """The header of a file. Raises `PairError` if it is no whole GGUF file of one model."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = _Reader(file, path).header()
    except (EOFError, KeyError) as error:  # the latter of a kind that is not known
        raise PairError(f"{path.name} is cut off or damaged: download it again.") from error
    except OSError as error:
        raise PairError(f"{path.name} cannot be read ({error.strerror}).") from error
    if header.values.get("split.count", 1) not in (0, 1):
        raise PairError(
            f"{path.name} is one part of {header.values['split.count']}: join them first with "
            "llama-gguf-split --merge."
        )
    if not header.numbers or not header.architecture:
        raise PairError(f"{path.name} holds no model: download it again.")
    if header.end > size:
        raise PairError(f"{path.name} is cut off: download it again.")
    return header


class _Reader:
    """Reads on from where it is, and never more than `MOST_HEADER` bytes in all."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path, self.left = file, path, MOST_HEADER

    def header(self) -> GgufHeader:
        if self.bytes(4) != b"GGUF":
            raise PairError(f"{self.path.name} is no GGUF file, whatever its name says.")
        version = self.number("I")
        if version not in (2, 3):
            raise PairError(f"{self.path.name} is GGUF version {version}: use version 2 or 3.")
        tensors, keys = self.number("Q"), self.number("Q")
        values = {}
        for _ in range(keys):
            key = self.string()
            values[key] = self.value(self.number("I"))
        numbers: Counter[str] = Counter()
        last = 0
        for _ in range(tensors):
            kind, count, end = self.tensor()
            numbers[kind] += count
            last = max(last, end)
        step = values.get("general.alignment", 32)
        if type(step) is not int or not 1 <= step <= 1 << 20:
            raise EOFError
        place = self.file.tell()
        return GgufHeader(self.path, values, numbers, place + -place % step + last)

    def tensor(self) -> tuple[str, int, int]:
        """Its kind, how many numbers it has, and where it ends, from the end of the header on."""
        self.string()
        dimensions = self.number("I")
        if dimensions > MOST_DIMENSIONS:
            raise EOFError
        count = prod(self.number("Q") for _ in range(dimensions))
        kind, start = self.number("I"), self.number("Q")
        block, size = GGML_QUANT_SIZES[kind]
        return GGMLQuantizationType(kind).name, count, start + -(-count // block) * size

    def value(self, kind: int) -> Any:
        """A number or a text; None for a list, which is only read over: nobody asks for one."""
        if kind == _STRING:
            return self.string()
        if kind != _LIST:
            return self.number(_NUMBERS[kind])
        kind, count = self.number("I"), self.number("Q")
        if kind != _STRING:
            self.bytes(count * struct.calcsize(_NUMBERS[kind]))
        else:
            for _ in range(count):
                self.string()
        return None

    def string(self) -> str:
        return self.bytes(self.number("Q")).decode("utf-8", "replace")

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.bytes(struct.calcsize(code)))[0]

    def bytes(self, count: int) -> bytes:
        self.left -= count
        data = self.file.read(count) if self.left >= 0 else b""
        if len(data) < count:
            raise EOFError
        return data
