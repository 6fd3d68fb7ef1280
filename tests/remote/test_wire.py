"""Answers of servers are read by the rules of their format, wherever the server is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import httpx
import orjson
import pytest
from fake_completions import FakeServer
from sentences import Sentences
from toy_models import byte_level, llama

from specviz import Settings
from specviz.base.errors import ServerError
from specviz.remote import wire
from specviz.remote.event_stream import event_data, lines_in
from specviz.remote.identity import LLAMA_CPP, VLLM, counters, identity_of
from specviz.remote.wire import Server
from specviz.sides.served.adapters import Completions, LlamaTarget
from specviz.sides.watched.engines import LlamaEngine, LlamaReader, VllmEngine

SEPARATORS = "a\u2028b\u2029c\x85d\x0ce\x0bf\x1cg\x1dh\x1ei"
"""Characters that end a line for `str.splitlines`, but not in a stream."""

TEXTS = ["plain", SEPARATORS, "\u2028", "«Привет»\x85", ""]

Body = dict[str, Any] | None


def server_of(answer: Callable[[str, Body], Any], path: str = "/v1") -> Server:
    """A server at a path. answer: (path, body) -> the bytes of a stream, or a value; it raises
    `KeyError` for unknown requests."""

    def handle(request: httpx.Request) -> httpx.Response:
        body = orjson.loads(request.content) if request.content else None
        try:
            value = answer(request.url.raw_path.decode(), body)
        except KeyError:
            return httpx.Response(404, json={"error": {"message": "File Not Found"}})
        except ValueError as error:
            return httpx.Response(400, json={"error": {"message": str(error)}})
        return httpx.Response(
            200, content=value if isinstance(value, bytes) else orjson.dumps(value)
        )

    return Server(f"http://here{path}", httpx.MockTransport(handle))


def streamed(raw: bytes) -> list[dict[str, Any]]:
    """The chunks of a stream with these bytes."""
    server = server_of(lambda path, body: raw)
    return [chunk for _, chunk in server.stream("completions", {})]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_text_of_any_characters_arrives_whole(end: str, mark: str):
    """A line ends with a line feed, a carriage return or both, and with no other character."""
    chunks = [{"text": text} for text in TEXTS]
    lines = []
    for chunk in chunks:
        lines += [": a comment", "event: token", f"data: {orjson.dumps(chunk).decode()}", ""]
    lines += ["data:[DONE]", ""]
    raw = (mark + "".join(line + end for line in lines)).encode()
    assert streamed(raw) == chunks


def test_the_data_of_an_event_are_all_of_its_lines():
    value = {"text": "a", "choices": [1, 2]}
    pretty = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    for end in ("\n", "\r\n", "\r"):
        event = "".join(f"data: {line}{end}" for line in pretty.split("\n"))
        assert streamed((event + end + event).encode()) == [value, value], "the last has no end"
    assert streamed(b"id: 3\nretry: 10\ndata\n\ndata:\n\n") == [], "nothing is said"


def test_lines_are_the_same_however_a_stream_is_cut():
    raw = f"\ufeffdata: {SEPARATORS}\r\n\r\ndata: é\rdata: x\n\ndata: end".encode()
    whole = list(lines_in([raw], len(raw)))
    assert whole[0] == f"data: {SEPARATORS}".encode()
    assert list(event_data(whole)) == [SEPARATORS.encode(), "é\nx".encode(), b"end"]
    for cut in range(len(raw) + 1):
        assert list(lines_in([raw[:cut], raw[cut:]], len(raw))) == whole
    pieces = [raw[begin:end] for begin, end in pairwise(range(len(raw) + 1))]
    assert list(lines_in(pieces, len(raw))) == whole


def test_a_line_is_told_as_soon_as_it_has_ended():
    """Each chunk has its own time: a line that ends with a carriage return does not wait for more
    bytes."""

    def pieces() -> Iterator[bytes]:
        for piece in (b"data: 1\r", b"\n\r", b"\ndata: 2\n\n"):
            yield piece
            read.append(piece)

    read: list[bytes] = []
    data = event_data(lines_in(pieces(), 99))
    assert next(data) == b"1" and len(read) == 1
    assert next(data) == b"2" and len(read) == 2


def test_a_line_without_an_end_is_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch, sentences: Sentences
):
    monkeypatch.setattr(wire, "MAX_BYTES", 1000)
    with sentences.raises(ServerError):
        streamed(b"data: " + b"x" * 2000)


@pytest.mark.parametrize("nothing", [None, "", {}, False])
def test_an_error_that_is_none_ends_no_stream(nothing: Any, sentences: Sentences):
    chunks = [{"text": "a", "error": nothing}]
    assert streamed(b"data: " + orjson.dumps(chunks[0]) + b"\n\n") == chunks
    for error in ("it broke", {"message": "it broke"}):
        with sentences.raises(ServerError):
            streamed(b"data: " + orjson.dumps({"error": error}) + b"\n\n")


def test_an_answer_may_begin_with_a_mark_of_the_byte_order():
    server = server_of(lambda path, body: b"\xef\xbb\xbf" + orjson.dumps({"data": []}))
    assert server.ask("models") == {"data": []}


@pytest.mark.parametrize(
    ("path", "prefix"), [("/v1", ""), ("/v1/", ""), ("/llm/v1", "/llm"), ("/a/b/v1/", "/a/b")]
)
def test_all_addresses_of_a_server_lie_below_its_path(path: str, prefix: str):
    """The server is llama.cpp's with `--api-prefix`, or is behind a reverse proxy."""
    fake = FakeServer(llama(300), byte_level(300), counted=3)
    asked = set()

    def answer(whole: str, body: Body) -> Any:
        assert whole.startswith(f"{prefix}/")
        asked.add(whole.removeprefix(prefix))
        status, value = fake.answer(whole.removeprefix(prefix), body or {})
        assert status == httpx.codes.OK
        return value

    server = server_of(answer, path)
    identity = identity_of(server, "target")
    assert identity.engine == VLLM and identity.counted is not None
    assert Completions(server, "target").tokenize("hi") == fake.tokenizer("hi")["input_ids"]
    assert VllmEngine(server, "target", identity).texts
    assert asked == {"/v1/models", "/version", "/metrics", "/tokenize", "/detokenize"}


def test_a_path_without_a_version_is_a_prefix_too():
    server = server_of(lambda whole, body: {"at": whole}, "/llm")
    assert server.ask("models") == {"at": "/llm/models"}
    assert server.ask("/tokenize", {}) == {"at": "/llm/tokenize"}


def test_what_a_proxy_keeps_back_is_named(sentences: Sentences):
    """The address is correct, so the sentence does not blame it."""

    def only_the_interface(path: str, body: Body) -> Any:
        return {"/llm/v1/models": {"data": [{"id": "target"}]}}[path]

    server = server_of(only_the_interface, "/llm/v1")
    with sentences.raises(ServerError):
        Completions(server, "target").tokenize("hi")


class Router:
    """Imitate llama.cpp's server in front of several models, where each request names a model."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, path: str, body: Body) -> Any:
        self.asked.append(path)
        if body is not None and body.get("model") != "second":
            raise ValueError("model name is missing from the request")
        if path == "/metrics":
            raise ValueError("model name is missing from the request")
        names = ("drafts", "draft_tokens", "accepted_tokens")
        metrics = "".join(f"llamacpp:spec_decode_num_{name}_total 4\n" for name in names)
        models = [{"id": name, "owned_by": "llamacpp", "status": {"value": "unloaded"}}
                  for name in ("first", "second")]  # fmt: skip
        chunk = {"content": "x", "tokens": [3], "tokens_predicted": 1, "stop": True}
        step = {
            "index": 0,
            "completion_probabilities": [{"top_logprobs": [{"id": 1, "logprob": 0}]}],
        }
        return {
            "/v1/models": {"data": models},
            "/props": {"role": "router", "build_info": "b1-router"},
            "/props?model=second": {
                "build_info": "b7400", "default_generation_settings": {"n_ctx": 4096},
            },
            "/metrics?model=second": metrics.encode(),
            "/tokenize": {"tokens": [1, 2]},
            "/detokenize": {"content": "ab"},
            "/completion": b"data: " + orjson.dumps(chunk) + b"\n\n" if body and body.get("stream")
            else [step, step | {"index": 1}],
        }[path]  # fmt: skip


def test_each_question_to_a_router_names_its_model():
    router = Router()
    server = server_of(router)
    identity = identity_of(server, "second")
    assert identity.engine == LLAMA_CPP and identity.software == "llama.cpp b7400"
    assert identity.context == 4096
    assert counters(server, "second") == {"steps": 4, "drafted": 4, "accepted": 4}
    target = LlamaTarget(server, "second")
    assert target.tokenize("hi") == [1, 2] and target.detokenize([1, 2]) == "ab"
    assert target.lists(vocab=5, wanted=1) == 1
    assert target.streaming_rate([1], 1) > 0
    engine = LlamaEngine(server, "second", identity)
    settings = Settings(max_new_tokens=1)
    reader = LlamaReader(engine, settings)
    for at, chunk in server.stream(engine.path, engine.question("hi", settings)):
        reader.read(chunk, at)
    assert reader.ended is not None
