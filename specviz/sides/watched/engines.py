"""Engines that can be watched: the request for a stream, and the steps in its chunks.

vLLM sends one chunk per engine step. If it was started with `--per-request-spec-decode-metrics
detailed`, the end of the stream has the drafted and accepted tokens of every verify step.
llama.cpp's server sends a chunk per token, with the totals of drafted and accepted tokens so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from ...base.errors import PairError, ServerError, SettingsError
from ...core.events import UNKNOWN_ID, EndReason
from ...core.messages import Messages
from ...core.settings import Settings
from ...remote.identity import Identity
from ...remote.wire import ANOTHER_FORM, Server
from .steps import Counts, Step, StreamedToken

Prompt: TypeAlias = str | Sequence[int]
"""A text, or token ids."""


class Rendered(NamedTuple):
    """A conversation in a server's chat template. prompt: for the server's request. text: the whole
    prompt as text."""

    prompt: Prompt
    text: str


MARK = "␞"  # no ordinary token holds it: a separator of tokens' texts
BLOCK = 4096  # ids per request for their texts
MAX_BLOCKS = 128
BROKEN = "\ufffd"
RANDOM_SEED = 2**32 - 1  # llama.cpp then chooses its own seed


class WatchedEngine:
    """A serving engine.

    model: its name on the server.
    tells_steps: whether chunks show the steps; otherwise each chunk counts as a step.
    path: the path of requests.
    reader: reads one of its streams.
    text_field, special_tokens_field: the names of the text, and of the option for special tokens,
        in requests to its tokenizer.
    texts: of all tokens that are whole characters, by id, for chunks without texts per token.
    """

    tells_steps = False
    path: str
    reader: type[Reader]
    text_field: str
    special_tokens_field: str
    texts: Mapping[int, str] = {}

    def __init__(self, server: Server, model: str, identity: Identity) -> None:
        self.server = server
        self.model = model
        self.identity = identity

    def question(self, prompt: Prompt, settings: Settings) -> dict[str, Any]:
        """The body of a request for a stream. Raises `SettingsError` for a setting that this
        engine lacks."""
        return {
            "model": self.model,
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "min_p": 0.0,
            "seed": settings.seed,
            "stop": list(settings.stop),
            "ignore_eos": settings.ignore_eos,
            "stream": True,
        }

    def rendered(self, messages: Messages) -> Rendered:
        """Render turns with the model's chat template, up to where the reply begins. Raises
        `ServerError`."""
        raise NotImplementedError

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text in the engine's tokenizer; empty if it has no such endpoint."""
        body = {"model": self.model, self.text_field: text, self.special_tokens_field: special}
        try:
            ids: list[int] = self.server.ask("/tokenize", body)["tokens"]
            if all(type(token_id) is int for token_id in ids):
                return ids
        except (PairError, RuntimeError, KeyError, TypeError):
            return []
        return []


class Reader:
    """Turns the chunks of one stream, in order, into steps.

    ended: the end reason, once a chunk has it. counts: those of all verify steps, once a chunk has
    them.
    """

    def __init__(self, engine: WatchedEngine, settings: Settings) -> None:
        self._server = engine.server
        self._texts = engine.texts
        self._max_new_tokens = settings.max_new_tokens
        self._count = 0  # tokens so far
        self.ended: EndReason | None = None
        self.counts: Counts | None = None

    def read(self, chunk: dict[str, Any], at: float) -> list[Step]:
        """The steps that this chunk completes; it arrived `at` seconds after the request. Raises
        `ServerError` if it has no token ids."""
        try:
            return self._steps(chunk, at)
        except ANOTHER_FORM as error:
            raise ServerError(self._server.rubbish()) from error

    def rest(self) -> list[Step]:
        """The unfinished step, as one that is complete or at the end of the stream."""
        return []

    def _steps(self, chunk: dict[str, Any], at: float) -> list[Step]:
        raise NotImplementedError

    def _limit_reason(self) -> EndReason:
        """The reason for an end without an end token."""
        if self._count >= self._max_new_tokens:
            return "length"
        return "context"


class VllmReader(Reader):
    """Reads one stream. Its text may lag behind its tokens, by a part of a character or of a stop
    string: then a token's text comes from the vocabulary."""

    _ahead = ""  # text that tokens have already, and that the server has not sent yet

    def _steps(self, chunk: dict[str, Any], at: float) -> list[Step]:
        choices = chunk.get("choices")
        if not choices:
            self.counts = counts_in(chunk) or self.counts
            return []
        choice = choices[0]
        sent_ids = choice.get("token_ids")
        text = str(choice["text"] or "")
        if sent_ids is None:
            raise ServerError(
                f"{self._server.shown} streams no token ids: watch vLLM 0.11 or newer, or "
                "llama.cpp's server."
            )
        ids = [int(token_id) for token_id in sent_ids]
        is_first = self._count == 0
        self._count += len(ids)
        texts, self._ahead = spread(ids, text, self._ahead, self._texts)
        if choice.get("finish_reason") is not None:
            self.ended = self._reason(choice)
        tokens = []
        for token_id, token_text in zip(ids, texts, strict=True):
            tokens.append(StreamedToken(token_id, token_text, at))
        if not tokens:
            return []
        if not is_first:
            return [Step(tokens)]
        # The first token comes from the prefill, without any drafts.
        steps = [Step(tokens[:1], 0, 0)]
        if tokens[1:]:
            steps.append(Step(tokens[1:]))
        return steps

    def _reason(self, choice: Mapping[str, Any]) -> EndReason:
        """The end reason in this chunk's choice."""
        if choice["finish_reason"] == "length":
            return self._limit_reason()
        if isinstance(choice.get("stop_reason"), str):
            return "stop"
        return "eos"


def spread(
    ids: Sequence[int], text: str, ahead: str, known: Mapping[int, str]
) -> tuple[list[str], str]:
    """Split a text among its tokens: the texts, and the part of them that runs ahead of the
    server's text.

    ahead: the text of earlier tokens that the server has not sent yet. known: texts by id. All
    texts together are the server's, except for text that it holds back. Where the known texts of
    tokens do not make up the text, the last token gets all of it.
    """
    texts = [known.get(token_id, BROKEN) for token_id in ids]
    expected = ahead + "".join(texts)
    if BROKEN not in expected and expected.startswith(text):
        return texts, expected[len(text) :]
    texts = [""] * len(ids)
    if texts:
        texts[-1] = text.removeprefix(ahead)
    return texts, ""


def counts_in(chunk: Mapping[str, Any]) -> Counts | None:
    """The counts of all verify steps in a stream's last chunk, or None."""
    metrics = (chunk.get("metrics") or {}).get("speculative_decoding")
    if not isinstance(metrics, Mapping):
        return None
    drafted = metrics.get("per_step_drafted")
    accepted = metrics.get("per_step_accepted")
    if not _are_counts(drafted) or not _are_counts(accepted):
        return None
    return Counts(drafted, accepted)


def _are_counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(count) is int for count in value)


class VllmEngine(WatchedEngine):
    """A model on a vLLM server, or on another server with its form of OpenAI's completions."""

    path = "completions"
    text_field = "prompt"
    special_tokens_field = "add_special_tokens"
    reader = VllmReader

    def __init__(
        self, server: Server, model: str, identity: Identity, *, with_texts: bool = True
    ) -> None:
        super().__init__(server, model, identity)
        if with_texts:
            self.texts = self._vocabulary()

    def question(self, prompt: Prompt, settings: Settings) -> dict[str, Any]:
        return {
            **super().question(prompt, settings),
            "max_tokens": settings.max_new_tokens,
            "top_k": settings.top_k or -1,
            "repetition_penalty": 1.0,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,  # nosec B105
        }

    def rendered(self, messages: Messages) -> Rendered:
        turns = [asdict(message) for message in messages]
        body = {"model": self.model, "messages": turns, "add_generation_prompt": True}
        try:
            tokenized = self.server.ask("/tokenize", body)
            ids = [int(token_id) for token_id in tokenized["tokens"]]
            read = self.server.ask("/detokenize", {"model": self.model, "tokens": ids})
            return Rendered(ids, str(read["prompt"]))
        except ANOTHER_FORM as error:
            raise ServerError(self.server.rubbish()) from error

    def _vocabulary(self) -> dict[int, str]:
        """The texts of all tokens that are whole characters, by id; empty if the server does not
        give them. It is read before any clock runs, because a chunk has only one text for all its
        tokens."""
        mark = self.tokenize(MARK, special=False)
        if not mark:
            return {}
        vocabulary: dict[int, str] = {}
        for block in range(MAX_BLOCKS):
            first = block * BLOCK
            ids = range(first, first + BLOCK)
            texts = self._texts_of(ids, mark)
            if not any(texts):
                break
            for token_id, text in zip(ids, texts, strict=True):
                if text and BROKEN not in text:
                    vocabulary[token_id] = text
        return vocabulary

    def _texts_of(self, ids: Sequence[int], mark: Sequence[int]) -> list[str]:
        """The texts of `ids`, or an empty list if the server does not give them. mark: the ids of
        `MARK`, which separates them."""
        marked = [*mark]
        for token_id in ids:
            marked += [token_id, *mark]
        body = {"model": self.model, "tokens": marked}
        try:
            text = self.server.ask("/detokenize", body)["prompt"]
            parts = text.split(MARK)
        except (PairError, RuntimeError, *ANOTHER_FORM):
            return []
        texts: list[str] = parts[1:-1]
        if len(texts) != len(ids):
            return []
        return texts


class _Totals(NamedTuple):
    """Numbers of drafted and of accepted tokens so far."""

    drafted: int
    accepted: int


class LlamaReader(Reader):
    """Reads one stream. A token with a part of a character is not sent, only counted."""

    def __init__(self, engine: WatchedEngine, settings: Settings) -> None:
        super().__init__(engine, settings)
        self._tokens: list[StreamedToken] = []  # of the current step
        self._step: object = None  # the same for all its tokens
        # With the current step, and without it.
        self._total = _Totals(drafted=0, accepted=0)
        self._total_before = self._total

    def _steps(self, chunk: dict[str, Any], at: float) -> list[Step]:
        text = str(chunk["content"])
        ids = self._new_ids(chunk)
        if chunk["stop"]:
            self.ended = self._reason(chunk)
        if not ids:
            return []
        timings = chunk.get("timings") or {}
        total = self._total_in(timings)
        step: object = (total, timings.get("predicted_ms"))
        if chunk["stop"] and self._step is not None:
            step = self._step  # the last chunk's time is that of the whole text
        steps = []
        if step != self._step:
            steps = self.rest()
        self._step = step
        self._total = total
        *earlier_ids, last_id = ids
        for token_id in earlier_ids:
            self._tokens.append(StreamedToken(token_id, "", at))
        self._tokens.append(StreamedToken(last_id, text, at))
        accepted = total.accepted - self._total_before.accepted
        if len(self._tokens) > accepted:
            steps += self.rest()
        return steps

    def _new_ids(self, chunk: Mapping[str, Any]) -> list[int]:
        """The ids of the tokens since the last chunk; unknown ones for those that were not sent."""
        sent_ids = [int(token_id) for token_id in chunk["tokens"]]
        count = int(chunk["tokens_predicted"])
        not_sent = max(0, count - self._count - len(sent_ids))
        self._count = max(count, self._count)
        return [UNKNOWN_ID] * not_sent + sent_ids

    def _total_in(self, timings: Mapping[str, Any]) -> _Totals:
        """The totals in a chunk's timings, which lack them until something is drafted."""
        return _Totals(
            drafted=int(timings.get("draft_n", self._total.drafted)),
            accepted=int(timings.get("draft_n_accepted", self._total.accepted)),
        )

    def _reason(self, chunk: Mapping[str, Any]) -> EndReason:
        """The end reason in this chunk."""
        if chunk.get("stop_type") == "limit":
            return self._limit_reason()
        if chunk.get("stop_type") == "word":
            return "stop"
        return "eos"

    def rest(self) -> list[Step]:
        tokens = self._tokens
        self._tokens = []
        if not tokens:
            return []
        drafted = self._total.drafted - self._total_before.drafted
        accepted = self._total.accepted - self._total_before.accepted
        self._total_before = self._total
        adds_up = 0 <= accepted <= drafted and len(tokens) <= accepted + 1
        if not adds_up:
            return [Step(tokens)]
        return [Step(tokens, drafted, accepted)]


class LlamaEngine(WatchedEngine):
    """A model on llama.cpp's server."""

    tells_steps = True
    path = "/completion"
    text_field = "content"
    special_tokens_field = "add_special"
    reader = LlamaReader

    def rendered(self, messages: Messages) -> Rendered:
        turns = [asdict(message) for message in messages]
        body = {"model": self.model, "messages": turns}
        try:
            text = str(self.server.ask("/apply-template", body)["prompt"])
            return Rendered(text, text)
        except ANOTHER_FORM as error:
            raise ServerError(self.server.rubbish()) from error

    def question(self, prompt: Prompt, settings: Settings) -> dict[str, Any]:
        if settings.seed >= RANDOM_SEED:
            raise SettingsError(
                f"llama.cpp takes seeds below {RANDOM_SEED}: choose a smaller seed."
            )
        return {
            **super().question(prompt, settings),
            "n_predict": settings.max_new_tokens,
            "top_k": settings.top_k,
            "repeat_penalty": 1.0,
            "samplers": ["temperature", "top_k", "top_p"],
            "timings_per_token": True,  # nosec B105
            "return_tokens": True,  # nosec B105
        }
