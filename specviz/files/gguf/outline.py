"""The header of a GGUF file with its long lists left as bytes, which is enough to compare
vocabularies.

Reading takes a few milliseconds if another file had the same lists, and some seventy otherwise.
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
MAX_KNOWN_BYTES = 200_000_000  # of the lists that are kept for comparison


@dataclass(frozen=True)
class LongTexts:
    """A list of texts as bytes of a file, each after its length in 8 bytes. ends: the offset of
    each text's end in `data`."""

    data: bytes
    ends: array[int]

    def __len__(self) -> int:
        return len(self.ends)

    def text(self, index: int) -> str:
        """One of the texts."""
        previous_end = self.ends[index - 1] if index else 0
        begin = previous_end + 8
        text = self.data[begin : self.ends[index]]
        return text.decode("utf-8", "replace")


_known_lists: deque[LongTexts] = deque()


@contextmanager
def sharing_lists() -> Iterator[None]:
    """Inside the block, parse lists that several files share only once; forget them afterwards."""
    try:
        yield
    finally:
        _known_lists.clear()


def read_outline(path: Path) -> GgufHeader:
    """Read the header of a file, with `LongTexts` and arrays instead of long lists. Raises
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
            if len(texts) == count and self.consume(texts.data):
                return texts
        texts = self._read_texts(count)
        _known_lists.append(texts)
        while sum(len(known.data) for known in _known_lists) > MAX_KNOWN_BYTES:
            _known_lists.popleft()
        return texts

    def _read_texts(self, count: int) -> LongTexts:
        begin = self.file.tell()
        data = self._extended(b"", 0)
        ends = array("Q")
        length_at = struct.Struct("<Q").unpack_from
        position = 0
        while len(ends) < count:
            try:
                position += 8 + length_at(data, position)[0]
                ends.append(position)
            except (struct.error, OverflowError):
                # The next length is not read yet, or is too large.
                data = self._extended(data, position + 8)
        while position > len(data):
            data = self._extended(data, position)
        self.budget -= position
        self.file.seek(begin + position)
        return LongTexts(data[:position], ends)

    def _extended(self, data: bytes, needed: int) -> bytes:
        """Return `data` with the bytes that follow it in the file, `needed` in all or more. Raises
        `EOFError` if the file or the budget of the header ends before."""
        if needed > self.budget:
            raise EOFError
        missing = needed - len(data)
        more = self.file.read(max(CHUNK, missing))
        if not more:
            raise EOFError
        return data + more
