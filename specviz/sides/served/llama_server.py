"""llama.cpp's server as a target: its own `/completion`, one prefix after another.

It ignores `echo` and `prompt_logprobs`. One request carries a prompt per wanted place; the server
works on them one after another in a slot, and its prompt cache (`cache_prompt`) leaves one new
token for each. So a round of gamma drafts costs gamma + 1 small passes of the target: the text is
exact, and nothing is gained in speed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import PairError
from ...remote.wire import Server
from ...settings import Settings
from .interface import Drawn, Spent, UnsuitedError, listed_count, rate_of, row_of, texts_or_ids

FIELDS = ["index", "completion_probabilities", "timings"]  # of an answer, which else repeats much


class LlamaServer:
    """The model on a server of llama.cpp: a `TargetServer` that does not draw."""

    def __init__(self, server: Server, model: str) -> None:
        self.server, self.model = server, model
        self.spent = Spent()

    def rows(self, prefixes: Sequence[Sequence[int]], listed: int, vocab: int) -> Tensor:
        answer = self.server.post("/completion", self._question(prefixes, listed))
        self.spent = Spent(answer.sent + answer.received, _worked(answer.value))
        return self._read(answer.value, len(prefixes), vocab)

    def draws(
        self,
        prefixes: Sequence[Sequence[int]],
        asked: Sequence[int],
        settings: Settings,
        seed: int,
        count: int = 1,
    ) -> list[list[Drawn]]:
        raise PairError("llama.cpp's server does not tell the probabilities of chosen tokens.")

    def lists(self, vocab: int, wanted: int) -> int:
        answer = self.server.ask("/completion", self._question([[0], [0, 0]], wanted))
        return listed_count(self._read(answer, 2, vocab).numpy(), wanted, vocab)

    def can_draw(self, vocab: int) -> bool:
        return False

    def streaming_rate(self, prompt: Sequence[int], count: int) -> float:
        body = {**self._body([list(prompt)], count), "prompt": list(prompt), "stream": True}
        began = time.perf_counter()
        with self.server.stream("/completion", body | {"ignore_eos": True}) as chunks:
            return rate_of(self.server, began, (not chunk.get("stop") for chunk in chunks), count)

    def tokenize(self, text: str) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": True}
        answer = self.server.ask("/tokenize", body)
        ids: list[int] = texts_or_ids(self.server, answer, "tokens", list)
        return ids

    def detokenize(self, ids: Sequence[int]) -> str:
        answer = self.server.ask("/detokenize", {"tokens": list(ids)})
        return str(texts_or_ids(self.server, answer, "content", str))

    def _body(self, prompts: list[list[int]], count: int) -> dict[str, Any]:
        return {"prompt": prompts, "n_predict": count, "temperature": 0.0, "cache_prompt": True}

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        prompts = [list(ids) for ids in prefixes]
        return {**self._body(prompts, 1), "n_probs": listed, "response_fields": FIELDS}

    def _read(self, answer: Any, count: int, vocab: int) -> Tensor:
        try:
            places = sorted(_listed(answer), key=lambda one: int(one["index"]))
            if len(places) != count:
                raise ValueError
            tops = [one["completion_probabilities"][0]["top_logprobs"] for one in places]
            rows = [
                row_of([int(t["id"]) for t in top], [float(t["logprob"]) for t in top], vocab)
                for top in tops
            ]
            return torch.from_numpy(np.stack(rows))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise UnsuitedError(
                f"{self.server.shown} gives no log-probabilities by token id after several "
                "prefixes, as llama.cpp's server gives them (n_probs)."
            ) from error


def _listed(answer: Any) -> list[dict[str, Any]]:
    """The answers to several prompts; the answer to a single one comes by itself."""
    return answer if isinstance(answer, list) else [answer]


def _worked(answer: Any) -> float | None:
    """Seconds that the server says it worked on its answers."""
    try:
        told = [one["timings"] for one in _listed(answer)]
        return sum(float(one["prompt_ms"]) + float(one["predicted_ms"]) for one in told) / 1000
    except (KeyError, TypeError, ValueError):
        return None
