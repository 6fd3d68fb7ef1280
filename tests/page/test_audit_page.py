"""The audit of the operator's server on the page: only the page's own user starts it, everybody may
read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest
from llama_server import LlamaServer
from page_server import served
from waiting import until

from specviz.audit import auditing
from specviz.page import audits
from specviz.page.audits import NOTHING, PageAudit
from specviz.page.document import inline_styles
from specviz.page.offer import _links

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_a_page_without_a_server_says_so() -> None:
    assert NOTHING.split(":")[0] in PageAudit().html(may_begin=True)
    assert "audit" not in _links()


def test_a_page_with_a_server_that_speculates_links_to_its_audit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECVIZ_REMOTE", "http://127.0.0.1:9/v1#target")
    assert _links()["audit"] == "audit"


def test_its_own_user_has_the_server_audited_and_strangers_read_the_report(
    llama_cpp: Callable[..., LlamaServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = llama_cpp(draft=True)
    monkeypatch.setenv("SPECVIZ_REMOTE", f"{server.url}#target")
    monkeypatch.setattr(audits, "MINUTES", 0.01)
    short = partial(auditing.audit_server, tokens=8, at_once=1, context=64)
    monkeypatch.setattr(auditing, "audit_server", short)
    with served() as site:
        stranger = {"X-Forwarded-For": "192.0.2.7"}
        refused = site.post("/audit", b"", {**FORM, **stranger})
        assert refused.status == 403 and b"Is it paying" not in site.get("/audit").body
        assert b"<form" in site.get("/audit").body
        assert b"<form" not in site.get("/audit", stranger).body
        elsewhere = {**FORM, "Origin": "https://example.org"}
        assert site.post("/audit", b"", elsewhere).status == 403
        begun = site.post("/audit", b"", FORM)
        assert begun.status == 303 and begun.headers["location"] == "audit"
        until(lambda: b"Is it lossless" in site.get("/audit").body, seconds=60)
        answer = site.get("/audit", stranger)
    page = answer.body.decode()
    assert "Yes: in" in page and "the target&#x27;s server" in page
    assert re.findall(r"127\.0\.0\.1:\d+", page) == []
    assert "style=" not in page, "the page's policy would not apply it"
    assert inline_styles()[-1] in answer.headers["content-security-policy"]
