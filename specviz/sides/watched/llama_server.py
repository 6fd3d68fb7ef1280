"""The stream of llama.cpp's server: a chunk per token, with the drafted and accepted tokens so
far."""

from __future__ import annotations

from typing import Any

from ...core.events import UNKNOWN_ID, EndReason
from ...errors import SettingsError
from ...settings import Settings
from .stream import Arrival, Engine, Prompt, Reader

RANDOM_SEED = 2**32 - 1  # asks for a seed of the server's own


class LlamaServer(Engine):
    """A model on llama.cpp's server."""

    steps_told = True

    def request(self, prompt: Prompt, settings: Settings) -> tuple[str, dict[str, Any]]:
        if settings.seed >= RANDOM_SEED:
            raise SettingsError(
                f"llama.cpp takes seeds below {RANDOM_SEED}: choose a smaller seed."
            )
        return "/completion", {
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "n_predict": settings.max_new_tokens,
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "min_p": 0.0,
            "repeat_penalty": 1.0,
            "samplers": ["temperature", "top_k", "top_p"],
            "seed": settings.seed,
            "stop": list(settings.stop),
            "ignore_eos": settings.ignore_eos,
            "stream": True,
            "timings_per_token": True,  # nosec B105
            "return_tokens": True,  # nosec B105
        }

    def reader(self, settings: Settings) -> Reader:
        return LlamaReader(self, settings)

    def tokenize(self, prompt: str) -> list[int]:
        return self.told_ids({"content": prompt, "add_special": True})


class LlamaReader(Reader):
    """Reads one stream. A token that holds a part of a character is not sent, only counted."""

    _drafted = _accepted = 0
    _step: object = None

    def _told(self, chunk: dict[str, Any]) -> Arrival:
        ids = [int(one) for one in chunk["tokens"]]
        text, count = str(chunk["content"]), int(chunk["tokens_predicted"])
        timings = chunk.get("timings") or {}
        # Until something was drafted the counts are left out.
        self._drafted = int(timings.get("draft_n", self._drafted))
        self._accepted = int(timings.get("draft_n_accepted", self._accepted))
        missing = [UNKNOWN_ID] * max(0, count - self._count - len(ids))
        self._count = max(count, self._count)
        ended = self._reason(chunk) if chunk["stop"] else None
        if ended is None or self._step is None:
            # The last chunk's time is that of the whole text.
            self._step = (self._drafted, self._accepted, timings.get("predicted_ms"))
        ids = [*missing, *ids]
        texts = [""] * (len(ids) - 1) + [text] if ids else []
        return Arrival(ids, texts, self._drafted, self._accepted, self._step, ended)

    def _reason(self, chunk: dict[str, Any]) -> EndReason:
        reason = chunk.get("stop_type")
        return self._full() if reason == "limit" else "stop" if reason == "word" else "eos"
