"""A server on this machine that answers as llama.cpp does, over a small model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from fake_completions import FakeServer

OWNED = {"owned_by": "llamacpp", "meta": {"n_ctx": 128, "n_params": 1000}}
UNKNOWN = 404, {"error": {"message": "Not Found"}}


@dataclass
class FakeLlama(FakeServer):
    """As llama.cpp's server, build 11549: a list of answers to several prompts."""

    @torch.inference_mode()
    def complete(self, body: dict[str, Any]) -> Any:
        answers = []
        for index, ids in enumerate(body["prompt"]):
            row = torch.log_softmax(self.model(torch.tensor([ids])).logits[0, -1].float(), -1)
            best = row.topk(min(body["n_probs"], len(row)))
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            top = [{"id": i, "token": "x", "bytes": [120], "logprob": value} for value, i in pairs]
            timings = {"prompt_ms": 2.0, "predicted_ms": 0.5}
            said = [{"id": top[0]["id"], "top_logprobs": top}]
            answers.append({"index": index, "completion_probabilities": said, "timings": timings})
        return answers if len(answers) > 1 else answers[0]

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/models":
            return 200, {"data": [{"id": self.name, **OWNED}]}
        if path == "/props":
            return 200, {"build_info": "b11549"}
        if path == "/tokenize":
            return 200, {"tokens": self.tokenizer(body["content"])["input_ids"]}
        if path == "/detokenize":
            return 200, {"content": self.tokenizer.decode(body["tokens"])}
        if path == "/v1/completions":
            said = {"content": [{"id": 1, "logprob": -0.1, "top_logprobs": []}]}
            return 200, {"choices": [{"index": i, "logprobs": said} for i in range(2)]}
        if path == "/completion":
            self.asked.append(body)
            return 200, self.complete(body)
        return UNKNOWN
