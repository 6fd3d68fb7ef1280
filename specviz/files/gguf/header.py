"""The header of a GGUF file, read in bounded time and memory before anything trusts the file.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import re
import struct
from collections import Counter, deque
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ...base.errors import PairError
from ..local_models import blob_name

MAX_HEADER = 64_000_000  # bytes, whatever counts it holds; known headers take 20 MB
MAX_DIMENSIONS = 4
LONG = 10_000  # strings; parsing a list of this many or more takes long
FORMATS = re.compile(r"[-_ ]*\b(?:GGUF|AWQ|GPTQ)\b", re.IGNORECASE)

REMOVED = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""Kinds of tensors that GGUF no longer has, by their numbers."""

_STRING = 8
_LIST = 9
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""The code in `struct` of each kind of number."""


class GgufTensor(NamedTuple):
    """One tensor of a file."""

    kind: str  # such as "Q4_K"
    shape: tuple[int, ...]  # rows first, as in torch
    start: int  # its offset from the first tensor, in bytes
    bytes: int  # its length

    @property
    def numbers(self) -> int:
        return prod(self.shape)


def file_label(path: Path) -> str:
    """The label of a file: its name, or Ollama's name for a file without one."""
    return blob_name(path) or path.stem


@dataclass(frozen=True)
class GgufHeader:
    """The header of a GGUF file."""

    path: Path
    values: dict[str, Any]  # numbers, texts and lists by key
    tensors: dict[str, GgufTensor]  # by name
    begin: int  # the offset of the first tensor in the file, in bytes

    def text(self, key: str) -> str | None:
        """The text at this key, or None."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value:
            return None
        return value

    def number(self, key: str) -> float | None:
        """The number at this key of the architecture, such as "block_count", or None."""
        value = self.values.get(f"{self.architecture}.{key}")
        if isinstance(value, list) and value:  # one for each layer
            are_same = value.count(value[0]) == len(value)
            if are_same:
                value = value[0]
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return value

    def has(self, key: str) -> bool:
        """Whether the architecture has this key, such as "block_count"."""
        return f"{self.architecture}.{key}" in self.values

    @property
    def architecture(self) -> str:
        return self.text("general.architecture") or ""

    @property
    def name(self) -> str:
        """The model's name: the one in the header, or else the file's label."""
        return self.named or file_label(self.path)

    @property
    def named(self) -> str | None:
        """The model's name in the header, without names of weight formats; None if there is
        none."""
        keys = ("basename", "size_label", "finetune")
        parts = [self.text(f"general.{key}") for key in keys]
        name = "-".join(part for part in parts if part)
        if parts[0] is None or parts[1] is None:
            name = self.text("general.name") or ""
        return FORMATS.sub("", name).strip(" -_") or None

    @property
    def tied(self) -> bool:
        """Whether the output layer is the embedding table, and stored nowhere else."""
        return "output.weight" not in self.tensors

    @property
    def parameters(self) -> int:
        return sum(tensor.numbers for tensor in self.tensors.values())

    @property
    def stored(self) -> int:
        """Bytes of all tensors."""
        return max(tensor.start + tensor.bytes for tensor in self.tensors.values())

    @property
    def unpacked(self) -> int:
        """Bytes of the model on the disk as bf16, with a margin."""
        return int(2 * self.parameters * 1.05)

    @property
    def quantization(self) -> str:
        """The kind of most weights."""
        numbers: Counter[str] = Counter()
        for tensor in self.tensors.values():
            numbers[tensor.kind] += tensor.numbers
        return numbers.most_common(1)[0][0]


def read_gguf(path: Path, reader: type[HeaderReader] | None = None) -> GgufHeader:
    """Read the header of a file. reader: reads long lists in its own way. Raises `PairError` if
    the file is not a whole GGUF file of one model."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = (reader or HeaderReader)(file, path).header()
    except (EOFError, KeyError) as error:  # KeyError: an unknown kind of value
        raise PairError(f"{path.name} is cut off or damaged: download it again.") from error
    except OSError as error:
        raise PairError(f"{path.name} cannot be read ({error.strerror}).") from error
    if header.values.get("split.count", 1) not in (0, 1):
        raise PairError(
            f"{path.name} is one part of {header.values['split.count']}: merge the parts first "
            "with llama-gguf-split --merge."
        )
    if not header.tensors or not header.architecture:
        raise PairError(f"{path.name} contains no model: download it again.")
    if header.begin + header.stored > size:
        raise PairError(f"{path.name} is cut off: download it again.")
    return header


def unreadable(header: GgufHeader) -> str:
    """The sentence about a file that holds no model of its architecture."""
    return (
        f"{header.path.name} cannot be read as a {header.architecture} model: download it again, "
        "or use the model's own repository."
    )


class _LongList(NamedTuple):
    """A list of strings and its bytes in a file."""

    length: int
    data: bytes
    texts: list[str]


_long_lists: deque[_LongList] = deque(maxlen=2)
"""The last pieces and merges: two files of one family have the same ones, and each list takes a
tenth of a second."""


class HeaderReader:
    """Reads a header from the current position of a file, with a budget of `MAX_HEADER` bytes."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file = file
        self.path = path
        self.budget = MAX_HEADER  # bytes that may still be read

    def header(self) -> GgufHeader:
        if self.bytes(4) != b"GGUF":
            raise PairError(
                f"{self.path.name} is not a GGUF file: choose another file, or download it again."
            )
        version = self.number("I")
        if version in (2 << 24, 3 << 24):
            raise PairError(
                f"{self.path.name} is big-endian (its version reads {version}): use the "
                "little-endian file of the model."
            )
        if version not in (2, 3):
            raise PairError(f"{self.path.name} is GGUF version {version}: use version 2 or 3.")
        tensor_count = self.number("Q")
        key_count = self.number("Q")
        values = self.values(key_count)
        tensors = self.tensors(tensor_count)
        alignment = values.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 20:
            raise EOFError
        if any(tensor.start % alignment for tensor in tensors.values()):
            raise EOFError
        end = self.file.tell()
        padding = -end % alignment
        return GgufHeader(self.path, values, tensors, begin=end + padding)

    def values(self, count: int) -> dict[str, Any]:
        """Read `count` keys with their values."""
        values = {}
        for _ in range(count):
            key = self.string()
            if key in values:
                raise self.duplicate(key)
            values[key] = self.value(self.number("I"))
        return values

    def tensors(self, count: int) -> dict[str, GgufTensor]:
        """Read the descriptions of `count` tensors, by name."""
        tensors = {}
        for _ in range(count):
            name, tensor = self.tensor()
            if name in tensors:
                raise self.duplicate(name)
            tensors[name] = tensor
        return tensors

    def duplicate(self, name: str) -> PairError:
        """The error for a key or a tensor that comes twice: it is unknown which one counts."""
        return PairError(f"{self.path.name} contains {name[:60]} twice: download it again.")

    def tensor(self) -> tuple[str, GgufTensor]:
        """Read the name and the description of a tensor."""
        name = self.string()
        dimensions = self.number("I")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise EOFError
        widths = [self.number("Q") for _ in range(dimensions)]  # the innermost first
        shape = tuple(reversed(widths))
        if 0 in shape:
            raise EOFError
        kind = self.number("I")
        start = self.number("Q")
        if kind not in GGML_QUANT_SIZES:
            raise PairError(self.unknown_kind(name, kind))
        block, size = GGML_QUANT_SIZES[kind]
        blocks = -(-prod(shape) // block)  # rounded up
        kind_name = GGMLQuantizationType(kind).name
        return name, GgufTensor(kind_name, shape, start, blocks * size)

    def unknown_kind(self, name: str, kind: int) -> str:
        """The sentence about a tensor of an unknown kind."""
        begin = f"{self.path.name} stores {name[:60]}"
        if kind in REMOVED:
            return (
                f"{begin} as {REMOVED[kind]}, a type that GGUF no longer has: use a newer file of "
                "the model."
            )
        return (
            f"{begin} as type {kind}, which is not known here: use the model in another type, "
            "such as Q8_0, or download it again if it is damaged."
        )

    def value(self, kind: int) -> Any:
        """Read a number, a text, or a list of either."""
        if kind == _STRING:
            return self.string()
        if kind != _LIST:
            return self.number(_NUMBERS[kind])
        kind = self.number("I")
        count = self.number("Q")
        if kind == _STRING:
            return self.strings(count)
        code = _NUMBERS[kind]
        data = self.bytes(count * struct.calcsize(code))
        return self.numbers(code, data)

    def numbers(self, code: str, data: bytes) -> Any:
        """Unpack the numbers of a list. code: of each number, in `struct`."""
        count = len(data) // struct.calcsize(code)
        return list(struct.unpack(f"<{count}{code}", data))

    def strings(self, count: int) -> Any:
        """Read `count` strings. A long list that two files share is parsed once."""
        if count < LONG:
            return self.parsed_strings(count)
        for known in tuple(_long_lists):
            if known.length == count and self.consume(known.data):
                return known.texts
        begin = self.file.tell()
        texts = self.parsed_strings(count)
        end = self.file.tell()
        self.file.seek(begin)
        data = self.file.read(end - begin)
        _long_lists.append(_LongList(count, data, texts))
        return texts

    def consume(self, data: bytes) -> bool:
        """Consume `data` if it comes next. Returns whether it did."""
        begin = self.file.tell()
        if len(data) <= self.budget and self.file.read(len(data)) == data:
            self.budget -= len(data)
            return True
        self.file.seek(begin)
        return False

    def parsed_strings(self, count: int) -> list[str]:
        """Read `count` strings: `string` in one loop, for lists of hundreds of thousands."""
        texts = []
        read = self.file.read
        for _ in range(count):
            prefix = read(8)
            length = int.from_bytes(prefix, "little")
            self.budget -= 8 + length
            if len(prefix) < 8 or self.budget < 0:
                raise EOFError
            data = read(length)
            if len(data) < length:
                raise EOFError
            texts.append(data.decode("utf-8", "replace"))
        return texts

    def string(self) -> str:
        length = self.number("Q")
        return self.bytes(length).decode("utf-8", "replace")

    def number(self, code: str) -> Any:
        data = self.bytes(struct.calcsize(code))
        (number,) = struct.unpack(f"<{code}", data)
        return number

    def bytes(self, count: int) -> bytes:
        self.budget -= count
        if self.budget < 0:
            raise EOFError
        data = self.file.read(count)
        if len(data) < count:
            raise EOFError
        return data
