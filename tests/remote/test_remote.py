"""A target on a server: the same tokens as with the same target on this machine, and a sentence for
each fault.

The server of these tests speaks the protocol like vLLM 0.32.0.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from bare_rounds import bare_rounds
from fake_completions import FakeServer, Mortal, fake_server
from model_families import saved
from reference_distribution import chain_p_value
from sentences import Sentences
from toy_models import byte_level, emitted_ids, llama, mini, pair_of, relative, words

from specviz import (
    Pair,
    Settings,
    SpecvizError,
    Trace,
    baseline,
    compute_metrics,
    load_pair,
    race,
    speculate,
)
from specviz.__main__ import main
from specviz.base.environment import SERVED
from specviz.base.errors import PairError, ServerError, TraceError
from specviz.page.choices import chosen_pair, pair_choices
from specviz.pairs.doctor import examine_pair
from specviz.pairs.spec import parse_pair
from specviz.remote import wire
from specviz.remote.address import server_address
from specviz.remote.identity import identity_of
from specviz.remote.wire import Server
from specviz.runs.identities import check_trace
from specviz.runs.series import series
from specviz.runs.terminal import metric_lines
from specviz.sides.served.adapters import Completions
from specviz.sides.served.target import RemoteTarget
from specviz.worker.tasks import ExamineTask, Models

VOCAB = 300
KEY = "sk-a-secret-of-somebody"
SAMPLED = Settings(max_new_tokens=16, temperature=0.9, top_p=0.95, seed=5)
GREEDY = Settings(max_new_tokens=16, gamma=4)


@pytest.fixture(scope="module")
def target() -> Any:
    return llama(VOCAB, hidden_size=32, num_hidden_layers=2, max_position_embeddings=128)


@pytest.fixture(scope="module")
def draft(target: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("remote") / "draft"
    return saved(folder, relative(target, noise=0.05), byte_level(VOCAB))


@pytest.fixture
def server(target: Any) -> Iterator[FakeServer]:
    with fake_server(target, byte_level(VOCAB)) as running:
        yield running


def remote_pair(server: FakeServer, draft: Path) -> Pair:
    return load_pair(f"{server.url}#target+{draft}")


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED, replace(SAMPLED, top_k=4, top_p=1.0)])
def test_it_writes_what_the_same_target_writes_here(
    server: FakeServer, target: Any, draft: Path, settings: Settings
) -> None:
    remote = remote_pair(server, draft)
    local = Pair(target=target, draft=remote.draft, tokenizer=remote.tokenizer)
    for lane in (speculate, baseline):
        ours, theirs = ([*lane(one, "hello", settings)] for one in (remote, local))
        assert emitted_ids(ours) == emitted_ids(theirs)
        assert [len(r.emitted) for r in ours] == [len(r.emitted) for r in theirs]
    least = server.asked[-1]["logprobs"]
    assert least == (VOCAB if settings.top_p < 1 else 5)  # no more than needed
    widths = {len(asked["prompt"]) for asked in server.asked}
    assert widths <= set(range(1, settings.gamma + 2)) and settings.gamma + 1 in widths


def test_a_race_is_a_trace_that_says_what_it_is(
    server: FakeServer, draft: Path, tmp_path: Path
) -> None:
    trace = Trace.from_events(race(remote_pair(server, draft), "hello", GREEDY))
    check_trace(trace)
    trace.save(tmp_path / "run.json")
    again = Trace.load(tmp_path / "run.json")
    assert again == trace and again.header.on_server
    assert trace.header.device == "vLLM 0.32.0" and trace.header.target["parameters"] == 0
    assert all(r.exchanged and r.exchanged > 100 for r in trace.rounds)
    assert trace.end is not None and trace.end.identical
    assert compute_metrics(trace).alpha is not None
    asked = series(trace.rounds)["requests"]
    assert [len(lane["x"]) for lane in asked] == [len(trace.lane(lane)) for lane in trace.lanes]
    assert trace.header.streaming_rate is not None
    said = "\n".join(metric_lines(trace))
    assert "kB and" in said and "tokens/s on its own" in said and "per request and says" in said
    # A card shows only probabilities that the server listed.
    for r in trace.rounds:
        for token in r.drafted:
            listed = {choice.id: choice.probability for choice in token.top_p}
            known = token.soft_p is not None
            assert known == (token.id in listed) or token.outcome == "ignored"


def test_the_law_is_kept_whatever_the_draft() -> None:
    """The server lists whole distributions, or only a part of them, so that its draws must
    decide."""
    chains = [mini(4, seed=seed, spread=2.0, decay=0.0, max_position_embeddings=4000)
              for seed in (2, 3)]  # fmt: skip
    local = pair_of(*chains)
    settings = Settings(temperature=0.8, gamma=3, max_new_tokens=400, seed=1)
    for most in (4, 3):
        with fake_server(chains[0], words(4), processed=True, most=most) as server:
            connected = Server(server.url)
            identity = identity_of(connected, "target")
            target = RemoteTarget(Completions(connected, "target"), identity, 4)
            with bare_rounds():
                ids = [2, *emitted_ids(speculate(replace(local, target=target), [2], settings))]
            assert chain_p_value(chains[0], ids, settings) > 1e-4
            assert chain_p_value(chains[0], ids, replace(settings, temperature=4.0)) < 1e-4


def test_a_server_that_draws_makes_a_run_exact_and_says_what_is_unknown(
    target: Any, draft: Path, tmp_path: Path, sentences: Sentences
) -> None:
    with fake_server(target, byte_level(VOCAB), most=20, processed=True) as server:
        pair = remote_pair(server, draft)
        assert pair.target.draws
        trace = Trace.from_events(race(pair, "hello", SAMPLED))
        check_trace(trace)
        trace.save(tmp_path / "run.json")
        assert Trace.load(tmp_path / "run.json") == trace
        judged = [t for r in trace.rounds for t in r.drafted if t.p is not None]
        assert judged and not any(t.beta or t.top_p or t.top_residual for t in judged)
        assert all(t.p for r in trace.rounds for t in r.emitted)
        assert compute_metrics(trace).beta is None
        outcomes = {t.outcome for r in trace.rounds for t in r.emitted}
        assert {"corrected", "bonus"} <= outcomes
        seeds = {asked["seed"] for asked in server.asked if "seed" in asked}
        again = emitted_ids(speculate(pair, "hello", SAMPLED))
        assert again == [t.id for r in trace.lane("speculative") for t in r.emitted]
        assert len(seeds) > 10
        assert [*speculate(pair, "hello", GREEDY)]  # from its lists
        with sentences.raises(PairError):
            [*speculate(pair, "hello", replace(SAMPLED, verdict="block"))]
        with sentences.raises(PairError):
            [*speculate(pair, "hello", replace(SAMPLED, temperature=0.001))]
    rejected = next(t for t in judged if t.outcome == "rejected")
    where = next(r for r in trace.rounds if rejected in r.drafted)
    where.drafted[where.drafted.index(rejected)] = replace(rejected, beta=0.5)
    with sentences.raises(TraceError):
        check_trace(trace)


def test_a_short_list_is_refused_where_it_would_not_be_exact(
    target: Any, draft: Path, sentences: Sentences
) -> None:
    with fake_server(target, byte_level(VOCAB), most=20) as server:
        pair = remote_pair(server, draft)
        assert pair.target.listed == 20
        assert [*speculate(pair, "hello", GREEDY)]
        assert [*speculate(pair, "hello", replace(SAMPLED, top_k=20))]
        for settings in (SAMPLED, replace(SAMPLED, top_k=21)):
            with sentences.raises(PairError):
                [*speculate(pair, "hello", settings)]


@pytest.mark.parametrize("change", [{"drafter": "early-exit"}, {"gamma_policy": "optimal"}])
def test_what_needs_the_targets_weights_says_so(
    server: FakeServer, draft: Path, change: dict[str, Any], sentences: Sentences
) -> None:
    with sentences.raises(PairError):
        [*speculate(remote_pair(server, draft), "hello", replace(GREEDY, **change))]


def test_another_tokenizer_is_refused_before_the_first_round(
    target: Any, draft: Path, sentences: Sentences
) -> None:
    shifted = byte_level(VOCAB, special=["<new>"])
    with fake_server(target, shifted) as server, sentences.raises(PairError):
        remote_pair(server, draft)
    assert len(server.asked) == 1  # the server was asked only for its capabilities


def answered(status: int, body: Any, **headers: str) -> Callable[[Any], bool]:
    def fault(handler: Any) -> bool:
        handler.answer(status, body, headers)
        return True

    return fault


def cut(handler: Any) -> bool:
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b"{")
    handler.close_connection = True
    return True


FAULTS = {
    "an answer that is cut off": cut,
    "an error": answered(500, {"error": {"message": "it broke"}}),
    "too many requests": answered(429, {}),
    "a wrong key": answered(401, {}),
    "no model": answered(404, {}),
    "a bad gateway": answered(502, b"<html>bad gateway"),
    "a page": answered(200, b"<html>hello"),
    "no log-probabilities": answered(200, {"choices": [{"index": 0, "text": "x"}]}),
    "the key": answered(400, {"error": f"said {KEY} {'x' * 10}"}),
}


@pytest.fixture(scope="module")
def keyed(target: Any, draft: Path) -> Iterator[tuple[FakeServer, Pair]]:
    """A server that requires a key, and a pair with its target there."""
    with fake_server(target, byte_level(VOCAB), key=KEY) as server:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPECVIZ_REMOTE_KEY", KEY)
            pair = remote_pair(server, draft)
        yield server, pair


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_mid_run_is_a_sentence_and_keeps_the_rounds(
    keyed: tuple[FakeServer, Pair], fault: str, sentences: Sentences
) -> None:
    server, pair = keyed
    kept = []
    with sentences.raises(SpecvizError) as caught:
        for r in speculate(pair, "hello", GREEDY):
            kept.append(r)
            server.fault = FAULTS[fault]
    assert KEY not in str(caught.value)
    assert len(kept) == 1
    server.fault = None
    assert emitted_ids([next(speculate(pair, "hello", GREEDY))]) == emitted_ids(kept)
    assert KEY not in repr(pair.target.server.server)


def test_nobody_there_and_addresses_that_are_none(draft: Path, sentences: Sentences) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with sentences.raises(ServerError):
        load_pair(f"http://127.0.0.1:{port}/v1#target+{draft}")
    with sentences.raises(PairError):
        load_pair(f"http://me:{KEY}@127.0.0.1:{port}/v1#target+{draft}")
    with sentences.raises(PairError):
        load_pair(f"http://127.0.0.1:{port}/v1")


def test_faults_of_the_way_to_a_server(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    monkeypatch.setattr(wire, "ANSWER_SECONDS", 0.2)
    patient = Completions(Server(server.url), "target")
    release = Event()

    def silent(_: Any) -> bool:
        return release.wait(20) and False

    server.fault = silent
    with sentences.raises(ServerError):
        patient.logprobs([[1]], 5, VOCAB)
    release.set()
    with sentences.raises(ServerError):
        Server(server.url.replace("http:", "https:")).ask("models")
    server.fault = None
    # Sentences that visitors may read do not name the address of the operator's own server.
    monkeypatch.setenv("SPECVIZ_REMOTE", f"{server.url}#target+draft")
    with sentences.raises(ServerError):
        Server(server_address(server.url)).ask("nothing")
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    with sentences.raises(ServerError):
        Server("http://10.0.0.1/v1").ask("models")


def test_attaching_asks_a_server_only_what_the_run_needs(
    target: Any, draft: Path, sentences: Sentences
) -> None:
    """A top-k of 1 ends vLLM 0.32.0 when it speculates on a processor."""
    with fake_server(target, byte_level(VOCAB), Mortal) as server:
        pair = remote_pair(server, draft)
        assert [*speculate(pair, "hello", GREEDY)]
        assert {asked["logprobs"] for asked in server.asked} == {5}
        assert not any(asked["temperature"] for asked in server.asked)
        assert [*speculate(pair, "hello", SAMPLED)] and not server.dead
    with fake_server(target, byte_level(VOCAB), Mortal, most=20, processed=True) as server:
        pair = remote_pair(server, draft)
        with sentences.raises(PairError):
            [*speculate(pair, "hello", SAMPLED)]
        report = examine_pair(parse_pair(f"{server.url}#target+{draft}"))
        assert report.verdict == "warning" and "the server draws" not in str(report)
        assert not server.dead


def test_a_server_that_stops_answering_leads_to_its_log(
    target: Any, draft: Path, sentences: Sentences
) -> None:
    """The server speculates without saying so."""
    with fake_server(target, byte_level(VOCAB), Mortal, most=20, counted=None) as server:
        pair = remote_pair(server, draft)
        for settings in (SAMPLED, GREEDY):
            with sentences.raises(ServerError):
                [*speculate(pair, "hello", settings)]
        assert server.dead


def test_a_key_goes_to_the_address_it_belongs_to(
    target: Any, draft: Path, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    monkeypatch.setenv("SPECVIZ_REMOTE_KEY", KEY)
    with fake_server(target, byte_level(VOCAB), key=KEY) as server:
        named = f"{server.url}#target+{draft}"
        assert load_pair(named).target is not None  # the user's own key and address
        monkeypatch.setenv("SPECVIZ_REMOTE", "http://10.0.0.1:8000/v1#big+small")
        with sentences.raises(ServerError):
            load_pair(named)
        monkeypatch.setenv("SPECVIZ_REMOTE", named)
        assert load_pair(SERVED).target is not None
    for operators in ("http://h:1/v1#m+d", "http://x/v1#m | http://h:1/v1#n"):
        monkeypatch.setenv("SPECVIZ_REMOTE", operators)
        assert server_address("http://H:1/other").key == KEY
        for other in ("https://h:1/v1", "http://h:2/v1", "http://h/v1", "http://h.x:1/v1"):
            assert server_address(other).key is None
        assert KEY not in repr(server_address("http://h:1/v1"))


def test_a_wrong_key_and_a_wrong_name(target: Any, draft: Path, sentences: Sentences) -> None:
    refused = sentences.raises(ServerError)
    with fake_server(target, byte_level(VOCAB), key=KEY) as server, refused:
        remote_pair(server, draft)
    named = sentences.raises(PairError)
    with fake_server(target, byte_level(VOCAB)) as server, named:
        load_pair(f"{server.url}#other+{draft}")


def test_the_doctor_says_what_a_server_can_do(
    target: Any, draft: Path, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    able = fake_server(target, byte_level(VOCAB), most=20, processed=True)
    with able as server, monkeypatch.context() as operator:
        operator.setenv("SPECVIZ_REMOTE", f"{server.url}#target+{draft}")
        (shown,) = ExamineTask(SERVED).run(Models(load_pair, race), Event())
        assert "where the server draws" in str(shown) and "127.0.0.1" not in str(shown)
    with fake_server(target, byte_level(VOCAB), most=20) as server:
        report = examine_pair(parse_pair(f"{server.url}#target+{draft}"))
        assert report.verdict == "warning"
        said = {finding.topic: finding.sentence for finding in report.findings}
        sentences(said["server"])
        sentences(said["distributions"])
        report = examine_pair(parse_pair(f"{server.url}#other+{draft}"))
        assert report.verdict == "stop"
        sentences(report.findings[0].sentence)


def test_the_command_line_names_a_server_apart_from_its_models(
    server: FakeServer, draft: Path, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    at = ["--target-url", server.url]
    assert main(["run", "hello", *at, "--pair", f"target+{draft}", "--max-new-tokens", "8"]) == 0
    said = capsys.readouterr().out
    assert "per request" in said and "127.0.0.1" not in said
    assert main(["doctor", "target", str(draft), *at]) == 0
    assert "vLLM 0.32.0 answers" in capsys.readouterr().out
    named = ["--target-url", f"{server.url}#target+{draft}"]
    assert main(["run", "hello", *named, "--max-new-tokens", "8"]) == 0
    capsys.readouterr()
    for wrong in (
        ["--target-url", "localhost:8000"],
        [*at, "--pair", "unknown"],
        [*at, "--pair", f"target+{draft}", "--baseline-url", server.url],
        [*at, "--pair", f"{server.url}#target+{draft}"],
    ):
        assert main(["run", "hello", *wrong]) == 2
        sentences(capsys.readouterr().err.splitlines()[-1])


def test_only_the_operator_names_a_server(
    monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    monkeypatch.setenv("SPECVIZ_ANY_MODEL", "1")
    for target, draft in (("http://10.0.0.1/v1#m", "d"), ("m", "https://10.0.0.1/v1#m+d")):
        with sentences.raises(PairError):
            chosen_pair("other", target, draft, page_pair="builtin")
    with sentences.raises(PairError):
        chosen_pair("http://10.0.0.1/v1#m+d", "", "", page_pair="builtin")
    with sentences.raises(PairError):
        chosen_pair(SERVED, "", "", page_pair="builtin")
    monkeypatch.setenv("SPECVIZ_REMOTE", "http://10.0.0.1/v1#big+small")
    assert chosen_pair(SERVED, "", "", page_pair="builtin") == SERVED
    listed = dict(pair_choices("builtin", None)[::-1])
    (label,) = [label for label, name in listed.items() if name == SERVED]
    sentences(label)
    assert "10.0.0.1" not in str(listed)
