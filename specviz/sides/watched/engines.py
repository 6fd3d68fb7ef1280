"""The streams of the engines that can be watched.

vLLM sends one chunk per engine step, and at the end, if it was started with
`--per-request-spec-decode-metrics detailed`, what every verify step drafted and accepted.
llama.cpp's server sends a chunk per token, with the drafted and accepted tokens so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...core.events import UNKNOWN_ID, EndReason
from ...errors import PairError, ServerError, SettingsError
from ...remote.identity import Identity
from ...remote.wire import Server
from ...settings import Settings
from .steps import Counts, counts_of
from .stream import Arrival, Prompt, Reader, WatchedEngine

MARK = "␞"  # stands in no ordinary token, and parts the texts of tokens
BLOCK = 4096  # ids whose texts one request asks for
MOST_BLOCKS = 128
BROKEN = "\ufffd"
ANOTHER_FORM = (LookupError, TypeError, ValueError, AttributeError)


class VllmEngine(WatchedEngine):
    """A model on a vLLM server, or on another that speaks its form of OpenAI's completions."""

    def __init__(self, server: Server, model: str, identity: Identity) -> None:
        super().__init__(server, model, identity)
        self.texts = self._vocabulary()

    def request(self, prompt: Prompt, settings: Settings) -> tuple[str, dict[str, Any]]:
        return "completions", {
            "model": self.model,
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "max_tokens": settings.max_new_tokens,
            "temperature": settings.temperature,
            "top_k": settings.top_k or -1,
            "top_p": settings.top_p,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": settings.seed,
            "stop": list(settings.stop),
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "ignore_eos": settings.ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,  # nosec B105
        }

    def reader(self, settings: Settings) -> Reader:
        return VllmReader(self, settings)

    def tokenize(self, prompt: str, *, special: bool = True) -> list[int]:
        body = {"model": self.model, "prompt": prompt, "add_special_tokens": special}
        return self.told_ids(body)

    def _vocabulary(self) -> dict[int, str]:
        """The texts of all tokens that are whole characters, by id; empty if the server does not
        tell. It is asked before any clock runs, since chunks tell only the text of all their
        tokens."""
        mark = self.tokenize(MARK, special=False)
        texts: dict[int, str] = {}
        for block in range(MOST_BLOCKS if mark else 0):
            ids = range(block * BLOCK, (block + 1) * BLOCK)
            marked = [part for one in ids for part in (*mark, one)] + mark
            body = {"model": self.model, "tokens": marked}
            with suppress(PairError, RuntimeError, *ANOTHER_FORM):
                _, *found, _ = self.server.ask("/detokenize", body)["prompt"].split(MARK)
                if len(found) == len(ids) and any(found):
                    texts |= {one: text for one, text in zip(ids, found, strict=True) if text}
                    continue
            break
        return {one: text for one, text in texts.items() if BROKEN not in text}


class VllmReader(Reader):
    """Reads one stream. Its text may lag behind its tokens, by a part of a character or of a stop
    string: a token's text is then the vocabulary's."""

    def __init__(self, engine: VllmEngine, settings: Settings) -> None:
        super().__init__(engine, settings)
        self._known = engine.texts
        self._lag = ""  # told by tokens, but not yet by the server

    def _told(self, chunk: dict[str, Any]) -> Arrival:
        choices = chunk.get("choices")
        if not choices:
            return Arrival(counts=counts_in(chunk))
        choice = choices[0]
        ids, text, reason = choice.get("token_ids"), choice["text"], choice.get("finish_reason")
        if ids is None:
            raise ServerError(
                f"{self._server.shown} streams no token ids: watch vLLM from 0.11 on, or "
                "llama.cpp's server."
            )
        ids = [int(one) for one in ids]
        self._count += len(ids)
        texts, self._lag = spread(ids, str(text or ""), self._lag, self._known)
        by_text = isinstance(choice.get("stop_reason"), str)
        why: EndReason = self._full() if reason == "length" else "stop" if by_text else "eos"
        return Arrival(ids, texts, ended=None if reason is None else why)


def spread(
    ids: Sequence[int], text: str, lag: str, known: Mapping[int, str]
) -> tuple[list[str], str]:
    """The texts of tokens whose text came together, and the lag after them.

    lag: what earlier tokens were given ahead of the server's text. known: texts by id. All texts
    together are the server's, but for what it holds back; where the texts of single tokens do not
    make it up, the last one gets it whole.
    """
    expected = lag + "".join(known.get(one, BROKEN) for one in ids)
    if BROKEN not in expected and expected.startswith(text):
        return [known[one] for one in ids], expected[len(text) :]
    return [""] * (len(ids) - 1) + [text.removeprefix(lag)] * bool(ids), ""


def counts_in(chunk: Mapping[str, Any]) -> Counts | None:
    """The counts of all verify steps in a stream's last chunk, if they are there."""
    told = (chunk.get("metrics") or {}).get("speculative_decoding")
    if not isinstance(told, Mapping):
        return None
    return counts_of(told.get("per_step_drafted"), told.get("per_step_accepted"))


RANDOM_SEED = 2**32 - 1  # asks for a seed of the server's own


class LlamaEngine(WatchedEngine):
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
