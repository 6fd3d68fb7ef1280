"""A server on this machine that answers like vLLM 0.32.0, from a small model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import log
from typing import Any

import numpy as np
import torch
from local_server import Handler, serving
from reference_distribution import processed_distribution

from specviz import Settings

VERSION = "0.32.0"


@dataclass
class FakeServer:
    """A running server.

    asked: the bodies of all requests for completions. fault: called with the handler before a
    completion is answered; if it returns true, it has answered the request itself.
    """

    model: Any
    tokenizer: Any
    name: str = "target"
    key: str | None = None
    counted: int | None = None  # number of its own drafts, if it speculates
    dead: bool = False  # every connection is closed without an answer
    most: int | None = None  # maximum number of listed log-probabilities
    processed: bool = False  # log-probabilities follow temperature, top-k and top-p
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    fault: Callable[[Handler], bool] | None = None

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
        """Draw choices like vLLM: child i of a request has its seed plus i."""
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
    """vLLM 0.32.0 speculating on a processor: a top-k of 1 ends its engine."""

    counted: int | None = 0

    def completion(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["temperature"] and body["top_k"] == 1:
            self.dead = True
            return 500, {"error": {"message": "EngineCore encountered an issue.", "code": 500}}
        return super().completion(body)


def speculation_counters(model: str, count: int) -> bytes:
    """Lines of /metrics of a vLLM that speculates."""
    kinds = ("drafts", "draft_tokens", "accepted_tokens")
    names = (f'vllm:spec_decode_num_{kind}_total{{model_name="{model}"}}' for kind in kinds)
    return "\n".join(f"{name} {count:.1f}" for name in names).encode()


@contextmanager
def fake_server(
    model: Any, tokenizer: Any, kind: type[FakeServer] = FakeServer, **options: Any
) -> Iterator[FakeServer]:
    """Run a `FakeServer`, or a subclass of it."""
    fake = kind(model, tokenizer, **options)

    class Completions(Handler):
        def respond(self, body: dict[str, Any]) -> None:
            if fake.dead:
                self.close_connection = True
            elif fake.key and self.headers.get("authorization") != f"Bearer {fake.key}":
                self.answer(401, {"error": "Unauthorized"})
            elif not (self.path.endswith("completions") and fake.fault and fake.fault(self)):
                self.answer(*fake.answer(self.path, body))

    with serving(Completions) as url:
        fake.url = f"{url}/v1"
        yield fake
