"""The comparison with servers: their answers, and where their texts diverge from the lanes'."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from sentences import Sentences
from toy_models import byte_level, llama, pair_of, relative

from specviz import Pair, Settings, baseline
from specviz.__main__ import main
from specviz.base.errors import PairError, ServerError
from specviz.core.engine_choice import eager_only
from specviz.measure.bench import servers
from specviz.measure.bench.servers import compare_with_servers, parts_at
from specviz.measure.samples import SPECVIZ, Comparison, Variant
from specviz.remote.wire import Server
from specviz.sides.watched import watching as watched_pair

COUNT = 8
SETTINGS = Settings(max_new_tokens=COUNT, gamma=4, ignore_eos=True)
ALONE = "http://a.test/v1"
SPECULATING = "http://b.test/v1#mine"


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(300, initializer_range=0.1)
    return pair_of(target, relative(target, noise=0.1), tokenizer=byte_level())


def engine(written: list[str], asked: list[dict[str, Any]]) -> Callable[..., httpx.Response]:
    """Answer like vLLM at a.test and like llama.cpp at b.test, whose third token is different."""

    def answer(request: httpx.Request) -> httpx.Response:
        is_vllm = request.url.host == "a.test"
        path = request.url.path
        if path == "/version" and is_vllm:
            return httpx.Response(200, json={"version": "0.32.0"})
        if path == "/props" and not is_vllm:
            return httpx.Response(200, json={"build_info": "b9"})
        if path == "/v1/models":
            entry = {"id": "target"} if is_vllm else {"id": "mine", "owned_by": "llamacpp"}
            return httpx.Response(200, json={"data": [entry]})
        if path != "/v1/completions":
            return httpx.Response(404)
        body = json.loads(request.content)
        asked.append({"host": request.url.host, **body})
        if not body.get("stream"):
            return httpx.Response(200, json={"choices": [{"text": ""}]})
        own = written if is_vllm else [*written[:2], "?", *written[3:]]
        chunks: list[dict[str, Any]] = [{"choices": [{"text": one}]} for one in own[1:]]
        chunks.insert(0, {"choices": [{"text": own[0], "token_ids": [1]}]})
        chunks.append({"choices": [], "usage": {"completion_tokens": len(own)}})
        if not is_vllm:
            chunks[-2]["timings"] = {"predicted_n": COUNT, "predicted_ms": 70.0}
        return httpx.Response(200, text="".join(f"data: {json.dumps(one)}\n\n" for one in chunks))

    return answer


def test_servers_take_turns_and_their_texts_are_compared(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    monkeypatch.setattr(servers, "thread_counts", lambda: [1])
    asked: list[dict[str, Any]] = []
    with eager_only():
        rounds = list(baseline(pair, "the cat", SETTINGS))
        written = [token.text for r in rounds for token in r.emitted]
        transport = httpx.MockTransport(engine(written, asked))
        for module in (servers, watched_pair):
            monkeypatch.setattr(module, "Server", lambda where: Server(where, transport))
        compared = compare_with_servers([ALONE], [SPECULATING], pair, ["the cat"], SETTINGS, 2)
    found = compared.to_dict()
    rows = {row["who"]: row for row in found["rows"]}
    llama_cpp = "llama.cpp b9 at b.test"
    assert rows[f"{llama_cpp}, by its own clock"]["median"] == pytest.approx(100.0)
    assert rows[f"{llama_cpp}, by its own clock"]["lane"] == "speculative"
    assert rows["vLLM 0.32.0 at a.test, streamed"]["lane"] == "baseline"
    assert found["same_texts"] == {"vLLM 0.32.0 at a.test": 1, llama_cpp: 0}
    assert found["parted"][llama_cpp] == [2]
    sentences("\n".join(line for line in compared.lines() if " wrote " in line))
    assert [one["model"] for one in asked] == 3 * [*3 * ["target"], *3 * ["mine"]]  # one warm-up
    assert {tuple(one["prompt"]) for one in asked} == {tuple(pair.encode("the cat"))}
    assert all(one["temperature"] == 0.0 and one["ignore_eos"] for one in asked)

    written.pop()
    with sentences.raises(ServerError), eager_only():
        compare_with_servers([ALONE], [], pair, ["the cat"], SETTINGS, 1)


def test_a_ratio_compares_samples_of_the_same_turn() -> None:
    lane = Variant(SPECVIZ, "baseline", 1)
    server = Variant("vLLM, streamed", "baseline", 1)
    comparison = Comparison({lane: [100.0, 10.0, 30.0], server: [50.0, 5.0, 10.0]})
    assert comparison.ratio(lane, server).median == 2.0
    assert comparison.best([server, lane]) == lane


def test_where_texts_part() -> None:
    assert parts_at(["a", "b", "c"], "abc and more") is None
    assert parts_at(["a", "bc", "d"], "abd") == 1
    assert parts_at(["a", "b"], "a") == 1


def test_what_cannot_be_compared_is_one_sentence(
    pair: Pair, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    alone = replace(SETTINGS, drafter="none")
    with sentences.raises(PairError):
        compare_with_servers([ALONE], [], pair_of(pair.target), ["the cat"], alone, 1)
    assert main(["bench", "--server-speculating", SPECULATING]) == 2
    sentences(capsys.readouterr().err.splitlines()[-1])
