"""What real engines answered, against what stands for them in tests and what reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import torch
from fake_completions import VERSION, FakeServer
from llama_server import LlamaServer
from record_answers import OF_LLAMA_CPP, SEVERAL, record, recorded
from toy_models import byte_level, llama

from specviz import Settings, Trace
from specviz.errors import ServerError
from specviz.remote.completions import Completions
from specviz.remote.watched.llama_server import LlamaServer as LlamaCpp
from specviz.remote.watched.stream import Engine
from specviz.remote.watched.vllm import Vllm
from specviz.remote.watched.watching import watch
from specviz.remote.wire import Server
from specviz.trace.rules import check_trace

ANSWERED_WHOLE = [
    "version",
    "models",
    "tokenize",
    "detokenize",
    "several prefixes",
    "no such model",
]

IDS = [12, 289, 310, 259, 434, 283, 259, 434, 479, 340, 472, 294]  # what all of them wrote


def shapes(value: Any, at: str = "") -> set[tuple[str, str]]:
    """The places in a JSON value and the types of what is there; a list is one place."""
    if isinstance(value, dict):
        inner = [(re.sub(r"\d+", "N", key), one) for key, one in value.items()]
        return {(at, "dict")}.union(*(shapes(one, f"{at}.{key}") for key, one in inner))
    if isinstance(value, list):
        return {(at, "list")}.union(*(shapes(one, f"{at}[]") for one in value))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {(at, "number" if number else type(value).__name__)}


@pytest.mark.parametrize("name", ANSWERED_WHOLE)
def test_the_server_of_other_tests_answers_as_vllm_did(name: str) -> None:
    real = recorded("vllm")[name]
    fake = FakeServer(llama(1400), byte_level())
    assert f"vLLM {VERSION}" == recorded("vllm")["software"]
    status, answer = fake.answer(real["path"], real["asked"] or {})
    assert status == real["status"]
    assert shapes(answer) <= shapes(real["answer"])
    if name == "several prefixes":
        theirs, ours = (
            {one["index"]: len(one["logprobs"]["top_logprobs"][0]) for one in value["choices"]}
            for value in (real["answer"], answer)
        )
        assert theirs == ours == {0: 3, 1: 3, 2: 3}


def replaying(engine: str, completion: str) -> Server:
    """A server that gives the recorded answers; `completion` names the one to a completion."""
    kept = recorded(engine)
    answers = {one["path"]: one for one in kept.values() if "path" in one}
    answers[kept[completion]["path"]] = kept[completion]

    def replay(request: httpx.Request) -> httpx.Response:
        real = answers.get(request.url.path)
        if real is None:
            return httpx.Response(404, json={})
        if b'"other"' in request.content:
            real = kept["no such model"]
        if real["asked"] and real["asked"].get("stream"):
            chunks = (one if one == "[DONE]" else json.dumps(one) for one in real["answer"])
            return httpx.Response(200, text="".join(f"data: {one}\n\n" for one in chunks))
        return httpx.Response(real["status"], json=real["answer"])

    return Server("http://127.0.0.1:1/v1", transport=httpx.MockTransport(replay))


def test_what_vllm_answered_is_read() -> None:
    server = replaying("vllm", "several prefixes")
    target = Completions(server, "target")
    rows = target.rows(SEVERAL, 3, 4096)
    choices = recorded("vllm")["several prefixes"]["answer"]["choices"]
    best = [choice["logprobs"]["tokens"][0] for choice in choices]
    assert [f"token_id:{i}" for i in rows.argmax(-1).tolist()] == best
    assert torch.isfinite(rows).sum(-1).tolist() == [3, 3, 3]
    assert target.tokenize("Once upon") == SEVERAL[0] and target.detokenize([1])[:4] == "Once"
    with pytest.raises(ServerError, match="The model `other` does not exist"):
        Completions(server, "other").rows(SEVERAL, 3, 4096)


@pytest.mark.parametrize("kind", ["", " with speculation"])
@pytest.mark.parametrize("software", ["vllm", "llama.cpp"])
def test_a_recorded_stream_is_watched_step_by_step(software: str, kind: str) -> None:
    server = replaying(software, f"streamed{kind}")
    if software == "vllm":
        engine: Engine = Vllm(server, "target", 1024)
        told = [(0, 0), (5, 0), (5, 5), (5, 3)] if kind else None
    else:
        engine = LlamaCpp(server, "target", {})
        told = [(0, 0), (5, 0), (5, 5), (3, 3)] if kind else [(0, 0)] * 12
    settings = Settings(max_new_tokens=12)
    trace = Trace.from_events(watch(engine, None, SEVERAL[-1], settings))
    check_trace(trace)
    ids = [token.id for r in trace.rounds for token in r.emitted]
    assert len(ids) == 12 and ids == IDS
    if told is not None:
        kept = [sum(t.outcome == "accepted" for t in r.drafted) for r in trace.rounds]
        assert [(len(r.drafted), n) for r, n in zip(trace.rounds, kept, strict=True)] == told


def test_llama_cpp_still_answers_as_it_did(llama_cpp: Callable[..., LlamaServer]) -> None:
    kept = recorded("llama.cpp")
    for draft, suffix in ((False, ""), (True, " with speculation")):
        asked = OF_LLAMA_CPP if not draft else {"streamed": OF_LLAMA_CPP["streamed"]}
        now = json.loads(json.dumps(record(llama_cpp(draft=draft).url, asked)))
        for name, one in now.items():
            assert shapes(one) == shapes(kept[name + suffix]), name
