"""Further files of strangers, beside those of `runs.reading`, in the same bounded process."""

from __future__ import annotations

from typing import Any, BinaryIO

from ...errors import PromptError, TraceError
from ...prompts import in_turn, prompts_from
from ...runs import reading
from ...runs.batch_chart import batch_figure
from ...runs.batches import BatchReport
from ...runs.charts import PALETTE

PROMPTS = "prompts"
"""The form that asks for the prompts in a file."""

BATCHES = "batches"
"""The form that asks what `bench --batch` measured."""

MOST = 100
"""The most prompts that are answered."""


def answer_to(form: str, raw: bytes) -> dict[str, Any]:
    """For `PROMPTS`, `{"prompts": [[kind, text], ...], "left_out": number}`, of all kinds in turn;
    for `BATCHES`, `{"verdict", "figures"}`; for other forms as `runs.reading` answers. `{"error":
    sentence}` if the file is none of that form."""
    try:
        if form == PROMPTS:
            found = prompts_from(raw, "this file")
            some = in_turn(found)[:MOST]
            pairs = [[one.kind, one.text] for one in some]
            return {"prompts": pairs, "left_out": len(found) - len(some)}
        if form == BATCHES:
            report = BatchReport.from_json(raw.decode("utf-8", errors="replace"))
            return {"verdict": report.verdict(), "figures": _figures(report)}
    except (PromptError, TraceError) as error:
        return {"error": str(error)}
    except (MemoryError, RecursionError):
        return {"error": reading.TOO_LARGE}
    return reading.answer_to(form, raw)


def _figures(report: BatchReport) -> dict[str, Any]:
    """The chart by theme and name, as JSON-ready values."""
    title = f"{report.target} with {report.draft}, {report.form}"
    drawn = {theme: batch_figure(report, theme).to_plotly_json() for theme in PALETTE}
    return {theme: {"batches": {"title": title, **one}} for theme, one in drawn.items()}


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until they end."""
    reading.serve(requests, answers, answer_to)
