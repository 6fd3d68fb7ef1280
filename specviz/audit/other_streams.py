"""Streams of servers that report no token ids: SGLang, Ollama, LM Studio and others of OpenAI's
protocol. A chunk is a piece of text; the number of tokens is known only for the whole text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.events import UNKNOWN_ID, EndReason
from ..core.settings import Settings
from ..sides.watched.engines import Prompt, Reader, WatchedEngine
from ..sides.watched.steps import Step, StreamedToken

DRAFTED = ("total_draft_tokens_count", "spec_num_proposed_drafts", "spec_draft_token_num")
ACCEPTED = ("accepted_draft_tokens_count", "spec_num_correct_drafts", "spec_accept_token_num")
"""Names under which LM Studio (`stats`) and SGLang (`meta_info`) report a text's drafts."""
RECORDS = ("stats", "meta_info", "usage", "metadata")


class TextReader(Reader):
    """Makes a step of each chunk with text. count: tokens of the whole text, once reported.
    drafted, accepted: of the whole text; None if not reported."""

    def __init__(self, engine: WatchedEngine, settings: Settings) -> None:
        super().__init__(engine, settings)
        self.count: int | None = None
        self.drafted: int | None = None
        self.accepted: int | None = None

    def _steps(self, chunk: dict[str, Any], at: float) -> list[Step]:
        usage = chunk.get("usage")
        if isinstance(usage, Mapping):
            self.count = first_count(usage, ("completion_tokens",), self.count)
        choices = chunk.get("choices") or [{}]
        choice = choices[0]
        self._read_counts(chunk)
        self._read_counts(choice)
        finish_reason = choice.get("finish_reason")
        if finish_reason is not None:
            self.ended = end_reason(finish_reason)
        text = str(choice.get("text") or "")
        if not text:
            return []
        return [Step([StreamedToken(UNKNOWN_ID, text, at)])]

    def _read_counts(self, record: Mapping[str, Any]) -> None:
        for name in RECORDS:
            counts = record.get(name)
            if isinstance(counts, Mapping):
                self.drafted = first_count(counts, DRAFTED, self.drafted)
                self.accepted = first_count(counts, ACCEPTED, self.accepted)


def end_reason(finish_reason: object) -> EndReason:
    """The end reason for a server's name of it."""
    if finish_reason == "length":
        return "length"
    return "eos"


def first_count(
    counts: Mapping[str, Any], names: tuple[str, ...], otherwise: int | None
) -> int | None:
    """The first whole number under one of these names."""
    for name in names:
        count = counts.get(name)
        if type(count) is int:
            return count
    return otherwise


class TextEngine(WatchedEngine):
    """A model on a server of OpenAI's completions that reports no token ids."""

    path = "completions"
    text_field = "prompt"
    special_tokens_field = "add_special_tokens"
    reader = TextReader

    def question(self, prompt: Prompt, settings: Settings) -> dict[str, Any]:
        return {
            **super().question(prompt, settings),
            "max_tokens": settings.max_new_tokens,
            "top_k": settings.top_k or -1,
            "stream_options": {"include_usage": True},
        }

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        return []
