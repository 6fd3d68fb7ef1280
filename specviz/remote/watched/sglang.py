"""SGLang's `/generate`: chunks that repeat all tokens so far, and at the end what its verify steps
drafted and accepted, one by one (`--speculative-decoding-stats detailed`) or in sum.

Written after its sources; never run against a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.events import EndReason
from ...errors import PairError, ServerError, SettingsError
from ...settings import Settings
from ..wire import Server
from .steps import Counts, counts_of
from .stream import Arrival, Prompt


class Sglang:
    """The model on an SGLang server."""

    steps_told = False
    parameters = 0

    def __init__(self, server: Server, model: str, context: int | None) -> None:
        self.server, self.model, self.context = server, model, context
        self.source = _version(server)

    def request(self, prompt: Prompt, settings: Settings) -> tuple[str, dict[str, Any]]:
        if settings.seed and not settings.greedy:
            raise SettingsError("SGLang draws without a seed: leave seed at 0.")
        key = "text" if isinstance(prompt, str) else "input_ids"
        return "/generate", {
            key: prompt if isinstance(prompt, str) else list(prompt),
            "sampling_params": {
                "max_new_tokens": settings.max_new_tokens,
                "temperature": settings.temperature,
                "top_k": settings.top_k or -1,
                "top_p": settings.top_p,
                "stop": list(settings.stop),
                "no_stop_trim": True,
                "skip_special_tokens": False,
                "ignore_eos": settings.ignore_eos,
            },
            "stream": True,
        }

    def reader(self, settings: Settings) -> SglangReader:
        return SglangReader(self, settings)

    def tokenize(self, prompt: str) -> list[int]:
        return []


class SglangReader:
    """Reads one stream, whose chunks repeat what came before or, if the server was started so,
    hold only what is new: `completion_tokens` tells which."""

    def __init__(self, engine: Sglang, settings: Settings) -> None:
        self._shown, self._rubbish = engine.server.shown, engine.server.rubbish()
        self._most = settings.max_new_tokens
        self._count = 0
        self._text = ""

    def read(self, chunk: dict[str, Any]) -> Arrival:
        if "error" in chunk:
            raise ServerError(f"{self._shown} failed in mid-answer: {str(chunk['error'])[:200]}.")
        try:
            meta, ids = chunk["meta_info"], [int(one) for one in chunk["output_ids"]]
            count, text = int(meta["completion_tokens"]), str(chunk.get("text") or "")
        except (KeyError, TypeError, ValueError) as error:
            raise ServerError(self._rubbish) from error
        if len(ids) == count:
            ids = ids[self._count :]
            text, self._text = text.removeprefix(self._text), text
        self._count += len(ids)
        if self._count != count:
            raise ServerError(self._rubbish)
        texts = [""] * (len(ids) - 1) + [text] if ids else []
        ended = self._reason(meta.get("finish_reason"))
        return Arrival(ids, texts, ended=ended, counts=counts_in(meta) if ended else None)

    def _reason(self, reason: Any) -> EndReason | None:
        if reason is None:
            return None
        kind = reason.get("type") if isinstance(reason, Mapping) else reason
        if kind == "abort":
            said = reason.get("message", "") if isinstance(reason, Mapping) else ""
            raise ServerError(f"{self._shown} broke its answer off: {str(said)[:200]}.")
        if kind == "length":
            return "length" if self._count >= self._most else "context"
        matched = reason.get("matched") if isinstance(reason, Mapping) else None
        return "stop" if isinstance(matched, str) else "eos"


def counts_in(meta: Mapping[str, Any]) -> Counts | None:
    """The counts of all verify steps, if they are told one by one: lengths hold the target's own
    token as well."""
    told = meta.get("speculative_decoding_stats")
    if not isinstance(told, Mapping):
        return None
    return counts_of(told.get("verify_lengths"), told.get("accept_lengths"), own=1)


def _version(server: Server) -> str:
    for path in ("/server_info", "/get_server_info"):
        try:
            return f"SGLang {str(server.get(path)['version'])[:40]}"
        except (PairError, RuntimeError, KeyError, TypeError):
            continue
    return "SGLang"
