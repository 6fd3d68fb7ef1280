"""Requests to a target's server, whatever engine it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...base.errors import PairError
from ...core.settings import Settings
from ...remote.wire import ANOTHER_FORM, Server


class Drawn(NamedTuple):
    """A token that the server drew after a prefix.

    p: its probability. asked: the probabilities of the requested tokens, by id. All probabilities
    are those after temperature, top-k and top-p.
    """

    id: int
    p: float
    asked: dict[int, float]


class Wanted(NamedTuple):
    """A request for draws after each prefix: `tokens` of them, under the temperature, top-k and
    top-p of the settings. asked: ids of tokens whose probabilities are wanted too."""

    asked: Sequence[int]
    settings: Settings
    seed: int
    tokens: int = 1


class TargetServer:
    """A model on a server; subclasses know its engine.

    model: its name on the server. In `logprobs` and `draws`, `prefixes` are the first n, n + 1,
    ... tokens of one text.
    """

    path = ""
    """The path of requests for log-probabilities."""

    text_field = ""
    """The name of the text in requests to the tokenizer, and in its answers."""

    special_tokens_field = ""
    """The name of the option for special tokens in these requests."""

    gives_logprobs = ""
    """The engine with its options for log-probabilities: "vLLM (logprobs)"."""

    def __init__(self, server: Server, model: str) -> None:
        self.server = server
        self.model = model
        self._exchanged = 0  # bytes
        self._seconds = 0.0

    def lists(self, vocab: int, wanted: int) -> int:
        """The number of log-probabilities that the server gives after a prefix, up to `wanted`,
        measured on its answers. Raises `ServerError`, and `PairError` if they have another
        form."""
        prefixes = [[0], [0, 0]]
        question = self._question(prefixes, wanted)
        answer = self.server.ask(self.path, question)
        logprobs = self._read(answer, len(prefixes), vocab)
        listed_by_prefix = torch.isfinite(logprobs).sum(-1)
        listed = int(listed_by_prefix.min())
        if listed >= vocab:
            return vocab
        return min(wanted, listed)

    def logprobs(self, prefixes: Sequence[Sequence[int]], listed: int, vocab: int) -> Tensor:
        """The log-probabilities of the `listed` likeliest next tokens after each prefix, at
        temperature 1: fp32 [n, vocab], -inf where the server lists none. Raises `ServerError`."""
        question = self._question(prefixes, listed)
        answer = self._posted(question)
        return self._read(answer, len(prefixes), vocab)

    def listings(self, prefixes: Sequence[Sequence[int]], listed: int) -> list[dict[int, float]]:
        """The `listed` likeliest next tokens after each prefix, each id with its log-probability at
        temperature 1. Raises `ServerError`, and `PairError` if the server lists none."""
        question = self._question(prefixes, listed)
        answer = self.server.ask(self.path, question)
        listings = []
        try:
            for ids, logprobs in self._top_logprobs(answer, len(prefixes)):
                listings.append(dict(zip(ids, logprobs, strict=True)))
        except ANOTHER_FORM as error:
            raise self._no_logprobs() from error
        return listings

    def take_round_fields(self) -> dict[str, Any]:
        """The cost of `logprobs` and `draws` since the last call, as fields of a `Round`."""
        fields = {"exchanged": self._exchanged or None, "server_seconds": self._seconds or None}
        self._exchanged = 0
        self._seconds = 0.0
        return fields

    def draws(self, prefixes: Sequence[Sequence[int]], wanted: Wanted) -> list[list[Drawn]]:
        """The drawn tokens, by prefix. Draws after one prefix are independent; draws after
        different prefixes need not be. Raises `ServerError`, and `PairError` if the server cannot
        draw."""
        raise PairError("this server does not report the probabilities of chosen tokens.")

    def can_draw(self, vocab: int) -> bool:
        """Whether `draws` works. Never call it for a server that speculates: this request has
        crashed vLLM 0.32.0. Raises `ServerError`."""
        return False

    def streaming_rate(self, prompt: Sequence[int], count: int) -> float:
        """Tokens per second of the server's own greedy stream after a prompt, as seen by this
        machine. Raises `ServerError` and `PairError`.

        It includes the time to the first token. On a busy machine chunks may wait and arrive
        together, so the time between the first and the last of them means nothing.
        """
        body = self._body(prompt, count)
        body["ignore_eos"] = True
        body["stream"] = True
        seconds = None
        for at, chunk in self.server.stream(self.path, body):
            if chunk.get("choices") or chunk.get("content"):
                seconds = at
        if seconds is None:
            raise PairError(f"{self.server.shown} sends no stream, so its own speed is unknown.")
        return count / seconds

    def tokenize(self, text: str) -> list[int]:
        """The ids of a text without special tokens. Raises `ServerError`."""
        body = {self.text_field: text, self.special_tokens_field: False}
        ids = self._answered("/tokenize", body, "tokens")
        are_ids = isinstance(ids, list) and all(type(token_id) is int for token_id in ids)
        if not are_ids:
            raise PairError(self.server.rubbish())
        return list(ids)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of ids. Raises `ServerError`."""
        return str(self._answered("/detokenize", {"tokens": list(ids)}, self.text_field))

    def _body(self, prompt: Sequence[Any], count: int) -> dict[str, Any]:
        """The body of a request for `count` greedy tokens after a prompt, or after each of
        several."""
        raise NotImplementedError

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        """The body of a request for one token after each prefix, with the log-probabilities of the
        `listed` likeliest."""
        raise NotImplementedError

    def _top_logprobs(self, answer: Any, count: int) -> Iterator[tuple[list[int], list[float]]]:
        """The listed ids and their log-probabilities after each prefix. Raises `ANOTHER_FORM`."""
        raise NotImplementedError

    def _worked_seconds(self, answer: Any) -> float | None:
        """The server's own time for an answer in seconds, or None."""
        return None

    def _posted(self, body: dict[str, Any]) -> Any:
        """Post a request and return the answer; `take_round_fields` counts its cost."""
        answer = self.server.post(self.path, body)
        self._exchanged += answer.sent + answer.received
        self._seconds += self._worked_seconds(answer.value) or 0.0
        return answer.value

    def _read(self, answer: Any, count: int, vocab: int) -> Tensor:
        """The log-probabilities in an answer, in the form of `logprobs`."""
        try:
            listed = self._top_logprobs(answer, count)
            rows = [_whole_row(ids, logprobs, vocab) for ids, logprobs in listed]
            return torch.from_numpy(np.stack(rows))
        except ANOTHER_FORM as error:
            raise self._no_logprobs() from error

    def _no_logprobs(self) -> PairError:
        return PairError(
            f"{self.server.shown} does not return log-probabilities by token id for several "
            "prefixes, which a target needs: use a server that does, such as "
            f"{self.gives_logprobs}."
        )

    def _answered(self, path: str, body: dict[str, Any], field: str) -> Any:
        """A field of the answer to a request about this model."""
        body_with_model = {"model": self.model, **body}
        try:
            answer = self.server.ask(path, body_with_model)
            return answer[field]
        except ANOTHER_FORM as error:
            raise PairError(self.server.rubbish()) from error


def _whole_row(ids: Sequence[int], logprobs: Sequence[float], vocab: int) -> NDArray[np.float32]:
    """fp32 [vocab] with `logprobs` at `ids` and -inf elsewhere. Raises `ValueError` if there are
    none or one is NaN."""
    row = np.full(vocab, -np.inf, np.float32)
    columns = np.asarray(ids, np.int64)
    values = np.asarray(logprobs, np.float32)
    is_known = (columns >= 0) & (columns < vocab)  # ids of padding are never drawn
    row[columns[is_known]] = values[is_known]
    if not np.isfinite(row).any() or np.isnan(values).any():
        raise ValueError
    return row
