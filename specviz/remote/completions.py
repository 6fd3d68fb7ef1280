"""What a target's server is asked: the distributions that follow several prefixes, in one request.

One request to `/completions` carries a prefix per wanted place, each a token longer than the one
before, and asks for one token and its log-probabilities after each. The server's prefix cache then
computes little more than the new tokens. `prompt_logprobs` would be the shorter question, but vLLM
does not read its prefix cache for it and answers with every row of the prompt.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import PairError
from .wire import Answer, RefusedError, Server

USUAL_LIST = 20
"""The most log-probabilities that servers list by default."""

ID_MARK = "token_id:"  # nosec B105


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server has shown that it can do.

    software: its name and version, if it tells them. context: the most tokens it can see, if it
    tells. listed: the most log-probabilities that it gives after a prefix.
    """

    software: str
    context: int | None
    listed: int


class Completions:
    """The model of one name on a server that speaks OpenAI's completions.

    sent, received, seconds: of the last request for rows.
    """

    def __init__(self, server: Server, model: str) -> None:
        self.server, self.model = server, model
        self.last = Answer(None, 0.0, 0, 0)

    def rows(self, prefixes: Sequence[Sequence[int]], listed: int, vocab: int) -> Tensor:
        """The log-probabilities of the `listed` likeliest next tokens after each prefix: fp32
        [n, vocab], -inf where the server lists none. Raises `ServerError`."""
        self.last = self.server.post("completions", self._question(prefixes, listed))
        return self._read(self.last.value, len(prefixes), vocab)

    def abilities(self, vocab: int) -> Abilities:
        """What the server can do for a vocabulary of `vocab` tokens, by the shape of its answers.

        Raises `ServerError`, and `PairError` if it cannot serve as a target.
        """
        context = self._context()
        for listed in (vocab, USUAL_LIST, 5, 1):
            try:
                answer = self.server.ask("completions", self._question([[0], [0, 0]], listed))
            except RefusedError as refused:
                most = _named_limit(refused.said)
                if listed > 1 and (most is None or most < listed):
                    continue
                raise
            rows = self._read(answer, 2, vocab)
            found = int(torch.isfinite(rows).sum(-1).min())
            return Abilities(self._software(), context, vocab if found >= vocab else listed)
        raise AssertionError("the last attempt returns or raises")

    def streaming_rate(self, prompt: Sequence[int], count: int) -> float:
        """Tokens per second of the server's own greedy stream after a prompt, without the first
        token, as this machine sees it. Raises `ServerError`."""
        body = self._body([list(prompt)]) | {"max_tokens": count, "ignore_eos": True}
        times: list[float] = []
        with self.server.stream("completions", body | {"stream": True}) as chunks:
            for chunk in chunks:
                if chunk.get("choices"):
                    times.append(time.perf_counter())
        if len(times) < 2:
            raise PairError(f"{self.server.shown} streams nothing: its own speed is unknown.")
        return (count - 1) / (times[-1] - times[0])

    def tokenize(self, text: str) -> list[int]:
        """The ids of a text without special tokens. Raises `ServerError`."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        answer = self.server.ask("/tokenize", body)
        found = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(found, list) or not all(type(one) is int for one in found):
            raise PairError(self.server.rubbish())
        return found

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of ids. Raises `ServerError`."""
        answer = self.server.ask("/detokenize", {"model": self.model, "tokens": list(ids)})
        found = answer.get("prompt") if isinstance(answer, dict) else None
        if not isinstance(found, str):
            raise PairError(self.server.rubbish())
        return found

    def _body(self, prefixes: list[list[int]]) -> dict[str, Any]:
        return {"model": self.model, "prompt": prefixes, "temperature": 0.0}

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        return {
            **self._body([list(ids) for ids in prefixes]),
            "max_tokens": 1,
            "logprobs": listed,
            "return_tokens_as_token_ids": True,  # nosec B105
        }

    def _read(self, answer: Any, count: int, vocab: int) -> Tensor:
        try:
            choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
            lists = [choice["logprobs"]["top_logprobs"][0] for choice in choices]
            if len(lists) != count:
                raise ValueError
            return torch.from_numpy(np.stack([_row(listed, vocab) for listed in lists]))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise PairError(self._no_rows(answer)) from error

    def _no_rows(self, answer: Any) -> str:
        if not isinstance(answer, dict) or "choices" not in answer:
            return self.server.rubbish()
        return (
            f"{self.server.shown} gives no log-probabilities by token id after several prefixes: "
            "a target needs them, as vLLM gives them (logprobs, return_tokens_as_token_ids)."
        )

    def _context(self) -> int | None:
        listing = self.server.get("models")
        try:
            models = {entry["id"]: entry for entry in listing["data"]}
        except (KeyError, TypeError) as error:
            raise PairError(self.server.rubbish()) from error
        if self.model not in models:
            raise PairError(
                f"{self.server.shown} has no model {self.model!r}: name one of those that it has, "
                f"{', '.join(sorted(map(str, models))[:5]) or 'none'}."
            )
        limit = models[self.model].get("max_model_len")
        return limit if type(limit) is int and limit > 0 else None

    def _software(self) -> str:
        # vLLM tells its version there; others have no such address.
        try:
            version = self.server.get("/version")["version"]
        except (PairError, RuntimeError, KeyError, TypeError):
            return "a server of OpenAI's protocol"
        return f"vLLM {str(version)[:40]}"


def _row(listed: dict[str, float], vocab: int) -> Any:
    row = np.full(vocab, -np.inf, np.float32)
    ids = np.fromiter((int(name[len(ID_MARK) :]) for name in listed), np.int64, len(listed))
    values = np.fromiter(listed.values(), np.float32, len(listed))
    known = (ids >= 0) & (ids < vocab)  # rows of padding are never drawn
    row[ids[known]] = values[known]
    if not np.isfinite(row).any() or np.isnan(values).any():
        raise ValueError
    return row


def _named_limit(said: str) -> int | None:
    """The limit that a refusal names, such as "greater than max allowed: 20"."""
    numbers = re.findall(r"max[^.]*?(\d+)", said)
    return int(numbers[-1]) if numbers else None
