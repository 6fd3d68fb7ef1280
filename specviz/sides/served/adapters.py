"""Engines that can hold a target, and their requests for log-probabilities after prefixes.

vLLM: one request to `/completions` carries a prefix per wanted position, each a token longer than
the one before, and asks for one token and its log-probabilities after each. The server's prefix
cache then computes little more than the new tokens.

llama.cpp's server: a request to its `/completion` carries a prompt per wanted position. It
processes them one after another in a slot, and its prompt cache leaves one new token for each. So
a round of gamma drafts costs gamma + 1 small passes: the text is exact, and nothing is gained in
speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from ...base.errors import PairError
from ...core.settings import Settings
from ...remote.wire import ANOTHER_FORM, RefusedError
from .interface import Drawn, TargetServer, Wanted

ID_MARK = "token_id:"  # nosec B105
NEVER = -9999.0  # vLLM's value for the logarithm of 0
LISTS = (20, 5, 1)  # list lengths to try if the whole vocabulary is refused; 20 is the usual limit

# Set explicitly, because a server would take defaults from the model's generation_config.json.
PLAIN = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
MIN_TEMPERATURE = 0.01  # vLLM raises lower temperatures to it


class Completions(TargetServer):
    """A model on a server with vLLM's form of completions."""

    path = "completions"
    text_field = "prompt"
    special_tokens_field = "add_special_tokens"
    gives_logprobs = "vLLM (logprobs, return_tokens_as_token_ids)"

    def lists(self, vocab: int, wanted: int) -> int:
        shorter = [length for length in LISTS if length < wanted]
        for length in (wanted, *shorter):
            try:
                return super().lists(vocab, length)
            except RefusedError as error:
                refused = error
        raise PairError(str(refused))

    def draws(self, prefixes: Sequence[Sequence[int]], wanted: Wanted) -> list[list[Drawn]]:
        if wanted.settings.temperature < MIN_TEMPERATURE:
            raise PairError(
                f"this server samples at temperatures of {MIN_TEMPERATURE:g} or more: raise the "
                "temperature, or set it to 0 for a greedy run."
            )
        answer = self._posted(self._draw_question(prefixes, wanted))
        return self._drawn_tokens(answer, len(prefixes), wanted.tokens)

    def can_draw(self, vocab: int) -> bool:
        """Whether `draws` works. Under a top-k of 1 at least one of two tokens has no probability,
        which the softmax of a whole vocabulary never gives. A repeated seed must draw the same
        token again."""
        prefixes = [[0], [0, 0]]
        settings = Settings(temperature=1.0, top_k=1)
        wanted = Wanted((0, 1), settings, seed=1, tokens=2)
        question = self._draw_question(prefixes, wanted)
        try:
            answer = self.server.ask(self.path, question)
            by_prefix = self._drawn_tokens(answer, len(prefixes), wanted.tokens)
        except PairError:
            return False
        return all(map(_is_under_top_1, chain.from_iterable(by_prefix)))

    def _body(self, prompt: Sequence[Any], count: int) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": count,
            "temperature": 0.0,
            **PLAIN,
        }

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        return {
            **self._body([list(ids) for ids in prefixes], 1),
            "logprobs": listed,
            "return_tokens_as_token_ids": True,  # nosec B105
        }

    def _draw_question(self, prefixes: Sequence[Sequence[int]], wanted: Wanted) -> dict[str, Any]:
        ids = sorted(set(wanted.asked)) or [0]  # an empty list is not a valid request
        settings = wanted.settings
        return {
            **self._question(prefixes, len(ids)),
            "logprob_token_ids": ids,
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "seed": wanted.seed,
            "n": wanted.tokens,
        }

    def _logprobs_of(self, answer: Any, count: int) -> list[dict[str, Any]]:
        """The log-probabilities of the `count` texts in an answer, in order."""
        choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
        if len(choices) != count:
            raise ValueError
        return [choice["logprobs"] for choice in choices]

    def _top_logprobs(self, answer: Any, count: int) -> Iterator[tuple[list[int], list[float]]]:
        for logprobs in self._logprobs_of(answer, count):
            top = logprobs["top_logprobs"][0]
            ids = [_id(name) for name in top]
            yield ids, list(top.values())

    def _drawn_tokens(self, answer: Any, prefixes: int, count: int) -> list[list[Drawn]]:
        """The tokens in an answer, `count` of them for each prefix."""
        total = prefixes * count
        try:
            tokens = [_drawn(logprobs) for logprobs in self._logprobs_of(answer, total)]
        except ANOTHER_FORM as error:
            raise self._no_logprobs() from error
        return [tokens[begin : begin + count] for begin in range(0, total, count)]


def _is_under_top_1(drawn: Drawn) -> bool:
    """Whether a token and the probabilities of the tokens 0 and 1 are those under a top-k of 1."""
    is_certain = drawn.p > 0.99
    has_both = drawn.asked.keys() >= {0, 1}
    return is_certain and has_both and min(drawn.asked.values()) == 0.0


def _id(name: str) -> int:
    """The id in the name of a token, such as "token_id:5"."""
    if not name.startswith(ID_MARK):
        raise ValueError
    return int(name[len(ID_MARK) :])


def _drawn(logprobs: dict[str, Any]) -> Drawn:
    token_id = _id(logprobs["tokens"][0])
    p = _probability(logprobs["token_logprobs"][0])
    asked = {}
    for name, logprob in logprobs["top_logprobs"][0].items():
        asked[_id(name)] = _probability(logprob)
    if not p > 0.0:
        raise ValueError
    return Drawn(token_id, p, asked)


def _probability(logprob: float) -> float:
    if not logprob <= 1e-4:  # NaN, or not the logarithm of a probability
        raise ValueError
    if logprob <= NEVER:
        return 0.0
    return math.exp(logprob)


FIELDS = ["index", "completion_probabilities", "timings"]
"""The fields of an answer that are read; the others repeat the question."""


class LlamaTarget(TargetServer):
    """A model on llama.cpp's server, which cannot draw."""

    path = "/completion"
    text_field = "content"
    special_tokens_field = "add_special"
    gives_logprobs = "llama.cpp's (n_probs)"

    def _body(self, prompt: Sequence[Any], count: int) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": list(prompt),
            "n_predict": count,
            "temperature": 0.0,
            "cache_prompt": True,
        }

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        return {
            **self._body([list(ids) for ids in prefixes], 1),
            "n_probs": listed,
            "response_fields": FIELDS,
        }

    def _top_logprobs(self, answer: Any, count: int) -> Iterator[tuple[list[int], list[float]]]:
        completions = _completions(answer)
        if len(completions) != count:
            raise ValueError
        for completion in sorted(completions, key=lambda completion: int(completion["index"])):
            first_token = completion["completion_probabilities"][0]
            top = first_token["top_logprobs"]
            ids = [int(token["id"]) for token in top]
            logprobs = [float(token["logprob"]) for token in top]
            yield ids, logprobs

    def _worked_seconds(self, answer: Any) -> float | None:
        milliseconds = []
        try:
            for completion in _completions(answer):
                timings = completion["timings"]
                prompt_time = float(timings["prompt_ms"])
                generation_time = float(timings["predicted_ms"])
                milliseconds.append(prompt_time + generation_time)
        except (KeyError, TypeError, ValueError):
            return None
        return sum(milliseconds) / 1000


def _completions(answer: Any) -> list[dict[str, Any]]:
    """The answers to several prompts; a single answer comes without a list."""
    if not isinstance(answer, list):
        return [answer]
    return answer
