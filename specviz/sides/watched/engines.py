"""The engines that can be watched: how each is asked for a stream, and which steps its chunks tell.

vLLM sends one chunk per engine step, and at the end, if it was started with
`--per-request-spec-decode-metrics detailed`, what every verify step drafted and accepted.
llama.cpp's server sends a chunk per token, with the drafted and accepted tokens so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from ...core.events import UNKNOWN_ID, EndReason
from ...errors import PairError, ServerError, SettingsError
from ...remote.identity import Identity
from ...remote.wire import ANOTHER_FORM, Server
from ...settings import Settings
from .steps import Counts, Step, Word

Prompt: TypeAlias = str | Sequence[int]
"""A text, or token ids."""

MARK = "␞"  # stands in no ordinary token, and parts the texts of tokens
BLOCK = 4096  # ids whose texts one request asks for
MOST_BLOCKS = 128
BROKEN = "\ufffd"
RANDOM_SEED = 2**32 - 1  # asks for a seed of the server's own


class WatchedEngine:
    """A serving engine. model: as it calls it. steps_told: whether its chunks tell their steps;
    otherwise a chunk is taken as a step. path: where it is asked. reader: reads one of its streams.
    tokenizing: how its tokenizer calls a text, and the wish for special tokens. texts: of all
    tokens that are whole characters, by id, where chunks do not tell them."""

    steps_told = False
    path: str
    reader: type[Reader]
    tokenizing: tuple[str, str]
    texts: Mapping[int, str] = {}

    def __init__(self, server: Server, model: str, identity: Identity) -> None:
        self.server, self.model, self.identity = server, model, identity

    def question(self, prompt: Prompt, settings: Settings) -> dict[str, Any]:
        """The body that asks for a stream. Raises `SettingsError` for a setting that this engine
        lacks."""
        return {
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "min_p": 0.0,
            "seed": settings.seed,
            "stop": list(settings.stop),
            "ignore_eos": settings.ignore_eos,
            "stream": True,
        }

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text as the engine reads it; empty if it does not tell."""
        body = dict(zip(self.tokenizing, (text, special), strict=True))
        try:
            found = self.server.ask("/tokenize", {"model": self.model, **body})["tokens"]
            return found if all(type(one) is int for one in found) else []
        except (PairError, RuntimeError, KeyError, TypeError):
            return []


class Reader:
    """Makes steps of the chunks of one stream, in order. ended: why the text ended, and counts: of
    all verify steps, once a chunk has told them."""

    def __init__(self, engine: WatchedEngine, settings: Settings) -> None:
        self._server, self._known, self._most = engine.server, engine.texts, settings.max_new_tokens
        self._count = 0  # tokens so far
        self.ended: EndReason | None = None
        self.counts: Counts | None = None

    def read(self, chunk: dict[str, Any], at: float) -> list[Step]:
        """The steps that are complete with a chunk, which came `at` seconds after the request.
        Raises `ServerError` if it tells no token ids."""
        try:
            return self._steps(chunk, at)
        except ANOTHER_FORM as error:
            raise ServerError(self._server.rubbish()) from error

    def rest(self) -> list[Step]:
        """The step whose tokens have all come, or all that will come."""
        return []

    def _steps(self, chunk: dict[str, Any], at: float) -> list[Step]:
        raise NotImplementedError

    def _full(self) -> EndReason:
        """Why a text ended that no token ended."""
        return "length" if self._count >= self._most else "context"


class VllmReader(Reader):
    """Reads one stream. Its text may lag behind its tokens, by a part of a character or of a stop
    string: a token's text is then the vocabulary's."""

    _lag = ""  # told by tokens, but not yet by the server

    def _steps(self, chunk: dict[str, Any], at: float) -> list[Step]:
        choices = chunk.get("choices")
        if not choices:
            self.counts = counts_in(chunk) or self.counts
            return []
        choice = choices[0]
        ids, text, reason = choice.get("token_ids"), choice["text"], choice.get("finish_reason")
        if ids is None:
            raise ServerError(
                f"{self._server.shown} streams no token ids: watch vLLM from 0.11 on, or "
                "llama.cpp's server."
            )
        ids, before = [int(one) for one in ids], self._count
        self._count += len(ids)
        texts, self._lag = spread(ids, str(text or ""), self._lag, self._known)
        if reason is not None:
            by_text = isinstance(choice.get("stop_reason"), str)
            self.ended = self._full() if reason == "length" else "stop" if by_text else "eos"
        words = [Word(*one, at) for one in zip(ids, texts, strict=True)]
        if before:
            return [Step(words)] if words else []
        # The first token comes from reading the prompt, without any drafts.
        first, others = words[:1], words[1:]
        return [Step(one, *told) for one, told in ((first, (0, 0)), (others, ())) if one]


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
    lists: list[Any] = [told.get(name) for name in ("per_step_drafted", "per_step_accepted")]
    whole = all(isinstance(one, list) and all(type(n) is int for n in one) for one in lists)
    return Counts(*lists) if whole else None


class VllmEngine(WatchedEngine):
    """A model on a vLLM server, or on another that speaks its form of OpenAI's completions."""

    path, tokenizing = "completions", ("prompt", "add_special_tokens")
    reader = VllmReader

    def __init__(self, server: Server, model: str, identity: Identity) -> None:
        super().__init__(server, model, identity)
        self.texts = self._vocabulary()

    def question(self, prompt: Prompt, settings: Settings) -> dict[str, Any]:
        return super().question(prompt, settings) | {
            "model": self.model,
            "max_tokens": settings.max_new_tokens,
            "top_k": settings.top_k or -1,
            "repetition_penalty": 1.0,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,  # nosec B105
        }

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


class LlamaReader(Reader):
    """Reads one stream. A token that holds a part of a character is not sent, only counted."""

    def __init__(self, engine: WatchedEngine, settings: Settings) -> None:
        super().__init__(engine, settings)
        self._words: list[Word] = []  # of the step that is coming
        self._step: object = None  # the same for all its tokens
        self._so_far = self._before = (0, 0)  # drafted and accepted with this step, and before it

    def _steps(self, chunk: dict[str, Any], at: float) -> list[Step]:
        ids = [int(one) for one in chunk["tokens"]]
        text, count = str(chunk["content"]), int(chunk["tokens_predicted"])
        timings = chunk.get("timings") or {}
        ids = [*[UNKNOWN_ID] * max(0, count - self._count - len(ids)), *ids]
        self._count = max(count, self._count)
        if chunk["stop"]:
            ends: dict[object, EndReason] = {"limit": self._full(), "word": "stop"}
            self.ended = ends.get(chunk.get("stop_type"), "eos")
        if not ids:
            return []
        # Until something was drafted the counts are left out.
        names = "draft_n", "draft_n_accepted"
        drafted, accepted = (
            int(timings.get(name, so_far)) for name, so_far in zip(names, self._so_far, strict=True)
        )
        step: object = drafted, accepted, timings.get("predicted_ms")
        if chunk["stop"] and self._step is not None:
            step = self._step  # the last chunk's time is that of the whole text
        done = [] if step == self._step else self.rest()
        self._step, self._so_far = step, (drafted, accepted)
        texts = [""] * (len(ids) - 1) + [text]
        self._words += [Word(*one, at) for one in zip(ids, texts, strict=True)]
        is_whole = len(self._words) > accepted - self._before[1]
        return [*done, *(self.rest() if is_whole else [])]

    def rest(self) -> list[Step]:
        words, self._words = self._words, []
        if not words:
            return []
        drafted, accepted = (now - was for now, was in zip(self._so_far, self._before, strict=True))
        self._before = self._so_far
        adds_up = 0 <= accepted <= drafted and len(words) <= accepted + 1
        return [Step(words, drafted, accepted) if adds_up else Step(words)]


class LlamaEngine(WatchedEngine):
    """A model on llama.cpp's server."""

    steps_told = True
    path, tokenizing = "/completion", ("content", "add_special")
    reader = LlamaReader

    def question(self, prompt: Prompt, settings: Settings) -> dict[str, Any]:
        if settings.seed >= RANDOM_SEED:
            raise SettingsError(
                f"llama.cpp takes seeds below {RANDOM_SEED}: choose a smaller seed."
            )
        return super().question(prompt, settings) | {
            "n_predict": settings.max_new_tokens,
            "top_k": settings.top_k,
            "repeat_penalty": 1.0,
            "samplers": ["temperature", "top_k", "top_p"],
            "timings_per_token": True,  # nosec B105
            "return_tokens": True,  # nosec B105
        }
