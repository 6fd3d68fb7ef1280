"""Files of strangers, recordings and prompts, read in a process of their own: what is asked of it,
and the process.

A small file can take a parser seconds, during which Python does nothing else. Here that time is
not the page's, the memory is limited, and the process can be ended.

A request is a line with a form and a number of bytes, and then these bytes, a recording. An answer
is a line with a number of bytes, and then these bytes, a JSON object.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, BinaryIO

import orjson

from ..errors import PromptError, TraceError
from ..prompts import in_turn, prompts_from
from .html import embedded_html, standalone_html
from .recording import MOST_PACKED, MOST_UNPACKED, read_recording
from .tables import rounds_csv, tokens_csv
from .trace import Trace

FORMS: dict[str, tuple[str, Callable[[Trace], str]]] = {
    "html": (".html", standalone_html),
    "embed": ("-player.html", embedded_html),
    "tokens": ("-tokens.csv", tokens_csv),
    "rounds": ("-rounds.csv", rounds_csv),
}
"""Files that a trace can be written as, by name: the end of the file's name, and the function that
writes the text."""

TRACE = "trace"
"""The form that asks for the trace itself."""

PROMPTS = "prompts"
"""The form that asks for the prompts in a file."""

MOST = 100
"""The most prompts that are answered."""

MOST_MEMORY = 2 * 2**30  # bytes of address space; the largest recordings need a third of it
TOO_LARGE = "this file takes too much memory to read; use a smaller one."


def answer_to(form: str, raw: bytes) -> dict[str, Any]:
    """`{"trace"}` for `TRACE`, and `{"suffix", "text"}` for one of `FORMS`, made of a recording;
    for `PROMPTS`, `{"prompts": [[kind, text], ...], "left_out": number}`, of all kinds in turn;
    `{"error": sentence}` if the file is none of that form."""
    try:
        if form == PROMPTS:
            found = prompts_from(raw, "this file")
            some = [[one.kind, one.text] for one in in_turn(found)[:MOST]]
            return {"prompts": some, "left_out": len(found) - len(some)}
        if form == TRACE:
            return {"trace": read_recording(raw, most_packed=MOST_PACKED).to_dict()}
        suffix, write = FORMS[form]
        return {"suffix": suffix, "text": write(read_recording(raw, most_packed=MOST_UNPACKED))}
    except (PromptError, TraceError) as error:
        return {"error": str(error)}
    except (MemoryError, RecursionError):
        return {"error": TOO_LARGE}


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until they end."""
    _be_modest()
    while line := requests.readline():
        form, size = line.split()
        answer = orjson.dumps(answer_to(form.decode(), requests.read(int(size))))
        answers.write(b"%d\n" % len(answer))
        answers.write(answer)
        answers.flush()


def _be_modest() -> None:
    """Leave the processors to runs, and limit this process's memory, where the system can."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(10)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
