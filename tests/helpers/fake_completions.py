"""A server on this machine that speaks vLLM's part of OpenAI's completions, over a small model.

Its answers have the shape of vLLM 0.32.0's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from math import log
from typing import Any

import numpy as np
import torch
from local_server import QuietHandler, serving
from reference_distribution import processed_distribution

from specviz import Settings

VERSION = "0.32.0"


@dataclass
class FakeServer:
    """A running server. asked: the bodies of all requests for completions. fault: called with the
    handler before a completion is answered; what it returns true for is answered by itself.
    """

    model: Any
    tokenizer: Any
    name: str = "target"
    key: str | None = None
    counted: int | None = None  # drafts of its own; it speculates
    dead: bool = False  # it answers nobody any more
    most: int | None = None  # log-probabilities that are listed at most
    processed: bool = False  # log-probabilities are those after temperature, top-k and top-p
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    fault: Callable[[BaseHTTPRequestHandler], bool] | None = None

    @torch.inference_mode()
    def completion(self, body: dict[str, Any]) -> tuple[int, Any]:
        listed = body.get("logprobs", 0)
        if self.most is not None and listed > self.most:
            said = f"Requested sample logprobs of {listed}, which is greater than max allowed: "
            return 400, {"error": {"message": said + str(self.most), "code": 400}}
        if body.get("stream"):
            chunks = (b'data: {"choices": [{"text": "x"}]}\n\n' for _ in range(body["max_tokens"]))
            return 200, b"".join(chunks) + b"data: [DONE]\n\n"
        if "logprob_token_ids" in body:
            return 200, {"choices": self.drawn(body)}
        choices = []
        for index, ids in enumerate(body["prompt"]):
            row = torch.log_softmax(self.model(torch.tensor([ids])).logits[0, -1].float(), -1)
            best = row.topk(min(listed, len(row)))
            top = {
                f"token_id:{i}": value
                for value, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            }
            choices.append({"index": index, "logprobs": {"top_logprobs": [top]}})
        return 200, {"object": "text_completion", "choices": choices[::-1]}

    @torch.inference_mode()
    def drawn(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Choices drawn as vLLM does it: child i of a request has its seed plus i."""
        choices: list[dict[str, Any]] = []
        plain = Settings(temperature=1.0)
        own = replace(plain, **{k: body[k] for k in ("temperature", "top_k", "top_p")})
        for ids in body["prompt"]:
            logits = self.model(torch.tensor([ids])).logits[0, -1].tolist()
            p = processed_distribution(logits, own)
            told = p if self.processed else processed_distribution(logits, plain)
            for child in range(body["n"]):
                y = int(np.random.default_rng(body["seed"] + child).choice(len(p), p=p / p.sum()))
                logs = {
                    i: log(told[i]) if told[i] else -9999.0 for i in (y, *body["logprob_token_ids"])
                }
                said = {
                    "tokens": [f"token_id:{y}"],
                    "token_logprobs": [logs[y]],
                    "top_logprobs": [{f"token_id:{i}": value for i, value in logs.items()}],
                }
                choices.append({"index": len(choices), "logprobs": said})
        return choices

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/version":
            return 200, {"version": VERSION}
        if path == "/metrics" and self.counted is not None:
            return 200, speculation_counters(self.name, self.counted)
        if path == "/v1/models":
            limit = self.model.config.max_position_embeddings
            return 200, {"data": [{"id": self.name, "max_model_len": limit}]}
        if path == "/tokenize":
            return 200, {"tokens": self.tokenizer(body["prompt"])["input_ids"]}
        if path == "/detokenize":
            return 200, {"prompt": self.tokenizer.decode(body["tokens"])}
        if path == "/v1/completions" and body["model"] == self.name:
            self.asked.append(body)
            return self.completion(body)
        return 404, {"error": {"message": f"The model `{body.get('model')}` does not exist."}}


@dataclass
class Mortal(FakeServer):
    """As vLLM 0.32.0 on a processor that speculates: a top-k of 1 ends its engine."""

    counted: int | None = 0

    def completion(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["temperature"] and body["top_k"] == 1:
            self.dead = True
            return 500, {"error": {"message": "EngineCore encountered an issue.", "code": 500}}
        return super().completion(body)


def speculation_counters(model: str, count: int) -> bytes:
    """The lines of vLLM's /metrics that are there if it speculates."""
    kinds = ("drafts", "draft_tokens", "accepted_tokens")
    names = (f'vllm:spec_decode_num_{kind}_total{{model_name="{model}"}}' for kind in kinds)
    return "\n".join(f"{name} {count:.1f}" for name in names).encode()


@contextmanager
def fake_server(
    model: Any, tokenizer: Any, kind: type[FakeServer] | None = None, **options: Any
) -> Iterator[FakeServer]:
    """A running `FakeServer`, or one of another kind."""
    fake = (kind or FakeServer)(model, tokenizer, **options)

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer would wait for its head to be heard

        def do_GET(self) -> None:
            self.respond({})

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            self.respond(json.loads(self.rfile.read(length)))

        def respond(self, body: dict[str, Any]) -> None:
            if fake.dead:
                self.close_connection = True
            elif fake.key and self.headers.get("authorization") != f"Bearer {fake.key}":
                self.answer(401, {"error": "Unauthorized"})
            elif not (self.path.endswith("completions") and fake.fault and fake.fault(self)):
                self.answer(*fake.answer(self.path, body))

        def answer(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
            raw = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send(status, raw, headers)

    with serving(Handler) as url:
        fake.url = f"{url}/v1"
        yield fake
