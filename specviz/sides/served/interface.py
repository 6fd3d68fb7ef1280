"""What is asked of a target's server, whatever engine it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import PairError
from ...remote.wire import ANOTHER_FORM, Server
from ...settings import Settings


class Drawn(NamedTuple):
    """A token that the server drew after a prefix.

    p: its probability there. asked: the probability of each token that was asked about, by id. All
    are after temperature, top-k and top-p.
    """

    id: int
    p: float
    asked: dict[int, float]


class Wanted(NamedTuple):
    """What is drawn after each prefix: so many tokens, under the temperature, top-k and top-p
    of the settings. asked: ids of tokens whose probabilities there are told."""

    asked: Sequence[int]
    settings: Settings
    seed: int
    tokens: int = 1


class TargetServer:
    """A model on a server. What depends on its engine is in the classes below this one.

    model: its name there. In `rows` and `draws`, `prefixes` are the first n, n + 1, ... tokens of
    one text.
    """

    path = ""  # where it is asked for log-probabilities
    tokenizing = "", ""  # how its tokenizer calls a text, and the wish for special tokens
    wanted = ""  # what its engine gives, for a sentence

    def __init__(self, server: Server, model: str) -> None:
        self.server, self.model = server, model
        self._exchanged, self._seconds = 0, 0.0

    def lists(self, vocab: int, wanted: int) -> int:
        """How many log-probabilities the server gives after a prefix, up to `wanted`, by the shape
        of its answers. Raises `ServerError`, and `PairError` if they have another form."""
        rows = self._read(
            self.server.ask(self.path, self._question([[0], [0, 0]], wanted)), 2, vocab
        )
        found = int(torch.isfinite(rows).sum(-1).min())
        return vocab if found >= vocab else min(wanted, found)

    def rows(self, prefixes: Sequence[Sequence[int]], listed: int, vocab: int) -> Tensor:
        """The log-probabilities of the `listed` likeliest next tokens after each prefix, at
        temperature 1: fp32 [n, vocab], -inf where the server lists none. Raises `ServerError`."""
        return self._read(self._posted(self._question(prefixes, listed)), len(prefixes), vocab)

    def told(self) -> dict[str, Any]:
        """What `rows` and `draws` have cost since the last call, as fields of a `Round`."""
        found = {"exchanged": self._exchanged or None, "server_seconds": self._seconds or None}
        self._exchanged, self._seconds = 0, 0.0
        return found

    def draws(self, prefixes: Sequence[Sequence[int]], wanted: Wanted) -> list[list[Drawn]]:
        """What is wanted. Tokens after one prefix are independent; those after different ones need
        not be. Raises `ServerError`, and `PairError` if the server cannot draw."""
        raise PairError("this server does not tell the probabilities of chosen tokens.")

    def can_draw(self, vocab: int) -> bool:
        """Whether it does. A server that speculates must not be asked: vLLM 0.32.0 has ended over
        the question. Raises `ServerError`."""
        return False

    def streaming_rate(self, prompt: Sequence[int], count: int) -> float:
        """Tokens per second of the server's own greedy stream after a prompt, as this machine sees
        it. Raises `ServerError` and `PairError`.

        The time to the first token is in it: on a busy machine chunks may wait and arrive together,
        so that the time between the first and the last of them says nothing.
        """
        body = self._body(prompt, count) | {"ignore_eos": True, "stream": True}
        chunks = self.server.stream(self.path, body)
        times = [at for at, chunk in chunks if chunk.get("choices") or chunk.get("content")]
        if not times:
            raise PairError(f"{self.server.shown} streams nothing: its own speed is unknown.")
        return count / times[-1]

    def tokenize(self, text: str) -> list[int]:
        """The ids of a text without special tokens. Raises `ServerError`."""
        body = dict(zip(self.tokenizing, (text, False), strict=True))
        found = self._told("/tokenize", body, "tokens")
        if not isinstance(found, list) or not all(type(one) is int for one in found):
            raise PairError(self.server.rubbish())
        return found

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of ids. Raises `ServerError`."""
        return str(self._told("/detokenize", {"tokens": list(ids)}, self.tokenizing[0]))

    def _body(self, prompt: Sequence[Any], count: int) -> dict[str, Any]:
        """What asks for `count` greedy tokens after a prompt, or after each of several."""
        raise NotImplementedError

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        """The same of one token, with the log-probabilities of the likeliest."""
        raise NotImplementedError

    def _tops(self, answer: Any, count: int) -> Iterator[tuple[list[int], list[float]]]:
        """The listed ids and log-probabilities of each place. Raises `ANOTHER_FORM`."""
        raise NotImplementedError

    def _worked(self, answer: Any) -> float | None:
        """Seconds that the server says it worked on an answer."""
        return None

    def _posted(self, body: dict[str, Any]) -> Any:
        answer = self.server.post(self.path, body)
        self._exchanged += answer.sent + answer.received
        self._seconds += self._worked(answer.value) or 0.0
        return answer.value

    def _read(self, answer: Any, count: int, vocab: int) -> Tensor:
        try:
            rows = [_row(ids, values, vocab) for ids, values in self._tops(answer, count)]
            return torch.from_numpy(np.stack(rows))
        except ANOTHER_FORM as error:
            raise self._no_rows() from error

    def _no_rows(self) -> PairError:
        return PairError(
            f"{self.server.shown} gives no log-probabilities by token id after several prefixes: "
            f"a target needs them, as {self.wanted}."
        )

    def _told(self, path: str, body: dict[str, Any], name: str) -> Any:
        try:
            return self.server.ask(path, {"model": self.model, **body})[name]
        except ANOTHER_FORM as error:
            raise PairError(self.server.rubbish()) from error


def _row(ids: Sequence[int], values: Sequence[float], vocab: int) -> NDArray[np.float32]:
    """fp32 [vocab] with `values` at `ids` and -inf elsewhere. Raises `ValueError` if nothing is
    known or a value is NaN."""
    row = np.full(vocab, -np.inf, np.float32)
    places, known = np.asarray(ids, np.int64), np.asarray(values, np.float32)
    inside = (places >= 0) & (places < vocab)  # rows of padding are never drawn
    row[places[inside]] = known[inside]
    if not np.isfinite(row).any() or np.isnan(known).any():
        raise ValueError
    return row
