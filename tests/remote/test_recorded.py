"""Compare recorded answers of real engines with the fakes of the tests, and read them with our
code."""

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
from sentences import Sentences
from toy_models import byte_level, llama

from specviz.base.errors import ServerError
from specviz.remote.wire import Server
from specviz.sides.served.adapters import Completions

ANSWERED_WHOLE = [
    "version",
    "models",
    "tokenize",
    "detokenize",
    "several prefixes",
    "no such model",
]


def shapes(value: Any, at: str = "") -> set[tuple[str, str]]:
    """The paths in a JSON value, each with the type of its value; all items of a list share one
    path."""
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


def replaying() -> Server:
    """A server that replays vLLM's recorded answers."""
    kept = recorded("vllm")
    answers = {one["path"]: one for one in kept.values() if "path" in one}
    answers["/v1/completions"] = kept["several prefixes"]

    def replay(request: httpx.Request) -> httpx.Response:
        missing = b'"other"' in request.content
        real = kept["no such model"] if missing else answers[request.url.path]
        return httpx.Response(real["status"], json=real["answer"])

    return Server("http://127.0.0.1:1/v1", transport=httpx.MockTransport(replay))


def test_what_vllm_answered_is_read(sentences: Sentences) -> None:
    server = replaying()
    target = Completions(server, "target")
    rows = target.logprobs(SEVERAL, 3, 4096)
    choices = recorded("vllm")["several prefixes"]["answer"]["choices"]
    best = [choice["logprobs"]["tokens"][0] for choice in choices]
    assert [f"token_id:{i}" for i in rows.argmax(-1).tolist()] == best
    assert torch.isfinite(rows).sum(-1).tolist() == [3, 3, 3]
    assert target.tokenize("Once upon") == SEVERAL[0] and target.detokenize([1])[:4] == "Once"
    with sentences.raises(ServerError):
        Completions(server, "other").logprobs(SEVERAL, 3, 4096)


def test_llama_cpp_still_answers_as_it_did(llama_cpp: Callable[..., LlamaServer]) -> None:
    kept = recorded("llama.cpp")
    for draft, suffix in ((False, ""), (True, " with speculation")):
        asked = OF_LLAMA_CPP if not draft else {"streamed": OF_LLAMA_CPP["streamed"]}
        now = json.loads(json.dumps(record(llama_cpp(draft=draft).url, asked)))
        for name, one in now.items():
            assert shapes(one) == shapes(kept[name + suffix]), name
