"""The operator's token: the models that it gives access to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub.utils import build_hf_headers

from specviz.files.hub import gated_sentence
from specviz.files.source import ModelSource
from specviz.worker.loading import load_named, memory_in_numbers
from specviz.worker.tasks import ExamineTask, Stop

OPEN = "gpt2-xl-gpt2"
NAMED = "owner/private+owner/draft"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The token of each request that loading a model would send, if there is one."""
    tokens: list[str | None] = []

    def asked(*_: Any, **__: Any) -> Any:
        tokens.append(build_hf_headers().get("authorization"))
        return SimpleNamespace(target=None, draft=None, head=None, memory={}, to_dict=dict, vocab=0)

    monkeypatch.setenv("HF_TOKEN", "hf_operators")
    monkeypatch.setattr("specviz.pairs.load.load_any", asked)
    monkeypatch.setattr("specviz.pairs.doctor.examine", asked)
    monkeypatch.setattr("specviz.core.loop.lane_threads", lambda *_: 1)
    monkeypatch.setattr("specviz.core.engine_choice.make_engine", lambda *_: None)
    return tokens


def read_in_every_way(pair: str) -> None:
    load_named(f"{pair}@bfloat16", lambda _: None)
    memory_in_numbers(pair)
    list(ExamineTask(pair).run(None, Stop()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pair", "switch", "sends"),
    [(OPEN, "0", True), (NAMED, "0", False), (NAMED, "1", True), ("/a/folder+none", "0", False)],
)
def test_what_visitors_name_is_read_without_the_operators_token(
    sent: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
    pair: str,
    switch: str,
    sends: bool,
) -> None:
    monkeypatch.setenv("SPECVIZ_ANY_WITH_TOKEN", switch)
    read_in_every_way(pair)
    assert sent == [("Bearer hf_operators" if sends else None)] * 3
    assert build_hf_headers()["authorization"] == "Bearer hf_operators", "it is held back no longer"


def test_visitors_are_not_told_to_use_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def gated(*_: Any, **__: Any) -> Any:
        told.append(gated_sentence(ModelSource("owner/private", None)))
        return SimpleNamespace(to_dict=dict)

    monkeypatch.setattr("specviz.pairs.doctor.examine", gated)
    for pair in (OPEN, NAMED):
        list(ExamineTask(pair).run(None, Stop()))  # type: ignore[arg-type]
    assert "HF_TOKEN" in told[0] and "HF_TOKEN" not in told[1] and "choose an open model" in told[1]
