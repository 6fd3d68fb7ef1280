"""Servers on this machine that answer as SGLang and llama.cpp do, over a small model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from fake_completions import FakeServer

UNKNOWN = 404, {"error": {"message": "Not Found"}}


@dataclass
class FakeSglang(FakeServer):
    """As SGLang's documentation and sources have it: the first listed place of a prompt has no
    distribution, and the one behind the prompt stands with the output."""

    @torch.inference_mode()
    def generate(self, body: dict[str, Any]) -> dict[str, Any]:
        ids, start, listed = (
            body[name] for name in ("input_ids", "logprob_start_len", "top_logprobs_num")
        )
        rows = torch.log_softmax(self.model(torch.tensor([ids])).logits[0].float(), -1)
        tops = []
        for row in rows[start:]:
            best = row.topk(min(listed, self.most or listed, len(row)))
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            tops.append([[value, token_id, None] for value, token_id in pairs])
        told = {
            "input_top_logprobs": [None, *tops[:-1]],
            "output_top_logprobs": tops[-1:],
            "e2e_latency": 0.001,
        }
        return {"text": "", "meta_info": told}

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/models":
            return 200, {"data": [{"id": self.name, "max_model_len": 128}]}
        if path == "/get_server_info":
            return 200, {"version": "0.5.5"}
        if path == "/tokenize":
            return 200, {"tokens": self.tokenizer(body["prompt"])["input_ids"], "count": 1}
        if path == "/detokenize":
            return 200, {"text": self.tokenizer.decode(body["tokens"])}
        if path == "/v1/completions":  # its lists are by text
            top = {"!": -0.1, "?": -0.2}
            said = {"tokens": ["!"], "token_logprobs": [-0.1], "top_logprobs": [top]}
            return 200, {"choices": [{"index": i, "logprobs": said} for i in range(2)]}
        if path == "/generate":
            self.asked.append(body)
            return 200, self.generate(body)
        return UNKNOWN


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
            return 200, {"data": [{"id": self.name}]}
        if path == "/props":
            own = {"n_ctx": 128}
            return 200, {"build_info": "b11549", "default_generation_settings": own}
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
