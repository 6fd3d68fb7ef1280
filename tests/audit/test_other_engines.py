"""Audit engines that are not installed here: SGLang, with a server that answers as its
documentation says, and vLLM, with recorded answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import pytest
from local_server import Handler, serving
from replaying_server import Replay, replay_of, replaying
from sentences import Sentences

from specviz import audit_server
from specviz.audit.asking import AuditedModel, RequestBudget
from specviz.audit.report import AuditReport

FOUND = (3, 15, 8)  # steps, drafted, accepted: of the recorded stream


LAW = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
"""The probability of each next token (columns) after the last one (rows)."""
DRAFTS = 3  # in a step


@dataclass
class FakeSglang:
    """A running server with the documented answers of SGLang's `/generate`.

    sharpness: a power to which its sampler raises all probabilities; 1 is right. whole: whether
    chunks repeat the text so far.
    """

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
            return [
                {"meta_info": {"output_top_logprobs": [listed(ids)]}} for ids in body["input_ids"]
            ]
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


def listed(ids: list[int]) -> list[list[Any]]:
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
    """Run a `FakeSglang`."""
    fake = FakeSglang(**options)

    class Generate(Handler):
        def respond(self, body: dict[str, Any]) -> None:
            if self.path == "/v1/models":
                model = {"id": "small", "owned_by": "sglang", "max_model_len": 64}
                self.answer(200, {"data": [model]})
            elif self.path == "/tokenize":
                self.answer(200, {"tokens": [ord(letter) % 3 for letter in body["prompt"]]})
            elif self.path == "/detokenize":
                self.answer(200, {"text": text_of(body["tokens"])})
            elif self.path != "/generate":
                self.answer(404, {})
            elif not body.get("stream"):
                self.answer(200, fake.generate(body))
            else:
                lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in fake.chunks(body)]
                self.answer(200, "".join([*lines, "data: [DONE]\n\n"]).encode())

    with serving(Generate) as url:
        fake.url = f"{url}/v1"
        yield fake


@pytest.mark.parametrize("whole", [True, False])
def test_sglang_tells_its_drafts_and_its_ids(whole: bool) -> None:
    with fake_sglang(whole=whole) as server:
        text = AuditedModel(server.url, RequestBudget(9)).stream([0], 7)
    assert (text.ids, text.text) == ((0,) * 7, "a" * 7)
    assert (text.drafted, text.accepted) == (9, 4)


@pytest.mark.parametrize(("sharpness", "answer"), [(1.0, "yes"), (1.5, "no")])
def test_the_sampler_of_sglang_is_judged_by_its_own_lists(sharpness: float, answer: str) -> None:
    """At this temperature 800 texts catch the control; at the usual one it takes 1,600."""
    with fake_sglang(sharpness=sharpness) as server:
        report = audit_server(
            server.url,
            questions=("speculating", "lossless"),
            minutes=0.5,
            tokens=12,
            temperature=0.35,
        )
    assert report.plan is not None and report.plan.samples == 800
    assert report.verdict("speculating").answer == "yes" and report.software == "SGLang"
    verdict = report.verdict("lossless")
    assert verdict.answer == answer, verdict.sentence
    lossy = any("--speculative-accept-threshold-single" in one.lines for one in report.advice)
    assert lossy == (answer == "no")


def watched(**changes: object) -> AuditReport:
    replay: Replay = replay_of("vllm", counted=FOUND)
    for name, value in changes.items():
        setattr(replay, name, value)
    with replaying(replay) as server:
        return audit_server(server.url, questions=("speculating",), minutes=0.01, tokens=12)


def test_vllm_tells_what_each_step_kept_at_the_end_of_its_stream() -> None:
    report = watched()
    assert report.verdict("speculating").answer == "yes" and report.drafting is not None
    assert report.drafting.acceptance == pytest.approx(8 / 15)
    assert report.drafting.by_position == pytest.approx((2 / 3, 2 / 3, 2 / 3, 1 / 3, 1 / 3))


def test_vllm_without_details_is_known_by_its_counters_and_chunks(sentences: Sentences) -> None:
    chunks = replay_of("vllm").chunks
    plain = [chunk for chunk in chunks if isinstance(chunk, str) or chunk["choices"]]
    report = watched(chunks=plain)
    verdict = report.verdict("speculating")
    assert verdict.answer == "yes" and report.drafting is not None
    assert report.drafting.acceptance == pytest.approx(8 / 15)
    sentences("\n".join(fact.sentence for fact in verdict.evidence), measured=True)


def test_vllm_without_counters_does_not_speculate() -> None:
    report = watched(chunks=replay_of("vllm", "streamed").chunks, counted=())
    assert report.verdict("speculating").answer == "no" and report.exit_status == 1


def test_counters_of_vllm_that_chunks_of_one_token_contradict_are_not_believed(
    sentences: Sentences,
) -> None:
    verdict = watched(chunks=replay_of("vllm", "streamed").chunks).verdict("speculating")
    assert verdict.answer == "cannot be told"
    sentences(verdict.sentence, measured=True)
