"""The engines that can hold a target, and how each is asked for log-probabilities after prefixes.

vLLM: one request to `/completions` carries a prefix per wanted place, each a token longer than the
one before, and asks for one token and its log-probabilities after each. The server's prefix cache
then computes little more than the new tokens.

llama.cpp's server: a request to its `/completion` carries a prompt per wanted place; it works on
them one after another in a slot, and its prompt cache leaves one new token for each. So a round of
gamma drafts costs gamma + 1 small passes: the text is exact, and nothing is gained in speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import PairError
from ...remote.wire import ANOTHER_FORM, RefusedError
from ...settings import Settings
from .interface import Drawn, TargetServer, Wanted

ID_MARK = "token_id:"  # nosec B105
NEVER = -9999.0  # what vLLM writes for the logarithm of 0
LISTS = (20, 5, 1)  # lengths to try where not a whole vocabulary is listed; 20 is the usual limit

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


class Completions(TargetServer):
    """The model of one name on a server that speaks vLLM's completions."""

    path, tokenizing = "completions", ("prompt", "add_special_tokens")
    wanted = "vLLM gives them (logprobs, return_tokens_as_token_ids)"

    def lists(self, vocab: int, wanted: int) -> int:
        for listed in (wanted, *(shorter for shorter in LISTS if shorter < wanted)):
            try:
                return super().lists(vocab, listed)
            except RefusedError as error:
                refused = error
        raise PairError(str(refused))

    def draws(self, prefixes: Sequence[Sequence[int]], wanted: Wanted) -> list[list[Drawn]]:
        if wanted.settings.temperature < LEAST_TEMPERATURE:
            raise PairError(
                f"this server draws at a temperature of {LEAST_TEMPERATURE:g} or more: set "
                "temperature to 0 for a greedy run."
            )
        answer = self._posted(self._draw_question(prefixes, wanted))
        return self._drawn(answer, len(prefixes), wanted.tokens)

    def can_draw(self, vocab: int) -> bool:
        """Under a top-k of 1 at least one of two tokens has no probability, which no softmax of a
        whole vocabulary ever says. A repeated seed must draw the same token again."""
        wanted = Wanted((0, 1), Settings(temperature=1.0, top_k=1), seed=1, tokens=2)
        question = self._draw_question([[0], [0, 0]], wanted)
        try:
            found = self._drawn(self.server.ask(self.path, question), 2, 2)
        except PairError:
            return False
        return all(
            drawn.p > 0.99 and drawn.asked.keys() >= {0, 1} and min(drawn.asked.values()) == 0.0
            for after in found
            for drawn in after
        )

    def _body(self, prompt: Sequence[Any], count: int) -> dict[str, Any]:
        greedy = {"max_tokens": count, "temperature": 0.0, **PLAIN}
        return {"model": self.model, "prompt": list(prompt), **greedy}

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        names = {"logprobs": listed, "return_tokens_as_token_ids": True}  # nosec B105
        return self._body([list(ids) for ids in prefixes], 1) | names

    def _draw_question(self, prefixes: Sequence[Sequence[int]], wanted: Wanted) -> dict[str, Any]:
        ids = sorted(set(wanted.asked)) or [0]  # an empty list would be no question at all
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

    def _choices(self, answer: Any, count: int) -> list[dict[str, Any]]:
        choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
        if len(choices) != count:
            raise ValueError
        return [choice["logprobs"] for choice in choices]

    def _tops(self, answer: Any, count: int) -> Iterator[tuple[list[int], list[float]]]:
        for said in self._choices(answer, count):
            top = said["top_logprobs"][0]
            yield [_id(name) for name in top], list(top.values())

    def _drawn(self, answer: Any, prefixes: int, count: int) -> list[list[Drawn]]:
        try:
            found = [_one_drawn(said) for said in self._choices(answer, prefixes * count)]
        except ANOTHER_FORM as error:
            raise self._no_rows() from error
        return [found[place * count : (place + 1) * count] for place in range(prefixes)]


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


FIELDS = ["index", "completion_probabilities", "timings"]  # of an answer, which else repeats much


class LlamaTarget(TargetServer):
    """The model on a server of llama.cpp, which does not draw."""

    path, tokenizing = "/completion", ("content", "add_special")
    wanted = "llama.cpp's server gives them (n_probs)"

    def _body(self, prompt: Sequence[Any], count: int) -> dict[str, Any]:
        greedy = {"temperature": 0.0, "cache_prompt": True}
        return {"prompt": list(prompt), "n_predict": count, **greedy}

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        prompts = [list(ids) for ids in prefixes]
        return {**self._body(prompts, 1), "n_probs": listed, "response_fields": FIELDS}

    def _tops(self, answer: Any, count: int) -> Iterator[tuple[list[int], list[float]]]:
        places = sorted(_listed(answer), key=lambda one: int(one["index"]))
        if len(places) != count:
            raise ValueError
        for one in places:
            top = one["completion_probabilities"][0]["top_logprobs"]
            yield [int(t["id"]) for t in top], [float(t["logprob"]) for t in top]

    def _worked(self, answer: Any) -> float | None:
        try:
            told = [one["timings"] for one in _listed(answer)]
            return sum(float(one["prompt_ms"]) + float(one["predicted_ms"]) for one in told) / 1000
        except (KeyError, TypeError, ValueError):
            return None


def _listed(answer: Any) -> list[dict[str, Any]]:
    """The answers to several prompts; the answer to a single one comes by itself."""
    return answer if isinstance(answer, list) else [answer]
