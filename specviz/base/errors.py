"""Errors that users can cause. Each message is one sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterator

# From torch and the libraries below it; "can't allocate" is from its allocator on a processor.
_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC")

ADVICE = "open another file or record the run again"
"""The end of every sentence about a recording that cannot be read."""


class SpecvizError(Exception):
    """Base of all errors that specviz raises on purpose; the page may show `str(error)`."""


class SettingsError(SpecvizError, ValueError):
    """A setting has the wrong type or is outside its range."""


class PromptError(SpecvizError, ValueError):
    """The prompt is empty, too long, or holds ids that the tokenizer does not know."""


class PairError(SpecvizError, ValueError):
    """The two models do not form a pair, or cannot be loaded."""


class ModelError(SpecvizError, RuntimeError):
    """A model cannot run: its logits are not finite, or its cache is not supported."""


class KindError(SpecvizError, RuntimeError):
    """A drafter or a verdict of another package fails, or breaks its contract."""


class TraceError(SpecvizError, ValueError):
    """A trace or a recording is invalid, or its file cannot be read or written."""


class NoGpuError(SpecvizError, RuntimeError):
    """A shared GPU was not available, or was withdrawn during the run."""


class ServerError(SpecvizError, RuntimeError):
    """A server that holds the target cannot be reached, or refuses or fails to answer."""


class OutputError(SpecvizError, RuntimeError):
    """Standard output or a file cannot be written."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one of its causes, means that memory ran out.

    Errors are recognised by their names and words, so that no caller needs to import torch.
    """
    return any(map(is_memory_error, causes_of(error)))


def is_memory_error(error: BaseException) -> bool:
    """Whether this error alone means that memory ran out."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _MEMORY)


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def in_one_line(error: BaseException) -> str:
    """An error and its causes in one line for a log: types and texts, the innermost cause last."""
    lines = []
    for cause in causes_of(error):
        text = " ".join(str(cause).split())
        lines.append(f"{type(cause).__name__}: {text}"[:500])
    return ", caused by ".join(lines)


def shown(value: object) -> str:
    """A user's value for a sentence: its type and the beginning of its repr."""
    try:
        text = repr(value)
    except RecursionError:  # lists in lists in lists
        text = "nested too deeply"
    return f"{type(value).__name__} {text}"[:60]
