"""Messages between the page's process and the models' process, pickled into pipes.

The page sends tasks, and None to stop the current one. The models' process sends replies.
"""

from __future__ import annotations

import pickle  # nosec B403
from typing import IO, Any, Literal, TypeAlias

ReplyKind: TypeAlias = Literal["result", "done", "error", "leaving", "lost"]
Reply: TypeAlias = tuple[ReplyKind, Any]
"""A kind and a value. "result": a result of the task. "done": the task has ended. "error": the task
failed, the value says why. "leaving": the same, and the process ends. "lost": the pipe broke, so
nothing follows; the reader of the pipe adds it."""


def write_message(pipe: IO[bytes], message: Any) -> None:
    """Send a message at once: if a value cannot be pickled, nothing is written."""
    pipe.write(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
    pipe.flush()


def read_message(pipe: IO[bytes]) -> Any:
    """Wait for the next message. Raises `EOFError` at the end of the pipe, and any error if half a
    message comes."""
    return pickle.load(pipe)  # nosec B301
