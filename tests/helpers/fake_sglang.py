"""A server that answers as SGLang's `/generate` is documented to, over a law of a few tokens: the
next token depends on the last one alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from local_server import QuietHandler, serving

LAW = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
"""The probability of each next token (columns) after the last one (rows)."""
DRAFTS = 3  # of a step


@dataclass
class FakeSglang:
    """A running server. sharpness: the power that its sampler raises probabilities to beside what
    the temperature asks for; 1 is right. whole: whether chunks repeat the text so far."""

    sharpness: float = 1.0
    whole: bool = True
    url: str = ""

    def ids(self, body: dict[str, Any]) -> list[int]:
        wanted = body["sampling_params"]
        generator = np.random.default_rng(wanted.get("sampling_seed", 0))
        last = body.get("input_ids", [0])[-1]
        ids: list[int] = []
        for _ in range(wanted["max_new_tokens"]):
            if wanted["temperature"] == 0.0:
                last = int(LAW[last].argmax())
            else:
                weights = LAW[last] ** (self.sharpness / wanted["temperature"])
                last = int(generator.choice(3, p=weights / weights.sum()))
            ids.append(last)
        return ids

    def generate(self, body: dict[str, Any]) -> Any:
        if body.get("return_logprob"):
            return [{"meta_info": {"output_top_logprobs": [top(ids)]}} for ids in body["input_ids"]]
        ids = self.ids(body)
        return {"text": text_of(ids), "output_ids": ids, "meta_info": record(ids, len(ids))}

    def chunks(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        ids = self.ids(body)
        for begin in range(0, len(ids), DRAFTS):
            end = min(begin + DRAFTS, len(ids))
            shown = ids[0 if self.whole else begin : end]
            yield {
                "text": text_of(shown),
                "output_ids": shown,
                "meta_info": record(ids, end),
            }


def top(ids: list[int]) -> list[list[Any]]:
    return [[log(p), token_id, None] for token_id, p in enumerate(LAW[ids[-1]])]


def text_of(ids: list[int]) -> str:
    return "".join("abc"[token_id] for token_id in ids)


def record(ids: list[int], end: int) -> dict[str, Any]:
    steps = -(-end // DRAFTS)
    return {
        "completion_tokens": end,
        "finish_reason": {"type": "length", "length": end} if end == len(ids) else None,
        "spec_verify_ct": steps,
        "spec_num_proposed_drafts": DRAFTS * steps,
        "spec_num_correct_drafts": end - steps,
    }


@contextmanager
def fake_sglang(**options: Any) -> Iterator[FakeSglang]:
    """A running `FakeSglang`."""
    fake = FakeSglang(**options)

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            models = {"data": [{"id": "small", "owned_by": "sglang", "max_model_len": 64}]}
            self.answer(200 if self.path == "/v1/models" else 404, models)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/tokenize":
                self.answer(200, {"tokens": [ord(letter) % 3 for letter in body["prompt"]]})
            elif self.path == "/detokenize":
                self.answer(200, {"text": text_of(body["tokens"])})
            elif not body.get("stream"):
                self.answer(200, fake.generate(body))
            else:
                lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in fake.chunks(body)]
                self.answer(200, "".join([*lines, "data: [DONE]\n\n"]))

        def answer(self, status: int, value: Any) -> None:
            text = value if isinstance(value, str) else json.dumps(value)
            self.send(status, text.encode())

    with serving(Handler) as url:
        fake.url = f"{url}/v1"
        yield fake
