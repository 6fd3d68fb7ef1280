"""The checks of `make engines`: they pass with the right target and fail with a wrong one.

Tests marked `engines` run against the servers of the built-in target in ENGINES, for example
ENGINES="http://127.0.0.1:8000/v1 http://127.0.0.1:8001/v1".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from fake_completions import FakeServer, fake_server
from llama_server import LlamaServer
from sentences import Sentences

from scripts.engines import checks
from scripts.engines.__main__ import examine, table
from scripts.engines.deployments import Deployment, commands, installed, save_few_words
from specviz import Pair, load_pair
from specviz.audit.report import AuditReport, Control, Greedy, Mismatch, Sampled, Verdict
from specviz.base.environment import ASSETS
from specviz.remote.wire import Server
from specviz.sides.served.adapters import Completions

ENGINES = os.environ.get("ENGINES", "").split()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return save_few_words(tmp_path_factory.mktemp("few-words"))


@pytest.fixture(scope="module")
def local(folders: tuple[Path, Path]) -> Pair:
    return load_pair("+".join(map(str, folders)))


@pytest.fixture(scope="module")
def right(local: Pair) -> Iterator[FakeServer]:
    with fake_server(local.target, local.tokenizer) as server:
        yield server


@pytest.fixture(scope="module")
def wrong(local: Pair) -> Iterator[FakeServer]:
    """A server that serves the draft under the target's name."""
    with fake_server(local.draft, local.tokenizer) as server:
        yield server


def remote(server: FakeServer, folders: tuple[Path, Path]) -> Pair:
    return load_pair(f"{server.url}#target+{folders[1]}")


def test_another_target_has_other_tokens_and_another_distribution(
    right: FakeServer, wrong: FakeServer, folders: tuple[Path, Path], local: Pair
) -> None:
    ours, theirs = (remote(server, folders) for server in (right, wrong))
    short = {"max_new_tokens": 16}
    prompts = ("1 2",)
    for settings in (checks.GREEDY, checks.SAMPLED):
        same = checks.same_tokens(ours, local, replace(settings, **short), prompts)
        assert same.passed and same.says == "32 tokens, all the same"
    other = checks.same_tokens(theirs, local, replace(checks.GREEDY, **short), prompts)
    assert not other.passed and "after '1 2'" in other.says
    same = checks.same_distribution(ours, local, 40)
    other = checks.same_distribution(theirs, local, 60)
    assert same.passed, same.says
    assert not other.passed and other.figures["p_value"] < checks.SMALLEST


def test_a_server_that_dies_is_a_finding(
    right: FakeServer, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(handler: Any) -> bool:
        handler.close_connection = True
        return True

    pair = remote(right, folders)
    went_on = checks.killed(pair, lambda: None)
    assert not went_on.passed and "the run continued" in went_on.says
    one = checks.killed(pair, lambda: monkeypatch.setattr(right, "fault", cut))
    assert one.passed and one.says.startswith("3 rounds kept: 127.0.0.1")
    dead = checks.found("cost", lambda: checks.cost(pair, Completions(Server(right.url), "target")))
    assert (dead.check, dead.passed) == ("cost", False) and "closed the connection" in dead.says


def test_llama_cpp_is_watched_as_it_speculates(llama_cpp: Callable[..., LlamaServer]) -> None:
    builtin = load_pair("builtin")
    one, other = (
        checks.watched(f"{llama_cpp(draft=draft).url}#target", builtin) for draft in (True, False)
    )
    assert one.passed and one.figures["accepted"] > 0, one.says
    assert one.says.endswith("which its counters confirm")
    assert not other.passed and other.figures["drafted"] == 0  # there was nothing to observe


@pytest.mark.parametrize(
    ("answer", "places", "passed"),
    [("yes", "tie", True), ("yes", "fault", False), ("no", "", False)],
)
def test_an_audit_passes_where_drafts_are_kept_and_no_token_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, answer: Any, places: Any, passed: bool
) -> None:
    """`tests/audit/test_audit.py` audits a real llama.cpp."""
    told = dict.fromkeys((field.name for field in fields(AuditReport)), ())
    told["verdicts"] = (Verdict("speculating", answer, "so many drafts were kept."),)
    mismatches = (Mismatch(1, 3, "a", "b", 2.0, places),) if places else ()
    told["greedy"] = (Greedy("its own log-probabilities", 2, 64, 0.15, mismatches),)
    control = Control("a colder one", 1.0, 100)
    told["sampled"] = tuple(Sampled(name, 3, 400, 9, 5.0, 8, 0.4, control) for name in "ab")
    ask = create_autospec(checks.audit_server, return_value=AuditReport(**told))
    monkeypatch.setattr(checks, "audit_server", ask)
    finding = checks.audited("http://here/v1#target")
    assert finding.passed == passed and "drafts were kept" in finding.says
    assert finding.figures == {"a": 0.4, "b": 0.4}
    assert ask.call_args.kwargs["questions"] == ("speculating", "lossless")


def test_what_does_not_start_is_in_the_table(tmp_path: Path, sentences: Sentences) -> None:
    pair = ASSETS / "pair"
    broken = Deployment("two nodes", pair / "target", pair / "draft", ("--no-such-flag",), nodes=2)
    rows = list(examine(Path(sys.executable), broken, tmp_path))  # this Python has no vLLM
    assert [one.passed for _, one in rows] == [False]
    assert "it did not start: see " in list(table(rows))[-1]
    head, node = commands(Path("python"), broken, 8000, 29500)
    assert "--headless" in node and "--headless" not in head and "29500" in node
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with sentences.raises(SystemExit):
        installed(tmp_path / "full")


@pytest.mark.engines
@pytest.mark.skipif(not ENGINES, reason="no server: name some in ENGINES, or use make engines")
@pytest.mark.parametrize("url", ENGINES)
def test_a_real_engine_holds_the_same_target(url: str) -> None:
    pair = load_pair(f"{url}#target+{ASSETS / 'pair' / 'draft'}")
    builtin = load_pair("builtin")
    prompts = checks.PROMPTS[:1]
    for one in (
        checks.same_tokens(pair, builtin, checks.GREEDY, prompts),
        checks.same_tokens(pair, builtin, checks.SAMPLED, prompts),
        checks.its_own_text(Completions(Server(url), "target"), builtin),
    ):
        assert one.passed, one.says
