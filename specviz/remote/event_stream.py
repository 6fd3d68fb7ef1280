"""Server-sent events, read from a stream of bytes.

The rules are those of https://html.spec.whatwg.org/multipage/server-sent-events.html: lines end at
a line feed, a carriage return or both; an event ends at an empty line; its data is all of its
`data` lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

BOM = b"\xef\xbb\xbf"
LINE = re.compile(rb"[^\r\n]*[\r\n]")


def lines_in(pieces: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """The lines of a stream without their ends, each as soon as it has ended.

    Lines end at bytes, not at characters: U+2028 and its like end no line. limit: of a line in
    bytes; raises `OverflowError` above it.
    """
    unread = b""
    after_return = False  # whether a line feed here belongs to the line before
    is_first = True
    for piece in pieces:
        unread += piece
        if is_first:
            if BOM.startswith(unread):
                continue  # perhaps the beginning of one
            unread = unread.removeprefix(BOM)
            is_first = False
        begin = 0
        for match in LINE.finditer(unread):
            begin = match.end()
            line = match.group()
            if not (after_return and line == b"\n"):
                yield line[:-1]
            after_return = line.endswith(b"\r")
        unread = unread[begin:]
        if len(unread) > limit:
            raise OverflowError
    if unread and not (is_first and unread == BOM):
        yield unread


def event_data(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each event, also of a last event without an empty line after it."""
    data: list[bytes] = []
    for line in lines:
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data)
            data = []
    if data:
        yield b"\n".join(data)
