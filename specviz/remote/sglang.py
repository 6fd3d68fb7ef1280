"""SGLang as a target: its own `/generate`, which verifies in one pass.

One request carries the whole text and asks for one token, with the log-probabilities of the
likeliest tokens at its last places (`logprob_start_len`, `top_logprobs_num`): SGLang's radix cache
serves what stands before them. Written from its documentation and sources, not run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import PairError
from ..settings import Settings
from .interface import LISTS, Abilities, Drawn, Spent, UnsuitedError
from .reading import listed_count, positive, rate_of, row_of, served_models, texts_or_ids
from .wire import RefusedError, Server

# What a server would take from the model's own generation_config.json is said here. At
# temperature 0 SGLang's log-probabilities are those of the logits as they are.
GREEDY = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": True,
}


class Sglang:
    """The model of one name on a server of SGLang: a `TargetServer` that does not draw.

    Its draws come with probabilities before top-k and top-p, under which it does not tell them.
    """

    def __init__(self, server: Server, model: str) -> None:
        self.server, self.model = server, model
        self.spent = Spent()

    def rows(self, prefixes: Sequence[Sequence[int]], listed: int, vocab: int) -> Tensor:
        answer = self.server.post("/generate", self._question(prefixes, listed))
        told = answer.value.get("meta_info") if isinstance(answer.value, dict) else None
        latency = told.get("e2e_latency") if isinstance(told, dict) else None
        known = float(latency) if isinstance(latency, (int, float)) else None
        self.spent = Spent(answer.sent + answer.received, known)
        return self._read(answer.value, len(prefixes), vocab)

    def draws(
        self,
        prefixes: Sequence[Sequence[int]],
        asked: Sequence[int],
        settings: Settings,
        seed: int,
        count: int = 1,
    ) -> list[list[Drawn]]:
        raise PairError("SGLang does not tell the probabilities that it draws with: set top_k.")

    def abilities(self, vocab: int) -> Abilities:
        served = served_models(self.server).get(self.model, {})
        for listed in (vocab, *LISTS):
            try:
                answer = self.server.ask("/generate", self._question([[0], [0, 0]], listed))
            except RefusedError as refused:
                if listed > 1:
                    continue
                raise UnsuitedError(str(refused)) from refused
            found = listed_count(self._read(answer, 2, vocab).numpy(), listed, vocab)
            return Abilities(self._software(), positive(served.get("max_model_len")), found)
        raise AssertionError("the last attempt returns or raises")

    def streaming_rate(self, prompt: Sequence[int], count: int) -> float:
        asked = {**GREEDY, "max_new_tokens": count}
        body = {"input_ids": list(prompt), "sampling_params": asked, "stream": True}
        began = time.perf_counter()
        with self.server.stream("/generate", body) as chunks:
            return rate_of(self.server, began, (chunk.get("meta_info") for chunk in chunks), count)

    def tokenize(self, text: str) -> list[int]:
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        answer = self.server.ask("/tokenize", body)
        ids: list[int] = texts_or_ids(self.server, answer, "tokens", list)
        return ids

    def detokenize(self, ids: Sequence[int]) -> str:
        body = {"model": self.model, "tokens": list(ids), "skip_special_tokens": False}
        return str(texts_or_ids(self.server, self.server.ask("/detokenize", body), "text", str))

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        longest = list(prefixes[-1])
        return {
            "input_ids": longest,
            "sampling_params": {**GREEDY, "max_new_tokens": 1},
            "return_logprob": True,
            # The first place that is listed has no distribution: nothing stands before it there.
            "logprob_start_len": len(longest) - len(prefixes),
            "top_logprobs_num": listed,
            "return_text_in_logprobs": False,
        }

    def _read(self, answer: Any, count: int, vocab: int) -> Tensor:
        """The lists before the last `count` - 1 tokens of the prompt, and the one behind it."""
        try:
            told = answer["meta_info"]
            given, after = told["input_top_logprobs"] or [], told["output_top_logprobs"]
            if len(given) != count:
                raise ValueError
            lists = [*given[1:], after[0]]
            rows = [
                row_of([int(one[1]) for one in some], [float(one[0]) for one in some], vocab)
                for some in lists
            ]
            return torch.from_numpy(np.stack(rows))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise UnsuitedError(
                f"{self.server.shown} gives no log-probabilities of the last places of a prompt, "
                "as SGLang gives them (logprob_start_len, top_logprobs_num)."
            ) from error

    def _software(self) -> str:
        try:
            version = self.server.get("/get_server_info")["version"]
        except (PairError, RuntimeError, KeyError, TypeError):
            return "SGLang"
        return f"SGLang {str(version)[:40]}"
