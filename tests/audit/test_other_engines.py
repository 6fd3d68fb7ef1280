"""Audit engines that are not installed here: SGLang, with a server that answers as its
documentation says, and vLLM, with recorded answers."""

from __future__ import annotations

import pytest
from fake_sglang import fake_sglang
from replaying_server import Replay, replay_of, replaying
from sentences import Sentences

from specviz import audit_server
from specviz.audit.asking import AuditedModel, RequestBudget
from specviz.audit.report import AuditReport

FOUND = (3, 15, 8)  # steps, drafted, accepted: of the recorded stream


@pytest.mark.parametrize("whole", [True, False])
def test_sglang_tells_its_drafts_and_its_ids(whole: bool) -> None:
    with fake_sglang(whole=whole) as server:
        text = AuditedModel(server.url, RequestBudget(9)).stream([0], 7)
    assert (text.ids, text.text) == ((0,) * 7, "a" * 7)
    assert (text.drafted, text.accepted) == (9, 4)


@pytest.mark.parametrize(("sharpness", "answer"), [(1.0, "yes"), (1.5, "no")])
def test_the_sampler_of_sglang_is_judged_by_its_own_lists(sharpness: float, answer: str) -> None:
    with fake_sglang(sharpness=sharpness) as server:
        report = audit_server(
            server.url, questions=("speculating", "lossless"), minutes=0.5, tokens=12
        )
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
