"""Access of strangers: addresses, bodies, errors, the password, the log."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import http.client
import json
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from forked_process import run_forked
from page_server import Answer, Site, served, toy_pair
from places import ROOT
from waiting import until

from specviz.base.environment import ASSETS
from specviz.base.errors import SettingsError
from specviz.base.logs import HIDDEN, DiscreetFormatter
from specviz.core.race import race
from specviz.page import server
from specviz.page.files import FileReader
from specviz.page.public import PAGE_AT, kept_at, public_files
from specviz.page.queue import RunQueue
from specviz.page.security import connections, password, requests
from specviz.page.security.answers import LOST, security_headers
from specviz.page.security.password import WRONG
from specviz.page.security.requests import (
    EVENTS,
    MAX_STRINGS,
    QUESTION,
    QUESTIONS,
    SMALL,
    Bodies,
    Refused,
    check,
)
from specviz.page.server import Page
from specviz.runs.html import PAGE, PLOTLY
from specviz.runs.recording import MAX_PROMPTS, MAX_UNPACKED
from specviz.worker.local import LocalWorker

T = TypeVar("T")
SECRET = "hf_" + "Secret" * 5
HERE = re.escape(str(ROOT)).encode()
INSIDES = re.compile(rb"Traceback|File \"|" + HERE + rb"|/usr/|site-packages|\.py\b|Error\(")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served() as site:
        yield site


def is_sentence(answer: Any) -> bool:
    """Check whether an answer is one sentence that reveals no internals."""
    said = answer.json["detail"]
    return said[0].isupper() and said.endswith(".") and not INSIDES.search(answer.body)


OUTSIDE = [
    "/gradio_api/file=/etc/passwd",
    "/gradio_api/file=etc/passwd",
    "/gradio_api/file=../../../../../../etc/passwd",
    "/gradio_api/file=file:///etc/passwd",
    "/gradio_api/file=http://127.0.0.1:9/x",
    "/gradio_api/file=https://example.com/",
    "/gradio_api/file=%2e%2e/%2e%2e/etc/passwd",
    "/gradio_api/file=/etc/passwd%00.svg",
    "/gradio_api/file=//etc/passwd",
    "/gradio_api/file=",
    "/gradio_api/file/etc/passwd",
    "/file=/etc/passwd",
    f"/gradio_api/file={PAGE}/player.js",
    f"/gradio_api/file={PAGE}/../../app.py",
    f"/gradio_api/file={PAGE}/..%2f..%2fapp.py",
    f"/gradio_api/file={PAGE}",
    f"/gradio_api/file={PLOTLY.parent}/datasets/gapminder.csv.gz",
    f"/gradio_api/file={ASSETS}/pair/target/config.json",
    f"/gradio_api/file={ROOT}/app.py",
    f"/gradio_api/file={ROOT}/.git/config",
    "/gradio_api/proxy=http://127.0.0.1:9/",
    "/gradio_api/proxy=https://huggingface.co/",
    "/gradio_api/custom_component/x/client/component/../../../../etc/passwd",
    "/gradio_api/stream/a/b/c/playlist.m3u8",
    "/gradio_api/upload_progress?upload_id=x",
    "/gradio_api/deep_link?session_hash=x",
    "/gradio_api/vibe-code",
    "/gradio_api/dev/reload",
    "/gradio_api/runs",
    "/gradio_api/profiling/traces",
    "/page/",
    "/page/../../app.py",
    "/page/..%2f..%2fapp.py",
    "/page/%2e%2e/%2e%2e/app.py",
    "/page//etc/passwd",
    "/page/index.html",
    "/page/types.d.ts",
    "/page/fonts/LICENSE",
    "/page/nothing.js",
    "/recordings/",
    "/recordings/../page/player.js",
    "/recordings/nothing.json.gz",
    "/ask/missed",
    "/ask/",
    "/static/../../../../etc/passwd",
    "/static/fonts/SourceSansPro/SourceSansPro-Regular.woff2",
    "/static/..%2f..%2f..%2froutes.py",
    "/static/%2e%2e/index.html",
    "/assets/../../../routes.py",
    "/assets/..%2findex.html",
    "/assets/....//....//routes.py",
    "/svelte/../../x",
    "/theme.css",
    "/manifest.json",
    "/gradio_api/theme.css",
    "/gradio_api/component_server",
    "/monitoring",
    "/monitoring/summary",
    "/docs",
    "/redoc",
    "/openapi.json",
    "/pwa_icon/99999",
    "/.env",
    "/app.py",
    "//etc/passwd",
    "/..",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_else_is_served(site: Site, path: str) -> None:
    answer = site.get(path)
    assert answer.status in (400, 404), path
    assert is_sentence(answer)


UPLOADS = ["upload", "process_recording", "vibe-edit", "vibe-code", "proxy=x", "stream/x"]
STARTS = [
    "run/run",
    "api/run",
    "call/start",
    "call/run",
    "call/v2/run",
    "file=/etc/x",
    "component_server",
]


@pytest.mark.parametrize("path", [*UPLOADS, *STARTS])
def test_nothing_else_can_be_posted_to(site: Site, path: str) -> None:
    answer = site.post(f"/gradio_api/{path}", {"data": []})
    assert answer.status == 404 and is_sentence(answer)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"])
def test_other_methods_are_refused(site: Site, method: str) -> None:
    assert site.ask(method, "/").status == 404


def test_files_are_public_one_folder_at_a_time(site: Site, tmp_path: Path) -> None:
    assert site.get("/page/player.js").body == (PAGE / "player.js").read_bytes()
    assert site.get("/page/plotly.min.js").body == PLOTLY.read_bytes()
    (tmp_path / "seen.json.gz").write_bytes(b"x")
    (tmp_path / "other.txt").write_bytes(b"x")
    (tmp_path / ".hidden.json.gz").write_bytes(b"x")
    (tmp_path / "link.json.gz").symlink_to(ASSETS.parent / "app.py")
    found = {name for name in public_files(tmp_path) if name.startswith("recordings/")}
    assert found == {"recordings/seen.json.gz"}
    later = PAGE / "file-that-came-later.js"
    later.write_text("x")
    try:
        assert site.get(f"/page/{later.name}").status == 404
    finally:
        later.unlink()


def test_what_lies_in_the_cache_of_gradio_is_not_handed_out(site: Site) -> None:
    from gradio.utils import get_upload_folder

    folder = Path(get_upload_folder())
    folder.mkdir(parents=True, exist_ok=True)
    secret = folder / "somebody-elses.txt"
    secret.write_text("private")
    try:
        assert site.get(f"/gradio_api/file={secret}").status == 404
    finally:
        secret.unlink()


@pytest.mark.parametrize(
    "path", ["/", "/config", "/nowhere", "/page/player.js", "/gradio_api/info", "/api"]
)
def test_every_answer_tells_the_browser_what_may_run(site: Site, path: str) -> None:
    headers = site.get(path).headers
    policy = headers["content-security-policy"]
    script = re.search(r"script-src ([^;]*)", policy)
    assert script and "unsafe" not in policy and "http" not in script[1]
    assert "*" not in policy
    assert policy.endswith("frame-ancestors 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


def test_inline_scripts_run_by_their_hashes_and_there_are_no_others(site: Site) -> None:
    page = site.get("/")
    policy = page.headers["content-security-policy"]
    bodies = re.findall(rb"<script([^>]*)>(.*?)</script>", page.body, re.DOTALL)
    inline = [text for kind, text in bodies if b"src=" not in kind and b"/json" not in kind]
    assert len(inline) == 2, "the import map, and the theme before anything is painted"
    for_changed_files = inline[0].replace(kept_at().encode(), PAGE_AT.encode())
    texts = [*inline, for_changed_files]
    marks = {base64.b64encode(hashlib.sha256(text).digest()).decode() for text in texts}
    assert len(marks) == 3
    assert set(re.findall(r"'sha256-([^']+)'", policy.split("style-src")[0])) == marks
    assert not re.search(rb"<[^>]*\s(on\w+|style)=", page.body.split(b'id="offer"')[0])


def test_no_other_host_is_asked_also_on_a_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_ID", "somebody/specviz")
    assert "http" not in security_headers()["content-security-policy"]


def raw_answer(site: Site, head: str, chunks: Iterator[bytes] | None = None) -> tuple[bytes, int]:
    """Send a raw request; return the server's answer and the bytes sent before it."""
    with socket.create_connection((site.host, site.port), timeout=60) as plug:
        plug.sendall(head.encode())
        sent = 0
        plug.setblocking(False)
        for chunk in chunks or iter(()):
            try:
                if plug.recv(1, socket.MSG_PEEK):
                    break
            except BlockingIOError:
                pass
            plug.setblocking(True)
            try:
                plug.sendall(chunk)
            except OSError:
                break
            sent += len(chunk)
            plug.setblocking(False)
        plug.setblocking(True)
        return plug.recv(65536), sent


def head(path: str, *lines: str) -> str:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *lines, "", ""])


@pytest.mark.parametrize(
    "path",
    [
        "/ask/missed",
        "/run",
        *(f"/gradio_api/{one}" for one in ("queue/join", "call/generate", "call/v2/race")),
        *(f"/gradio_api/{one}" for one in ("cancel", "reset")),
    ],
)
def test_a_vast_body_is_refused_before_it_is_sent(site: Site, path: str) -> None:
    lines = ("Content-Type: application/json", f"Content-Length: {50 * 2**20}")
    answer, sent = raw_answer(site, head(path, *lines))
    assert answer.startswith(b"HTTP/1.1 413") and sent == 0


@pytest.mark.parametrize(
    ("path", "most"), [("/gradio_api/queue/join", SMALL), ("/ask/missed", QUESTION)]
)
def test_a_body_of_unknown_length_is_cut_off(site: Site, path: str, most: int) -> None:
    piece = b"x" * 2**16
    chunks = (b"%x\r\n%s\r\n" % (len(piece), piece) for _ in range(50 * 16))
    lines = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    answer, sent = raw_answer(site, head(path, *lines), chunks)
    assert answer.startswith(b"HTTP/1.1 413")
    assert sent < most + 16 * 2**20  # the buffers of the sockets are not ours


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in another thread: this one may have the loop of a browser that other tests
    started."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@pytest.mark.parametrize(
    "promised", ["-1", "9" * 400, "0x10", "1e9", "abc"], ids=lambda text: text[:5]
)
def test_nonsense_lengths_are_refused(promised: str) -> None:
    async def read() -> None:
        async with Bodies().read(_feed([b"{}"]), SMALL, promised, ""):
            pass

    with pytest.raises(Refused):
        run_apart(read())


def half_heads(site: Site, many: int, pieces: list[bytes], pause: float) -> list[socket.socket]:
    """Open connections that each send only the beginning of a head, one piece at a time."""
    plugs = [socket.create_connection((site.host, site.port), timeout=30) for _ in range(many)]
    for piece in pieces:
        for plug in plugs:
            with contextlib.suppress(OSError):
                plug.sendall(piece)
        time.sleep(pause)
    return plugs


def is_closed(plug: socket.socket) -> bool:
    plug.settimeout(0.0)
    try:
        return plug.recv(65536) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


WHOLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("before", "pieces"),
    [
        (b"", []),
        (b"", [b"GET / HT"]),
        (b"", [b"GET / HTTP/1.1\r\nHost: localhost\r\n", *[b"x-a: b\r\n"] * 8]),
        (
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
            [b"GET / HTTP/1.1\r\n", *[b"x-a: b\r\n"] * 8],
        ),
    ],
    ids=["nothing", "half a line", "drop by drop", "after another request"],
)
def test_half_a_head_is_not_waited_for(
    site: Site, before: bytes, pieces: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_PATIENCE", 0.4)
    plugs = half_heads(site, 25, [before] if before else [], 0.3)
    for plug in plugs if before else []:
        assert plug.recv(65536).startswith(b"HTTP/1.1 200")
    for piece in pieces:
        for plug in plugs:
            with contextlib.suppress(OSError):
                plug.sendall(piece)
        time.sleep(0.1)
    assert until(lambda: all(map(is_closed, plugs)))
    assert site.get("/healthz").status == 200


def test_a_whole_head_is_waited_for_no_longer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit applies to the head alone: an answer or a kept connection may take longer."""
    monkeypatch.setattr(connections, "HEAD_PATIENCE", 0.4)
    connection = http.client.HTTPConnection(site.host, site.port, timeout=30)
    for _ in range(3):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"alive\n"
        time.sleep(0.6)
    connection.close()


def _feed(parts: list[bytes], pause: float = 0.0) -> Any:
    left = list(parts)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause)
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return receive


def test_a_few_large_bodies_at_a_time() -> None:
    async def all_at_once() -> list[Any]:
        together = Bodies()

        async def one(client: str) -> Any:
            parts = [b"x" * SMALL, b"x", b"x"]
            async with together.read(_feed(parts, 0.01), MAX_UNPACKED, None, client) as raw:
                return len(raw)

        clients = ["one"] * 5 + ["two", "three", "four"]
        first = await asyncio.gather(*map(one, clients), return_exceptions=True)
        return [*first, await one("one")]

    *first, later = run_apart(all_at_once())
    statuses = [getattr(one, "status", 200) for one in first]
    # One client gets only a share of the slots; the rest is left for others.
    assert statuses == [200] * requests.LARGE_OF_CLIENT + [429] * 3 + [200] * 2 + [503]
    assert statuses.count(200) == requests.LARGE_AT_ONCE and later == SMALL + 2


@pytest.mark.parametrize(
    ("limit", "value"), [("BODY_PATIENCE", 0.05), ("SILENCE", 0.01), ("SLOWEST", 1000)]
)
def test_a_body_that_dawdles_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    """The limits are a total time, a time between two parts, and an average rate."""
    for name, other in (("BODY_PATIENCE", 9.0), ("SILENCE", 0.1), ("SLOWEST", 1.0), (limit, value)):
        monkeypatch.setattr(requests, name, other)

    async def read() -> None:
        async with Bodies().read(_feed([b"x"] * 50, 0.02), SMALL, None, ""):
            pass

    with pytest.raises(Refused) as refused:
        run_apart(read())
    assert refused.value.status == 408


ASKED = b'{"asked":%s}'


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 5_000_000,
        b'{"a":' * 1_000_000,
        b"[" + b"{}," * 3_000_000 + b"{}]",
        b'{"a":[' + b'"",' * 3_000_000 + b'""]}',
        b'{"a":"' + b'\\"' * 6_000_000,
        b"1" * 9_000_000,
    ],
    ids=["deep", "deep objects", "wide", "many strings", "endless string", "long number"],
)
def test_what_would_cost_a_parser_dear_is_seen_without_parsing(data: bytes) -> None:
    began = time.process_time()
    with pytest.raises(Refused):
        check(ASKED.replace(b"%s", data), QUESTIONS)
    assert time.process_time() - began < 1.0


def test_as_many_prompts_as_a_sweep_takes_get_through() -> None:
    prompts = [["kind", 'say "no"\n' * 500] for _ in range(MAX_PROMPTS)]
    asked = {"prompts": prompts, "gammas": list(range(1, 17)), "kinds": ["prose"]}
    check(ASKED.replace(b"%s", json.dumps(asked).encode()), QUESTIONS)


@pytest.mark.parametrize(
    "form", ["trace", "html", "embed", "tokens", "rounds", "prompts", "prompts-csv"]
)
def test_files_have_an_address_of_their_own(site: Site, form: str) -> None:
    """No other request may be as large, and files are not parsed where visitors wait."""
    path = f"/files/{form}"
    head_of = ("Content-Type: application/octet-stream", f"Content-Length: {50 * 2**20}")
    answer, sent = raw_answer(site, head(path, *head_of))
    assert answer.startswith(b"HTTP/1.1 413") and sent == 0
    for kind in ("text/plain", "application/json", "multipart/form-data", ""):
        refused = site.post(path, b"{}", {"Content-Type": kind})
        assert refused.status == 400 and is_sentence(refused)
    assert site.file(form, b"{").json["error"].endswith(".")
    assert site.file(f"{form}x", b"{}").status == site.get(path).status == 404


FILE = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}


@pytest.mark.parametrize(
    "body",
    [
        {"data": [FILE]},
        {"data": [[FILE]]},
        {"data": [{"url": "http://127.0.0.1/"}]},
        {"data": {"prompt": FILE}},
        {"data": [], "session_hash": "x" * 65},
        {"data": [], "session_hash": "../../x"},
        {"data": [], "session_hash": ["x"]},
        {"data": [], "session_hash": "x", "event_id": {"a": 1}},
        {"data": [], "batched": True},
        {"data": [], "fn_index": "0"},
        [],
        "text",
        None,
    ],
)
def test_events_hold_plain_values(site: Site, body: Any) -> None:
    with pytest.raises(Refused):
        check(json.dumps(body).encode(), EVENTS)
    for path in ("queue/join", "call/generate"):
        answer = site.post(f"/gradio_api/{path}", json.dumps(body).encode())
        assert answer.status == 400 and is_sentence(answer)
    answer = site.post("/gradio_api/call/v2/generate", {"prompt": FILE})
    assert answer.status == 400 and is_sentence(answer)


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""],
)
def test_a_form_of_another_site_reaches_nothing(site: Site, kind: str) -> None:
    body = json.dumps({"data": [], "session_hash": "s"})
    api = (f"/gradio_api/{one}" for one in ("queue/join", "cancel", "call/generate"))
    for path in ("/run", "/ask/missed", "/ask/stop", *api):
        answer = site.post(path, body.encode(), {"Content-Type": kind})
        assert answer.status == 400 and is_sentence(answer)


def test_no_other_site_may_read_answers(site: Site) -> None:
    headers = site.get("/config", {"Origin": "https://evil.example", "Host": "localhost"}).headers
    assert "access-control-allow-origin" not in headers


def broken(*_: Any) -> Any:
    raise RuntimeError(f"cannot open /home/somebody/weights.bin with {os.environ.get('HF_TOKEN')}")


def test_failures_show_nothing_of_the_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileReader, "_read_in_process", broken)
    with served(race=broken, doctor=type("Broken", (), {"run": broken, "close": broken})()) as site:
        for endpoint, data in (("generate", _values("the cat")), ("doctor", ["builtin"])):
            kind, said = site.events(endpoint, {"data": data})[-1]
            assert kind == "error" and said["error"].endswith(".")
            assert not INSIDES.search(json.dumps(said).encode()) and "somebody" not in str(said)
        answer = site.file("trace", b"x")
        assert answer.status == 200 and answer.json["error"].endswith(".")
        assert b"somebody" not in answer.body

        asked = {"data": [], "fn_index": 10**6, "session_hash": "s"}
        answer = site.post("/gradio_api/queue/join", asked)
        assert answer.status >= 400 and is_sentence(answer)


def _values(prompt: str) -> list[Any]:
    return [prompt, "builtin", 5, 0.7, 0, 1.0, 8, 1, "model", "fixed", "auto", None, None, "token"]


def test_a_request_that_breaks_gradio_is_a_sentence(site: Site) -> None:
    for path in ("/gradio_api/call/v2/doctor", "/gradio_api/queue/join"):
        answer = site.post(path, {"data": {}, "fn_index": 10**9, "session_hash": "x"})
        assert answer.status >= 400 and is_sentence(answer)
    answer = site.post("/gradio_api/call/v2/generate", {"no_such": 1})
    assert answer.status >= 400 and is_sentence(answer)


@pytest.mark.parametrize("asked", ["bytes=0-1,3-4", "bytes=-5", "bytes=x", "lines=1"])
def test_a_range_that_is_not_understood_is_ignored(site: Site, asked: str) -> None:
    path = "/page/player.js"
    whole = site.get(path)
    assert site.get(path, {"Range": "bytes=0-4"}).body == whole.body[:5]
    answer = site.get(path, {"Range": asked})
    assert (answer.status, answer.body) == (200, whole.body)


def test_results_that_are_gone_are_a_whole_answer(site: Site) -> None:
    page = site.get("/gradio_api/queue/data?session_hash=nobody").body.decode()
    said, end = (json.loads(one.removeprefix("data: ")) for one in page.split("\n\n")[:2])
    assert end["msg"] == "close_stream"  # otherwise the page would never open another stream
    assert said["message"] == LOST and said["session_not_found"] and not said["success"]
    program = site.get("/gradio_api/call/generate/nothing").body.decode()
    assert program == f'event: error\ndata: {{"error":"{LOST}"}}\n\n'


def test_a_page_that_asks_for_what_it_has_read_is_told_of_no_loss(site: Site) -> None:
    """A client of Gradio does so if an event ends before the answer that names it."""
    number = list(site.page.programs).index("doctor")
    asked = {"fn_index": number, "session_hash": "twice", "data": ["no pair"]}
    assert site.post("/gradio_api/queue/join", asked).status == 200
    read, again = (site.get("/gradio_api/queue/data?session_hash=twice").body for _ in range(2))
    assert b"process_completed" in read
    assert json.loads(again.removeprefix(b"data: ")) == {"msg": "close_stream", "event_id": None}


def test_a_malformed_event_is_a_short_line_of_the_log(
    site: Site, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    long = "x" * 100_000
    wish = {"session": "x", **site.offer()["defaults"], "prompt": "the cat"}
    with caplog.at_level(logging.INFO):
        assert site.post("/run", {**wish, "pair": long}).status == 200
        assert site.post("/run", {**wish, "session": long}).status == 400
        assert site.post("/run", json.dumps(long).encode()).status == 400
        site.question("missed", {"run": "", "seq": long})
        site.post("/gradio_api/call/v2/generate", {"no_such": long})
        site.post("/gradio_api/queue/join", {"data": 7, "session_hash": long})
    said = [DiscreetFormatter("%(message)s").format(one) for one in caplog.records]
    assert said and all(len(line) < 700 and "\n" not in line for line in said)
    assert "x" * 1000 not in "".join(capfd.readouterr())


def nested(levels: int) -> str:
    """JSON of nested lists."""
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [1, 300, 900, 1000, 1100, 30_000])
def test_values_in_lists_in_lists_are_a_short_line_of_the_log(
    levels: int, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds in each field that the page sends: no parser and no sentence follows the nesting
    to its end."""
    usual = {"session": "x", **site.offer()["defaults"], "prompt": "the cat", "lanes": "one"}
    with caplog.at_level(logging.INFO):
        for field in (*usual, "pair", "weights"):
            wish = json.dumps({**usual, "pair": "builtin", "weights": "usual", field: "@"})
            answer = site.post("/run", wish.replace('"@"', nested(levels)).encode())
            assert answer.status in (200, 400) and b"Something went wrong" not in answer.body
        for name, field in (("stop", "session"), ("missed", "run"), ("begin_rerun", "trace")):
            answer = site.post(f"/ask/{name}", f'{{"{field}": {nested(levels)}}}'.encode())
            assert answer.status in (200, 400) and b"Something went wrong" not in answer.body
    assert not [record for record in caplog.records if record.exc_info]


def test_only_questions_of_the_page_are_answered(site: Site) -> None:
    for name in ("__init__", "preprocess", "get_config", "render", "answering", "x" * 65):
        assert site.question(name, {}).status == 404


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def locked() -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECVIZ_AUTH", "somebody:sesame")
        with served() as site:
            # The page reads the variable when it starts.
            patch.delenv("SPECVIZ_AUTH")
            yield site


def test_a_password_stands_before_everything(locked: Site) -> None:
    begun = {"data": _values("the cat")}
    queued = {**begun, "fn_index": 0, "session_hash": "x"}
    cancelled = {"session_hash": "x", "fn_index": 0, "event_id": "y"}

    def is_refused(answer: Answer) -> bool:
        return answer.status == 401 and is_sentence(answer)

    assert is_refused(locked.get("/config"))
    assert is_refused(locked.get("/gradio_api/info"))
    assert is_refused(locked.get("/page/player.js"))
    assert is_refused(locked.get(f"/{kept_at()}player.js"))
    assert locked.get(f"/{kept_at()}fonts/source-serif-4-latin.woff2").status == 200
    assert is_refused(locked.get("/recordings/easy.json.gz"))
    assert is_refused(locked.get("/api"))
    assert is_refused(locked.post("/run", {}))
    assert is_refused(locked.post("/gradio_api/call/generate", begun))
    assert is_refused(locked.post("/gradio_api/queue/join", queued))
    assert is_refused(locked.question("missed", {}))
    assert is_refused(locked.file("trace", b"{}"))
    assert is_refused(locked.post("/gradio_api/cancel", cancelled))
    assert is_refused(locked.post("/gradio_api/reset", {"event_id": "x"}))
    assert is_refused(locked.get("/gradio_api/app_id"))
    # Streams, which never end for those who may read them.
    assert is_refused(locked.get("/gradio_api/queue/data?session_hash=x"))
    assert is_refused(locked.get("/gradio_api/heartbeat/x"))
    assert b"Once upon" not in locked.get("/").body
    wrong = locked.post("/login", b"username=somebody&password=open", FORM)
    assert wrong.status == 400 and wrong.json["detail"] == WRONG
    right = locked.post("/login", b"username=somebody&password=sesame", FORM)
    assert right.status == 200
    cookie = right.headers["set-cookie"].split(";")[0]
    assert "httponly" in right.headers["set-cookie"].lower()
    assert "samesite=lax" in right.headers["set-cookie"].lower()
    assert locked.get("/config", {"Cookie": cookie}).status == 200


def test_passwords_cannot_be_tried_fast(locked: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(word: str, address: str) -> Answer:
        body = f"username=somebody&password={word}".encode()
        return locked.post("/login", body, {**FORM, "X-Forwarded-For": address})

    monkeypatch.setattr(password, "SLOWER", 0.05)
    began = time.monotonic()
    tries = [tried("open", "10.0.0.1") for _ in range(password.MAX_TRIES)]
    assert time.monotonic() - began > 0.04 * sum(range(password.MAX_TRIES))
    assert {one.status for one in tries} == {400}
    paused = tried("sesame", "10.0.0.1")
    assert paused.status == 429 and paused.json["detail"] == password.PAUSED
    assert int(paused.headers["retry-after"]) > 0
    assert tried("sesame", "10.0.0.2").status == 200  # others are still admitted
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 2 * password.PAUSE)
    monkeypatch.setattr(password, "time", later)
    assert tried("sesame", "10.0.0.1").status == 200
    assert tried("open", "10.0.0.1").status == 400


def test_programs_sign_in_too(locked: Site) -> None:
    from gradio_client import Client

    client = Client(locked.url, auth=("somebody", "sesame"), verbose=False)
    result = client.predict("the cat", max_new_tokens=4, api_name="/generate")
    assert result["metrics"]["tokens"]["baseline"] == 4


@pytest.mark.parametrize("value", ["somebody", "somebody:", ":sesame"])
def test_half_a_password_stops_the_start(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_AUTH", value)
    with pytest.raises(SettingsError) as error:
        Page(RunQueue(LocalWorker(toy_pair, race)))
    assert "sesame" not in str(error.value)


def test_tools_are_off_unless_switched_on_and_installed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def has_tools() -> bool:
        return Page(RunQueue(LocalWorker(toy_pair, race))).has_tools

    assert not has_tools()
    monkeypatch.setenv("SPECVIZ_MCP", "1")
    monkeypatch.setattr(server.importlib.util, "find_spec", lambda name: None)
    assert not has_tools()
    assert "requirements-mcp.txt" in caplog.text
    monkeypatch.setattr(server.importlib.util, "find_spec", lambda name: object())
    assert has_tools()
    monkeypatch.setenv("SPECVIZ_AUTH", "somebody:sesame")
    assert not has_tools()


def test_the_tools_address_is_closed_while_they_are_off(site: Site) -> None:
    assert site.get("/gradio_api/mcp/").status == 404
    assert site.post("/gradio_api/mcp/", {}).status == 404


def logged(message: str, *arguments: Any, error: BaseException | None = None) -> str:
    info = (type(error), error, None) if error else None
    record = logging.LogRecord("specviz", logging.INFO, "", 1, message, arguments, info)
    return DiscreetFormatter("%(levelname)s %(message)s").format(record)


def test_the_log_hides_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("SPECVIZ_AUTH", "somebody:sesame")
    said = logged("asked with %s by %s", SECRET, "sesame", error=OSError(f"Bearer {SECRET}"))
    assert SECRET not in said and "sesame" not in said and said.count(HIDDEN) == 3


def test_no_visitor_can_write_lines_of_the_log() -> None:
    forged = "a\n2026 specviz ERROR forged\x1b[2J\u202e"
    said = logged("refused: %s", forged, error=ValueError("b\nERROR c"))
    assert all(not line.startswith(("2026", "ERROR c")) for line in said.splitlines()[1:])
    assert "\x1b" not in said and "\u202e" not in said


FAILING = """
import os
from specviz.base.logs import set_up_logging
set_up_logging()
from page_server import served

def broken(*_):
    raise RuntimeError("no access with " + os.environ["HF_TOKEN"] + os.environ["SPECVIZ_AUTH"])

with served(load=broken, race=broken) as site:
    site.sign_in(*os.environ["SPECVIZ_AUTH"].split(":"))
    drafting = ["model", "fixed", "auto", None, None, "token"]
    values = ["the cat", "builtin", 5, 0.7, 0, 1.0, 8, 1, *drafting]
    print(site.events("generate", {"data": values})[-1])
    site.file("trace", b"7")
    site.question("missed", {"run": 1, "seq": "x"})
    site.post("/gradio_api/call/v2/generate", {"no_such": 1})
"""


def test_a_run_with_failures_logs_no_secret() -> None:
    secrets = {"HF_TOKEN": SECRET, "SPECVIZ_AUTH": "somebody:sesame"}
    run = run_forked([sys.executable, "-c", FAILING], env=os.environ | secrets)
    assert run.returncode == 0, run.stderr
    assert HIDDEN in run.stderr and "RuntimeError" in run.stderr
    for secret in (SECRET, "sesame"):
        assert secret not in run.stderr + run.stdout


def test_a_question_holds_long_texts_but_not_many() -> None:
    """A long text is cheap to parse, and many short ones are expensive."""

    def question(texts: list[str]) -> bytes:
        return json.dumps({"texts": texts}).encode()

    few = question(["a" * 2 * SMALL] * 2)
    many = question(["a"] * SMALL)
    assert len(few) > SMALL < len(many)
    check(few, QUESTIONS)
    with pytest.raises(Refused):
        check(many, QUESTIONS)
    short = question(["abcdefgh" * 200] * (MAX_STRINGS + 50))
    assert len(short) > SMALL  # less than SMALL bytes of it are outside its strings
    with pytest.raises(Refused):
        check(short, QUESTIONS)
