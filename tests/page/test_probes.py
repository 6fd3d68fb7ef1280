"""The health probes for operators of a running page, and the headers of every answer."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_server import Site, served
from waiting import until

from specviz.base.logs import HIDDEN, REQUEST, JsonFormatter, adopt_libraries
from specviz.page import public


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served() as site:
        yield site


def test_the_page_is_ready_when_the_pair_was_loaded_and_until_it_ends(site: Site) -> None:
    assert until(lambda: site.get("/readyz").status == 200)
    assert site.get("/healthz").status == site.get("/readyz").status == 200
    assert site.ask("HEAD", "/healthz").body == b""
    assert site.post("/healthz", {}).status == 404
    runs = site.page.run_queue
    for name, value in (("answered", False), ("closing", True)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runs, name, value)
            answer = site.get("/readyz")
            assert answer.status == 503 and answer.body.endswith(b".\n")
    assert site.get("/readyz").status == site.get("/healthz").status == 200


def test_answers_have_an_id_and_say_how_long_they_may_be_kept(site: Site) -> None:
    player = "/page/player.js"
    for path, lifetime in (
        ("/", "no-cache"),
        ("/config", "no-store"),
        ("/nothing", "no-store"),
        (player, "no-cache"),
        ("/style.css", "no-cache"),
    ):
        headers = site.get(path).headers
        assert headers["cache-control"] == lifetime, path
        assert re.fullmatch(r"[0-9a-f]{16}", headers["x-request-id"])
    for path in (player, "/style.css"):
        tag = site.get(path).headers["etag"]
        for same in (tag, f"W/{tag}"):
            kept = site.get(path, {"If-None-Match": same})
            assert (kept.status, kept.body) == (304, b"") and kept.headers["etag"] == tag
    assert site.get(player, {"If-None-Match": '"other"'}).status == 200
    assert site.get("/", {"X-Request-ID": "of-a.proxy_1"}).headers["x-request-id"] == "of-a.proxy_1"
    for forged in ("two words", "x" * 65, ""):
        assert site.get("/", {"X-Request-ID": forged}).headers["x-request-id"] != forged


def files_of(site: Site) -> str:
    """The address of the page's files in its HTML. The policy must allow the map with it."""
    answer = site.get("/")
    html = answer.body.decode()
    (names,) = re.findall('<script type="importmap">(.*?)</script>', html)
    digest = base64.b64encode(hashlib.sha256(names.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in answer.headers["content-security-policy"]
    at = str(json.loads(names)["imports"]["specviz/"]).removeprefix(".")
    for tag in ('<link rel="modulepreload" href', '<script type="module" src'):
        assert f'{tag}="{at[1:]}page.js">' in html
    return at


def test_a_browser_keeps_the_files_of_a_version(site: Site) -> None:
    at = files_of(site)
    assert re.fullmatch("/page/v-[0-9a-f]{16}/", at)
    kept = site.get(f"{at}player.js")
    assert kept.body == site.get("/page/player.js").body
    assert kept.headers["cache-control"] == "private, max-age=31536000, immutable"
    earlier = site.get("/page/v-0123456789abcdef/player.js")
    assert (earlier.body, earlier.headers["cache-control"]) == (kept.body, "no-cache")
    assert site.get(f"{at}nothing.js").status == 404
    # It comes with a package, whose version is another.
    assert site.get(f"{at}plotly.min.js").headers["cache-control"] == "no-cache"
    again = site.get(f"{at}again/1/choose/view.js")
    assert (again.status, again.headers["cache-control"]) == (200, "no-cache")
    style = site.get("/style.css").body.decode()
    (font,) = set(re.findall(r'url\("?([^)"]*latin-400.woff2)', style))
    assert font.startswith(at[1:]) and f'href="{font}"' in site.get("/").body.decode()
    assert site.get(f"/{font}").headers["cache-control"].endswith("immutable")


def test_a_version_is_of_the_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tools install all files with one time, and a change may keep a file's size."""
    monkeypatch.setattr(public, "PAGE", tmp_path)
    file = tmp_path / "page.js"
    versions = []
    for text in ("one", "two", "one"):
        file.write_text(text)
        os.utime(file, (0, 0))
        versions.append(public.kept_at.__wrapped__())
    first, second, again = versions
    assert first == again != second


def test_a_browser_asks_for_files_that_were_changed_since_the_start(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = files_of(site)
    monkeypatch.setattr(public, "_state", lambda path: (path.stat().st_size + 1, 0))
    assert files_of(site) == "/page/"
    # A page that was opened before may load a changed file, which must not count as that version.
    assert site.get(f"{at}player.js").headers["cache-control"] == "no-cache"


def test_what_is_logged_about_a_run_has_the_id_of_its_request(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ids: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            ids.append(REQUEST.get())

    monkeypatch.setattr(site.page.run_queue._worker._models, "race", lambda *_: 1 / 0)
    noting = Noting()
    logging.getLogger("specviz.page.queue").addHandler(noting)
    caplog.set_level(logging.INFO)
    try:
        headers = {"Content-Type": "application/json", "X-Request-ID": "mine"}
        begun = site.post("/gradio_api/call/v2/race", {"prompt": "w1"}, headers).json["event_id"]
        assert (
            b"Something went wrong on the server" in site.get(f"/gradio_api/call/race/{begun}").body
        )
    finally:
        logging.getLogger("specviz.page.queue").removeHandler(noting)
    assert ids and set(ids) == {"mine"}


def test_json_lines_are_of_all_loggers_and_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", 'hf_"quoted"')
    written = io.StringIO()
    ours = logging.StreamHandler(written)
    ours.setFormatter(JsonFormatter())
    monkeypatch.setattr(logging.root, "handlers", [ours])
    library = logging.getLogger("library_of_others")
    library.addHandler(logging.StreamHandler(io.StringIO()))
    library.propagate = False
    adopt_libraries()
    mark = REQUEST.set("an-id")
    try:
        try:
            raise ValueError('the token hf_"quoted"')
        except ValueError:
            library.error("a line\nand %s", 'hf_"quoted"', exc_info=True)
    finally:
        REQUEST.reset(mark)
    (line,) = written.getvalue().splitlines()
    said = json.loads(line)
    assert said["message"] == f"a line\nand {HIDDEN}" and said["logger"] == "library_of_others"
    assert said["level"] == "ERROR" and said["request"] == "an-id"
    assert said["exception"].endswith(f"ValueError: the token {HIDDEN}")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said["time"])
