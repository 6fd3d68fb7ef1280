"""Reading of recordings: traces in files that any user may have written.

A file must pass four checks, in this order: its size, packed and unpacked; types and bounds
(`schema`); consistency of its numbers (`identities`); and its digest, if it has one. None of them
can tell whether its times are true, or whether its models wrote its tokens: `rerun` runs it again.

The page reads files of strangers, recordings and prompts, in a process of their own (`serve`): a
small file can keep a parser busy for seconds, during which Python does nothing else. A separate
process does not block the page, has limited memory, and can be ended. A request is a line with a
form and a number of bytes, and then these bytes; an answer is a line with a number of bytes, and
then these bytes, a JSON object.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from ..base.errors import ADVICE, PromptError, TraceError
from ..pairs.prompts import in_turn, prompts_from
from .charts import figures_json
from .charts_page import charts_html
from .html import embedded_html, standalone_html
from .tables import rounds_csv, tokens_csv
from .trace import GZIP, Trace, digest_of

UNVERIFIED = "The times are those in the file; they cannot be verified."
MAX_PACKED = 4 * 2**20  # bytes of a file
MAX_UNPACKED = 16 * 2**20  # bytes of its JSON: about 5,000 tokens with all their numbers
MAX_VALUES = 2 * 2**20  # in its JSON; a real recording of that size has about half as many


def read_recording(
    raw: bytes, *, max_packed: int = MAX_PACKED, max_unpacked: int = MAX_UNPACKED
) -> Trace:
    """The trace in a file's bytes, which are JSON or gzipped JSON.

    max_packed, max_unpacked: the most bytes of the file and of its JSON; no more are unpacked.
    Raises `TraceError` with one sentence that says what is invalid and where.
    """
    if not raw:
        raise TraceError(f"this file is empty; {ADVICE}.")
    if len(raw) > max_packed:
        raise _too_large("this file has", max_packed)
    data = _parsed(_unpacked(raw, max_unpacked))
    trace = Trace.from_dict(data)
    from .identities import check_trace  # imports pydantic, which only files need

    check_trace(trace)
    if data.get("digest") not in (None, digest_of(data)):
        raise TraceError(
            f"the digest does not match: the file was changed after the recording; {ADVICE}."
        )
    return trace


def read_file(path: str | Path) -> tuple[Trace, bytes]:
    """The trace in a file and the file's bytes.

    Raises `TraceError`, with the file's name, if `read_recording` rejects it.
    """
    name = Path(path).name
    try:
        raw = Path(path).read_bytes()
        return read_recording(raw), raw
    except OSError as error:
        raise TraceError(f"{name} cannot be read: {error.strerror}.") from error
    except TraceError as error:
        raise TraceError(f"{name}: {error}") from error


def file_summary(path: str | Path) -> str:
    """One line about the recording in a file: size, rounds, tokens, device, date and digest.

    Raises `TraceError`, with the file's name, if `read_recording` rejects it.
    """
    trace, raw = read_file(path)
    tokens = f"{sum(len(r.emitted) for r in trace.rounds)} tokens"
    if trace.end is None:
        tokens += " (interrupted)"
    digest = digest_of(_parsed(_unpacked(raw, MAX_UNPACKED)))
    return (
        f"{Path(path).name}: {len(raw):,} bytes, {len(trace.rounds)} rounds, {tokens}, "
        f"{trace.header.device}, {trace.header.date}, {digest}"
    )


def _unpacked(raw: bytes, limit: int) -> bytes:
    """The bytes of a file's JSON, at most `limit`."""
    if raw[:2] == GZIP:
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: gzip only
        try:
            raw = unpacker.decompress(raw, limit + 1)
        except zlib.error:
            raise TraceError(f"this file's gzip data is damaged; {ADVICE}.") from None
        if len(raw) <= limit and not unpacker.eof:
            raise TraceError(f"this file is cut off: its gzip data has no end; {ADVICE}.")
        if unpacker.unused_data:
            raise TraceError(f"this file has more bytes after the end of its gzip data; {ADVICE}.")
    if len(raw) > limit:
        raise _too_large("this file unpacks to", limit)
    return raw


def _too_large(beginning: str, limit: int) -> TraceError:
    """The error for a file that is too large. limit: in bytes."""
    return TraceError(
        f"{beginning} more than {limit / 2**20:.3g} MiB, the limit for a recording here; record a "
        "shorter run."
    )


def _parsed(raw: bytes) -> Any:
    # A value costs a parser far more time and memory than its bytes, so values are counted first.
    if sum(map(raw.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise TraceError(f"this file has more values than a recording can have; {ADVICE}.")
    try:
        # orjson rejects NaN, deep nesting, single surrogates and text that is not UTF-8.
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise TraceError(
            f"this file is not valid JSON at line {error.lineno}, column {error.colno}; {ADVICE}."
        ) from None


class Form(NamedTuple):
    """A file format for a trace: the file name's ending, and the function that writes the text."""

    suffix: str
    write: Callable[[Trace], str]


FORMS = {
    "html": Form(".html", standalone_html),
    "embed": Form("-player.html", embedded_html),
    "charts": Form("-charts.html", charts_html),
    "figures": Form("-charts.json", figures_json),
    "tokens": Form("-tokens.csv", tokens_csv),
    "rounds": Form("-rounds.csv", rounds_csv),
}

TRACE = "trace"  # the form that asks for the trace itself
PROMPT_FILES = {
    "prompts": "",
    "prompts-csv": ".csv",
}
"""The forms that request the prompts in a file, with the file's known suffix."""
MAX_PROMPTS = 100  # prompts that are answered
MAX_MEMORY = 2 * 2**30  # bytes of address space; the largest recordings need a third of it
TOO_LARGE = "this file needs too much memory to read; use a smaller one."


def answer_to(form: str, raw: bytes) -> dict[str, Any]:
    """`{"trace"}` for `TRACE`, and `{"suffix", "text"}` for one of `FORMS`, made of a recording;
    for one of `PROMPT_FILES`, `{"prompts": [[kind, text], ...], "left_out": number}`, of all kinds
    in turn; `{"error": sentence}` if the file is none of that form."""
    try:
        if form in PROMPT_FILES:
            return _prompts_in(raw, PROMPT_FILES[form])
        if form == TRACE:
            return {"trace": read_recording(raw, max_packed=MAX_PACKED).to_dict()}
        trace = read_recording(raw, max_packed=MAX_UNPACKED)
        return {"suffix": FORMS[form].suffix, "text": FORMS[form].write(trace)}
    except (PromptError, TraceError) as error:
        return {"error": str(error)}
    except (MemoryError, RecursionError):
        return {"error": TOO_LARGE}


def _prompts_in(raw: bytes, suffix: str) -> dict[str, Any]:
    prompts = prompts_from(raw, "this file", suffix=suffix)
    texts = [prompt for prompt in prompts if not prompt.messages]
    if not texts:
        raise PromptError(
            "this file has only prompts with several turns: sweep them with `python -m specviz "
            "sweep --prompts FILE`."
        )
    answered = in_turn(texts)[:MAX_PROMPTS]
    return {
        "prompts": [[prompt.kind, prompt.text] for prompt in answered],
        "left_out": len(prompts) - len(answered),
    }


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until they end."""
    # Leave processors to runs and limit memory, where the system can do that.
    with contextlib.suppress(AttributeError, OSError):
        os.nice(10)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    for line in iter(requests.readline, b""):
        form, size = line.split()
        file = requests.read(int(size))
        answer = orjson.dumps(answer_to(form.decode(), file))
        answers.write(b"%d\n" % len(answer))
        answers.write(answer)
        answers.flush()
