"""Other web sites in a visitor's browser cannot start a run, read anything or use the page's
name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from local_server import Handler, serving
from page_server import Site, served
from starlette.datastructures import Headers
from starlette.responses import Response

from scripts.browsers import chromium
from specviz.page.probes import HEALTH_PATH
from specviz.page.security.addresses import Sites
from specviz.page.security.answers import security_headers
from specviz.page.security.password import Password
from specviz.page.security.requests import Refused

FRIEND = "https://friend.example"


class Blank(Handler):
    """Another site: an empty page at every address."""

    def respond(self, body: Any) -> None:
        page = b"<!doctype html><title>another site</title>"
        self.answer(200, page, {"Content-Type": "text/html"})


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[int]:
    """The port of another site."""
    with serving(Blank) as url:
        yield int(url.rpartition(":")[2])


@pytest.fixture(scope="module", params=[None, "somebody:sesame"], ids=["open", "password"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECVIZ_ORIGINS", f"{FRIEND},http://page.example")
        if request.param:
            patch.setenv("SPECVIZ_AUTH", request.param)
        with served() as site:
            yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser in which every host name resolves to this machine."""
    with chromium("--host-resolver-rules=MAP * 127.0.0.1") as running:
        yield running


RUN = """async (page) => {
  const json = { "Content-Type": "application/json" };
  const post = (path, body, headers, mode) => fetch(page + path, {
    method: "POST", credentials: "include", body, headers, mode,
  });
  const asked = JSON.stringify({ prompt: "the cat", max_new_tokens: 4 });
  try {
    const begun = await post("/gradio_api/call/v2/generate", asked, json, "cors");
    const { event_id: id } = await begun.json();
    const read = await fetch(`${page}/gradio_api/call/generate/${id}`, { credentials: "include" });
    return (await read.text()).includes("event: complete");
  } catch (error) {
    return String(error);
  }
}"""
SIGN_IN = """async (page) => {
  const body = new URLSearchParams({ username: "somebody", password: "sesame" });
  await fetch(page + "/login", { method: "POST", body });
}"""


@pytest.mark.browser
def test_only_the_page_itself_runs_and_reads_in_a_visitors_browser(
    site: Site, browser: Any, elsewhere: int
) -> None:
    own = f"http://page.example:{site.port}"
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(own + HEALTH_PATH)  # an address of this site that triggers no further requests
        page.evaluate(SIGN_IN, own)
        assert page.evaluate(RUN, own) is True
        begun = site.page.get_blocks()._queue.events_recorded
        for other in ("evil.example", "evil.page.example", "page.example", "127.0.0.1"):
            page.goto(f"http://{other}:{elsewhere}/")
            assert page.title() == "another site"
            assert page.evaluate(RUN, own) == "TypeError: Failed to fetch", other
        # A host name that now resolves to this machine is not a name of the page.
        answer = page.goto(f"http://rebound.example:{site.port}/")
        assert answer.status == 403 and "SPECVIZ_ORIGINS" in answer.text()
        assert site.page.get_blocks()._queue.events_recorded == begun
    finally:
        context.close()


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "https://127.0.0.1:1", "x"])
def test_other_sites_are_refused_before_anything_else(site: Site, origin: str) -> None:
    asked = {"Origin": origin, "Content-Type": "application/json"}
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x"}
    for answer in (
        site.ask("OPTIONS", "/gradio_api/call/generate", headers=asked | ask),
        site.post("/gradio_api/call/generate", {}, asked),
        site.post("/login", b"username=a&password=b", {"Origin": origin}),
        site.get("/config", asked),
    ):
        assert answer.status == 403 and "SPECVIZ_ORIGINS" in answer.json["detail"]
        assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_site_that_the_operator_names_may_use_the_page(site: Site) -> None:
    ask = {"Origin": FRIEND, "Access-Control-Request-Method": "POST"}
    allowed = site.ask("OPTIONS", "/gradio_api/call/generate", headers=ask)
    assert allowed.status == 204 and "POST" in allowed.headers["access-control-allow-methods"]
    read = site.get("/style.css", {"Origin": FRIEND})
    assert read.status == 200
    for answer in (allowed, read):
        assert answer.headers["access-control-allow-origin"] == FRIEND
        assert answer.headers["vary"] == "Origin"
    policy = read.headers["content-security-policy"]
    assert policy.endswith(f"frame-ancestors 'self' http://page.example {FRIEND}")


def admitted(sites: Sites, shared: str | None = None, **headers: str) -> bool:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        return bool(sites.admit(Headers(given), shared)) or True
    except Refused:
        return False


HERE = ["127.0.0.1:7860", "localhost:7860", "[::1]:7860", "192.168.1.7", "box", "box.local:80"]
THERE = ["evil.example", "evil.example:7860", "evil.", "127.0.0.1.evil.example", "a b.c", "[x"]
THERE += [
    "a\tb",
    "[::1]evil.example",
    "localhost\t.evil.example",
    "x@localhost",
    "box/evil.example",
]
THERE += ["evil.example#@box", "box:80:80", "box:", "[::1%eth0]"]


def test_names_that_strangers_can_have_are_for_the_operator_to_allow() -> None:
    nowhere = Sites()
    assert all(admitted(nowhere, host=host) for host in HERE)
    assert not any(admitted(nowhere, host=host) for host in THERE)
    assert admitted(nowhere)  # old programs send no host name
    named = Sites(frozenset({"https://race.example"}))
    assert admitted(named, host="race.example") and not admitted(named, host="evil.example")


def test_a_link_of_gradios_tunnel_is_a_name_of_the_page() -> None:
    shared = "https://0123.gradio.live"
    host = "0123.gradio.live"
    origin = shared
    assert admitted(Sites(), shared, host=host, origin=origin)
    assert not admitted(Sites(), shared, host="4567.gradio.live")
    assert not admitted(Sites(), host=host)


def test_behind_a_proxy_the_page_is_the_name_that_visitors_see() -> None:
    origin = "https://race.example"
    assert admitted(Sites(), host="127.0.0.1:1", x_forwarded_host="race.example", origin=origin)
    assert not admitted(Sites(), host="127.0.0.1:1", origin=origin)


@pytest.mark.parametrize(
    ("framed", "https", "expected"),
    [
        (False, False, "HttpOnly; Path=/; SameSite=lax"),
        (False, True, "HttpOnly; Path=/; SameSite=lax; Secure"),
        # Over plain HTTP a browser sends no cookie to a frame.
        (True, False, "HttpOnly; Path=/; SameSite=lax"),
        (True, True, "HttpOnly; Path=/; SameSite=none; Secure"),
    ],
)
def test_a_cookie_goes_to_other_sites_only_in_their_frames(
    framed: bool, https: bool, expected: str
) -> None:
    response = Response()
    Password("somebody", "sesame", is_framed=framed).sign_in(response, https=https)
    assert response.headers["set-cookie"].split("; ", 1)[1] == expected


def test_a_space_serves_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECVIZ_ORIGINS", raising=False)
    monkeypatch.setenv("SPACE_ID", "somebody/specviz")
    space = Sites.from_environment()
    own = "somebody-specviz.hf.space"
    assert admitted(space, host=own) and admitted(space, host=own, origin=f"https://{own}")
    assert admitted(space, host=own, origin="https://huggingface.co")
    assert not admitted(space, host=own, origin="https://evil.hf.space")
    policy = security_headers(frames=space.frames)["content-security-policy"]
    assert policy.endswith("frame-ancestors 'self' https://*.hf.space https://huggingface.co")


def test_a_whole_root_path_names_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECVIZ_ORIGINS", raising=False)
    monkeypatch.setenv("GRADIO_ROOT_PATH", "https://Race.example/talks")
    assert admitted(Sites.from_environment(), host="race.example")
