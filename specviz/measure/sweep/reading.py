"""Further files of strangers, beside those of `runs.reading`, in the same bounded process."""

from __future__ import annotations

from typing import Any, BinaryIO

from ...errors import PromptError
from ...prompts import in_turn, prompts_from
from ...runs import reading

PROMPTS = "prompts"
"""The form that asks for the prompts in a file."""

MOST = 100
"""The most prompts that are answered."""


def answer_to(form: str, raw: bytes) -> dict[str, Any]:
    """For `PROMPTS`, `{"prompts": [[kind, text], ...], "left_out": number}`, of all kinds in turn;
    for other forms as `runs.reading` answers. `{"error":
    sentence}` if the file is none of that form."""
    try:
        if form == PROMPTS:
            found = prompts_from(raw, "this file")
            some = in_turn(found)[:MOST]
            pairs = [[one.kind, one.text] for one in some]
            return {"prompts": pairs, "left_out": len(found) - len(some)}
    except PromptError as error:
        return {"error": str(error)}
    except (MemoryError, RecursionError):
        return {"error": reading.TOO_LARGE}
    return reading.answer_to(form, raw)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until they end."""
    reading.serve(requests, answers, answer_to)
