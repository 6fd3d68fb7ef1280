"""Audit llama.cpp's own server: with a draft that helps, one that costs more than it saves, one
that is loaded but never used, and behind proxies that lie, refuse, stall or disconnect."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from altering_proxy import altered
from llama_server import LlamaServer
from sentences import Sentences

from specviz import audit_server
from specviz.__main__ import main
from specviz.audit import sampled
from specviz.audit.asking import AuditedModel, RequestBudget
from specviz.audit.greedy import GreedyText, check_own
from specviz.audit.html import audit_html
from specviz.audit.report import STOPPED, UNTOLD, AuditReport
from specviz.base.errors import PairError, ServerError
from specviz.inspect.equivalence import SIGNIFICANCE

Start = Callable[..., LlamaServer]
MINUTES = 0.015  # enough for the fewest turns


def audited(url: str, *questions: str, **options: Any) -> AuditReport:
    """Run a short audit of the server's only model."""
    options = {"minutes": MINUTES, "tokens": 8, "at_once": 2, "context": 64, **options}
    return audit_server(url, questions=questions, **options)


def model_at(url: str) -> AuditedModel:
    return AuditedModel(url, RequestBudget(10_000))


def test_a_draft_that_helps_is_seen_and_its_text_is_the_targets(
    llama_cpp: Start, tmp_path: Path
) -> None:
    said: list[str] = []
    report = audit_server(
        f"{llama_cpp(draft=True).url}#target",
        baseline=llama_cpp().url,
        minutes=MINUTES,
        tokens=10,
        at_once=2,
        context=64,
        on_progress=said.append,
    )
    speculating, paying, lossless = report.verdicts
    assert speculating.answer == "yes" and report.drafting is not None
    assert report.drafting.by_position[0] > report.drafting.by_position[-1] > 0
    assert {"timings", "/metrics", "/slots"} <= {fact.source for fact in speculating.evidence}
    assert report.speeds[0].kind == "all" and report.speeds[0].turns >= 3
    assert report.speeds[0].ratio is not None and len(report.loads) >= 1
    assert len(report.lengths) >= 1 and paying.question == "paying"
    assert lossless.answer != "no" and {check.faults for check in report.greedy} == {0}
    assert {check.against for check in report.greedy} == {
        "the baseline's texts",
        "its own log-probabilities",
    }
    assert report.plan is not None
    assert len({test.samples for test in report.sampled}) == 1 and len(report.sampled) == 3
    assert sampled.MIN_TEXTS <= report.sampled[0].samples <= report.plan.samples
    assert report.requests <= 80 + report.plan.requests
    assert any("At most" in sentence and "minutes" in sentence for sentence in said)
    assert report.exit_status in (0, 1, 3)  # times on a busy machine decide nothing
    again = json.loads(report.to_json())
    assert again["verdicts"][0]["answer"] == "yes" and again["schema"] == 1


def test_a_draft_that_costs_more_than_it_saves_does_not_pay(llama_cpp: Start) -> None:
    """The target drafts for itself: a draft that is too slow."""
    report = audited(llama_cpp(slow=True).url, "speculating", "paying", baseline=llama_cpp().url)
    assert report.drafting is not None and report.drafting.acceptance == 1.0
    gain = report.speeds[0].gain
    assert gain is not None and gain.value < 1.0 and report.verdict("paying").answer != "yes"


def test_a_draft_that_is_loaded_and_never_used_is_told(
    llama_cpp: Start, sentences: Sentences
) -> None:
    report = audited(llama_cpp(unused=True).url, "speculating")
    verdict = report.verdict("speculating")
    assert verdict.answer == "no"
    sentences(verdict.sentence, measured=True)
    assert "--spec-draft-p-min 0" in report.advice[0].lines


def test_a_server_without_a_draft_does_not_speculate(llama_cpp: Start) -> None:
    report = audited(llama_cpp().url, "speculating", draft="small.gguf")
    assert report.verdict("speculating").answer == "no" and report.exit_status == 1
    assert "--spec-draft-model small.gguf" in report.advice[0].lines


def test_a_wrong_sampler_is_refused_where_the_right_one_is_not(llama_cpp: Start) -> None:
    """The proxy makes the server sample at a lower temperature than requested."""
    server = llama_cpp(draft=True)

    def colder(path: str, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "temperature": 0.3 * body.get("temperature", 0.0)}

    model = model_at(server.url)
    prompt = model.tokenize("Once upon a time")
    law = sampled.listed_law(model, prompt, 0.7)
    # 62 are the fewest texts with four cells; in 400 simulations 30 always exposed the proxy.
    counts = (62, 30)  # from the server itself, and through the proxy
    assert sum(law.probabilities(0.7).values()) == pytest.approx(1.0)
    with altered(server.url, ask=colder) as proxy:
        tests = []
        for drawing, count in zip((model, model_at(proxy.url)), counts, strict=True):
            ids = [drawn for drawn, _ in sampled.draws(drawing, prompt, 0.7, count)]
            tests.append(sampled.fit(ids, law, 0.7, 2))  # the second token was drafted
    right, wrong = tests
    assert right.p_value is not None and wrong.p_value is not None
    assert right.p_value > SIGNIFICANCE > wrong.p_value
    assert right.cells > 2 and wrong.cells > 1
    # The control is a milder fault, which so few texts do not always expose.
    assert wrong.control.caught < 1.0


def test_a_greedy_text_that_is_not_the_targets_is_a_fault(llama_cpp: Start) -> None:
    model = model_at(llama_cpp().url)
    prompt = model.tokenize("Once upon a time")
    ids = model.stream(prompt, 8).ids
    assert not check_own(model, [GreedyText(prompt, ids)], 0.01).places
    other = model.tokenize(" zebra")[0]
    (place,) = check_own(model, [GreedyText(prompt, (*ids[:3], other))], 0.01).places
    assert (place.index, place.verdict) == (3, "fault") and (place.behind or 0.0) > 1.0


@pytest.mark.parametrize("status", [429, 503, 0])
def test_a_server_that_fails_in_the_middle_becomes_a_sentence(
    llama_cpp: Start, status: int, sentences: Sentences
) -> None:
    """The server answers two warm-up texts and two turns, which are too few for a verdict."""
    with altered(llama_cpp(draft=True).url, status=status, healthy=4) as proxy:
        report = audited(proxy.url, "speculating", "paying", baseline=llama_cpp().url)
    paying = report.verdict("paying")
    assert paying.answer == "cannot be told"
    sentences(paying.sentence)
    assert report.exit_status == UNTOLD


def test_a_server_that_stalls_is_left(llama_cpp: Start, sentences: Sentences) -> None:
    with altered(llama_cpp(draft=True).url, is_stalled=True, healthy=3) as proxy:
        begin = time.monotonic()
        report = audited(proxy.url, "speculating", "paying", answer_seconds=0.3)
        assert time.monotonic() - begin < 5
    sentences(report.verdict("paying").doubt)


def claimed(path: str, text: str) -> str:
    """Alter /metrics: its counters claim 100 more drafts at each request."""
    if path != "/metrics":
        return text
    claimed.looks += 100  # type: ignore[attr-defined]
    return re.sub(
        r"^(llamacpp:spec_decode_num_\w+_total) \d+$",
        rf"\1 {claimed.looks}",  # type: ignore[attr-defined]
        text,
        flags=re.MULTILINE,
    )


claimed.looks = 0  # type: ignore[attr-defined]


def test_counters_that_no_stream_shows_are_not_believed(
    llama_cpp: Start, sentences: Sentences
) -> None:
    with altered(llama_cpp().url, text=claimed) as proxy:
        verdict = audited(proxy.url, "speculating").verdict("speculating")
    assert verdict.answer == "cannot be told"
    sentences(verdict.sentence, measured=True)


def test_no_more_is_sent_than_was_announced(llama_cpp: Start, sentences: Sentences) -> None:
    with altered(llama_cpp(draft=True).url) as proxy:
        report = audited(proxy.url, "speculating", "lossless", minutes=0.01)
        assert report.plan is not None and len(proxy.paths) == report.requests
        model = AuditedModel(proxy.url, RequestBudget(5))
        with sentences.raises(ServerError):
            for _ in range(6):
                model.stream("Once", 5)
        assert len(proxy.paths) == report.requests + 5


def test_without_a_baseline_speed_cannot_be_told_and_the_key_is_nowhere(
    llama_cpp: Start, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    monkeypatch.setenv("SPECVIZ_REMOTE_KEY", "secret-key")
    with altered(llama_cpp().url) as proxy:
        report = audited(proxy.url, "speculating", "paying")
        assert "Bearer secret-key" in proxy.keys
    sentences(report.verdict("paying").sentence)
    assert report.exit_status == 1  # the server does not speculate either
    assert "secret-key" not in report.to_json() + audit_html(report)


def test_a_baseline_that_speculates_is_refused(llama_cpp: Start, sentences: Sentences) -> None:
    speculating = llama_cpp(draft=True).url
    model_at(speculating).stream("Once upon", 24)
    with sentences.raises(PairError):
        audited(llama_cpp().url, "paying", baseline=speculating)


def test_the_verb_writes_its_report_and_ends_with_its_status(
    llama_cpp: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    out = tmp_path / "report"
    address = f"{llama_cpp().url}#target"
    options = ["--only", "speculating", "--minutes", "0.05", "--tokens", "8", "--out", str(out)]
    assert main(["audit", address, *options]) == 1
    (answer,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗")]
    sentences(answer, measured=True)
    page = out.with_suffix(".html").read_text("utf-8")
    assert "nothing was drafted" in page and "<script" not in page and "://" not in page
    assert json.loads(out.with_suffix(".json").read_text("utf-8"))["exit_status"] == 1
    assert main(["audit", address, "--only", "speed"]) == 2
    assert main(["audit", address.replace("#target", "#other"), "--minutes", "0.05"]) == 2
    sentences(capsys.readouterr().err.splitlines()[-1])


def test_ctrl_c_stops_at_once_and_reports_what_was_measured(llama_cpp: Start) -> None:
    """The audit stops even while the server is silent."""
    with altered(llama_cpp(draft=True).url, is_stalled=True, healthy=6) as proxy:
        begun: list[float] = []

        def interrupt() -> None:
            if proxy.stalls.wait(60):
                time.sleep(0.2)  # by now the audit waits for the answer
                begun.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        report = audited(proxy.url, "speculating", "paying", answer_seconds=60)
    assert time.monotonic() - begun[0] < 5
    assert report.stopped and report.exit_status == STOPPED
    assert report.verdict("speculating").answer == "yes"
    assert "the audit was stopped" in report.verdict("paying").doubt
