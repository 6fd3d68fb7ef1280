"""vLLM as a target: its part of OpenAI's completions.

One request to `/completions` carries a prefix per wanted place, each a token longer than the one
before, and asks for one token and its log-probabilities after each. The server's prefix cache then
computes little more than the new tokens. `prompt_logprobs` would be the shorter question, but vLLM
does not read its prefix cache for it and answers with every row of the prompt.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import PairError
from ...remote.wire import RefusedError, Server
from ...settings import Settings
from .interface import (
    LISTS,
    Drawn,
    Spent,
    UnsuitedError,
    listed_count,
    rate_of,
    row_of,
    texts_or_ids,
)

ID_MARK = "token_id:"  # nosec B105
NEVER = -9999.0  # what vLLM writes for the logarithm of 0

# What a server would take from the model's own generation_config.json is said here.
PLAIN = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
LEAST_TEMPERATURE = 0.01  # vLLM raises lower ones to it


class Completions:
    """The model of one name on a server that speaks vLLM's completions: a `TargetServer`."""

    def __init__(self, server: Server, model: str) -> None:
        self.server, self.model = server, model
        self.spent = Spent()

    def rows(self, prefixes: Sequence[Sequence[int]], listed: int, vocab: int) -> Tensor:
        answer = self.server.post("completions", self._question(prefixes, listed))
        self.spent = Spent(answer.sent + answer.received)
        return self._read(answer.value, len(prefixes), vocab)

    def draws(
        self,
        prefixes: Sequence[Sequence[int]],
        asked: Sequence[int],
        settings: Settings,
        seed: int,
        count: int = 1,
    ) -> list[list[Drawn]]:
        if settings.temperature < LEAST_TEMPERATURE:
            raise PairError(
                f"this server draws at a temperature of {LEAST_TEMPERATURE:g} or more: set "
                "temperature to 0 for a greedy run."
            )
        answer = self.server.post(
            "completions", self._draw_question(prefixes, asked, settings, seed, count)
        )
        self.spent = Spent(answer.sent + answer.received)
        return self._drawn(answer.value, len(prefixes), count)

    def lists(self, vocab: int, wanted: int) -> int:
        for listed in (wanted, *(shorter for shorter in LISTS if shorter < wanted)):
            try:
                answer = self.server.ask("completions", self._question([[0], [0, 0]], listed))
            except RefusedError as refused:
                most = _named_limit(refused.said)
                if listed > 1 and (most is None or most < listed):
                    continue
                raise UnsuitedError(str(refused)) from refused
            return listed_count(self._read(answer, 2, vocab).numpy(), listed, vocab)
        raise AssertionError("the last attempt returns or raises")

    def can_draw(self, vocab: int) -> bool:
        """Whether the server gives the probabilities of chosen tokens under top-k.

        Under a top-k of 1 at least one of two tokens has none, which no softmax of a whole
        vocabulary ever says. A repeated seed must draw the same token again.
        """
        settings = Settings(temperature=1.0, top_k=1)
        if vocab < 2:
            return False
        question = self._draw_question([[0], [0, 0]], (0, 1), settings, seed=1, count=2)
        try:
            found = self._drawn(self.server.ask("completions", question), 2, 2)
        except PairError:
            return False
        return all(
            drawn.p > 0.99 and drawn.asked.keys() >= {0, 1} and min(drawn.asked.values()) == 0.0
            for after in found
            for drawn in after
        )

    def streaming_rate(self, prompt: Sequence[int], count: int) -> float:
        body = self._body([list(prompt)]) | {"max_tokens": count, "ignore_eos": True}
        began = time.perf_counter()
        with self.server.stream("completions", body | {"stream": True}) as chunks:
            return rate_of(self.server, began, (chunk.get("choices") for chunk in chunks), count)

    def tokenize(self, text: str) -> list[int]:
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        ids: list[int] = texts_or_ids(
            self.server, self.server.ask("/tokenize", body), "tokens", list
        )
        return ids

    def detokenize(self, ids: Sequence[int]) -> str:
        answer = self.server.ask("/detokenize", {"model": self.model, "tokens": list(ids)})
        return str(texts_or_ids(self.server, answer, "prompt", str))

    def _body(self, prefixes: Sequence[Sequence[int]]) -> dict[str, Any]:
        prompts = [list(ids) for ids in prefixes]
        return {"model": self.model, "prompt": prompts, "temperature": 0.0, **PLAIN}

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        return {
            **self._body(prefixes),
            "max_tokens": 1,
            "logprobs": listed,
            "return_tokens_as_token_ids": True,  # nosec B105
        }

    def _draw_question(
        self,
        prefixes: Sequence[Sequence[int]],
        asked: Sequence[int],
        settings: Settings,
        seed: int,
        count: int,
    ) -> dict[str, Any]:
        ids = sorted(set(asked)) or [0]  # an empty list would be no question at all
        return {
            **self._question(prefixes, len(ids)),
            "logprob_token_ids": ids,
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "seed": seed,
            "n": count,
        }

    def _choices(self, answer: Any, count: int) -> Iterator[dict[str, Any]]:
        choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
        if len(choices) != count:
            raise ValueError
        return (choice["logprobs"] for choice in choices)

    def _read(self, answer: Any, count: int, vocab: int) -> Tensor:
        try:
            rows = [
                row_of([_id(name) for name in top], list(top.values()), vocab)
                for said in self._choices(answer, count)
                for top in said["top_logprobs"][:1]
            ]
            return torch.from_numpy(np.stack(rows))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise UnsuitedError(self._no_rows(answer)) from error

    def _drawn(self, answer: Any, prefixes: int, count: int) -> list[list[Drawn]]:
        try:
            found = [_one_drawn(said) for said in self._choices(answer, prefixes * count)]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise UnsuitedError(self._no_rows(answer)) from error
        return [found[place * count : (place + 1) * count] for place in range(prefixes)]

    def _no_rows(self, answer: Any) -> str:
        if not isinstance(answer, dict) or "choices" not in answer:
            return self.server.rubbish()
        return (
            f"{self.server.shown} gives no log-probabilities by token id after several prefixes: "
            "a target needs them, as vLLM gives them (logprobs, return_tokens_as_token_ids)."
        )


def _id(name: str) -> int:
    if not name.startswith(ID_MARK):
        raise ValueError
    return int(name[len(ID_MARK) :])


def _one_drawn(said: dict[str, Any]) -> Drawn:
    asked = {_id(name): _chance(value) for name, value in said["top_logprobs"][0].items()}
    drawn = Drawn(_id(said["tokens"][0]), _chance(said["token_logprobs"][0]), asked)
    if not drawn.p > 0.0:
        raise ValueError
    return drawn


def _chance(value: float) -> float:
    if not value <= 1e-4:  # NaN, or no logarithm of a probability
        raise ValueError
    return math.exp(value) if value > NEVER else 0.0


def _named_limit(said: str) -> int | None:
    """The limit that a refusal names, such as "greater than max allowed: 20"."""
    numbers = re.findall(r"max[^.]*?(\d+)", said)
    return int(numbers[-1]) if numbers else None
