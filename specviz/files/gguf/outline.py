"""The header of a GGUF file whose long lists stay bytes, which is enough to compare vocabularies.

A header takes a few milliseconds if another file had the same lists, and some seventy if none had.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .header import LONG, GgufHeader, HeaderReader, read_gguf

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 4 << 20  # bytes that are read at a time
MAX_KNOWN_BYTES = 200_000_000  # of lists that are kept to be compared with


@dataclass(frozen=True)
class LongTexts:
    """A list of texts as a file holds it: each has its length before it, in 8 bytes. ends: where
    each of them ends in `data`."""

    data: bytes
    ends: array[int]

    def __len__(self) -> int:
        return len(self.ends)

    def text(self, index: int) -> str:
        """One of the texts."""
        begin = self.ends[index - 1] if index else 0
        return self.data[begin + 8 : self.ends[index]].decode("utf-8", "replace")


_known_lists: deque[LongTexts] = deque()


@contextmanager
def sharing_lists() -> Iterator[None]:
    """Inside the block, lists that several files have are parsed once; behind it they are
    forgotten."""
    try:
        yield
    finally:
        _known_lists.clear()


def read_outline(path: Path) -> GgufHeader:
    """The header of a file, with `LongTexts` and arrays in the place of long lists. Raises
    `PairError` as `read_gguf` does."""
    return read_gguf(path, OutlineReader)


class OutlineReader(HeaderReader):
    """Reads long lists without making an object of each item."""

    def numbers(self, code: str, data: bytes) -> Any:
        if code == "?" or len(data) < LONG:
            return super().numbers(code, data)
        return array(code, data)

    def strings(self, count: int) -> Any:
        if count < LONG:
            return self.parsed_strings(count)
        for texts in _known_lists:
            if len(texts) == count and self.goes_on_with(texts.data):
                return texts
        texts = self._read_texts(count)
        _known_lists.append(texts)
        while sum(len(known.data) for known in _known_lists) > MAX_KNOWN_BYTES:
            _known_lists.popleft()
        return texts

    def _read_texts(self, count: int) -> LongTexts:
        begin = self.file.tell()
        data = self._longer(b"", 0)
        ends = array("Q")
        length_at = struct.Struct("<Q").unpack_from
        position = 0
        while len(ends) < count:
            try:
                position += 8 + length_at(data, position)[0]
                ends.append(position)
            except (
                struct.error,
                OverflowError,
            ):  # the next length is not read yet, or is too large
                data = self._longer(data, position + 8)
        while position > len(data):
            data = self._longer(data, position)
        self.left -= position
        self.file.seek(begin + position)
        return LongTexts(data[:position], ends)

    def _longer(self, data: bytes, needed: int) -> bytes:
        """`data` with what follows it in the file, up to `needed` bytes or a little more. Raises
        `EOFError` if the file or the budget of a header ends before."""
        if needed > self.left:
            raise EOFError
        more = self.file.read(max(CHUNK, needed - len(data)))
        if not more:
            raise EOFError
        return data + more
