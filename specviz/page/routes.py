"""The routes of the page: its HTML, its files, its questions, and its sign-in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from inspect import Signature
from pathlib import Path
from typing import Any

import gradio as gr
import orjson
from fastapi import Body, HTTPException, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
)

from ..runs.html import PAGE, modules_asked_again
from .audits import NOT_YOURS, PageAudit
from .document import address_of, api_html, index_html, sign_in_html
from .failures import PageQuestion, answering
from .public import PAGE_AT, is_unchanged, kept_at, public_files, style_sheet
from .security.addresses import QUESTION_PATH
from .security.owner import is_own_user
from .security.password import HINT, WRONG, Password

READ = ["GET", "HEAD"]
KEPT = "private, max-age=31536000, immutable"  # in seconds: a year


def add_routes(
    page: gr.Server,
    *,
    questions: Sequence[PageQuestion],
    offer: Callable[[], dict[str, Any]],
    recordings: Path,
    password: Password | None,
    programs: Mapping[str, tuple[str, Signature]],
    audit: PageAudit,
) -> None:
    """Add all routes to a page. They come before Gradio's. offer: returns the page's current offer
    for the visitor who asks."""

    @page.api_route("/", methods=READ, include_in_schema=False)
    def index(request: Request) -> Response:
        if password is not None and not password.is_entered(request.scope):
            return HTMLResponse(sign_in_html())
        return HTMLResponse(index_html(offer(), address_of(request.scope)))

    @page.api_route("/api", methods=READ, include_in_schema=False)
    def api(request: Request) -> Response:
        return HTMLResponse(api_html(programs, address_of(request.scope)))

    _add_files(page, recordings)
    for question in questions:
        _add_question(page, question)
    _add_audit(page, audit)
    if password is not None:
        _add_sign_in(page, password)


def _add_files(page: gr.Server, recordings: Path) -> None:
    files = public_files(recordings)
    style = style_sheet()
    mark = hashlib.sha256(style.encode()).hexdigest()
    retried_modules = modules_asked_again()

    @page.api_route("/style.css", methods=READ, include_in_schema=False)
    def sheet() -> Response:
        return Response(style, media_type="text/css", headers={"etag": f'"{mark}"'})

    @page.api_route("/favicon.ico", methods=READ, include_in_schema=False)
    def icon() -> Response:
        return FileResponse(PAGE / "favicon.svg", media_type="image/svg+xml")

    # Before the files of the page: a module whose import has failed, under an address of its own.
    @page.api_route("/page/again/{attempt:int}/{name:path}", methods=READ, include_in_schema=False)
    @page.api_route(
        "/page/v-{version}/again/{attempt:int}/{name:path}", methods=READ, include_in_schema=False
    )
    def module(attempt: int, name: str) -> Response:
        text = retried_modules.get(name)
        if text is None:
            raise HTTPException(404)
        return Response(text, media_type="text/javascript")

    # A page that was opened before a new release asks for the earlier version, and gets the new.
    @page.api_route("/page/v-{version}/{name:path}", methods=READ, include_in_schema=False)
    def versioned_file(version: str, name: str) -> Response:
        address = PAGE_AT + name
        response = public_file(address)
        if kept_at() == f"{PAGE_AT}v-{version}/" and is_unchanged(files[address]):
            response.headers["cache-control"] = KEPT
        return response

    @page.api_route("/page/{name:path}", methods=READ, include_in_schema=False)
    @page.api_route("/recordings/{name:path}", methods=READ, include_in_schema=False)
    def file(request: Request, name: str) -> Response:
        folder = request.scope["route"].path.split("/")[1]
        return public_file(f"{folder}/{name}")

    def public_file(address: str) -> Response:
        path = files.get(address)
        if path is None:
            raise HTTPException(404)
        return FileResponse(path)


def _add_question(page: gr.Server, question: PageQuestion) -> None:
    answered = answering(question)

    @page.post(QUESTION_PATH + question.__name__, include_in_schema=False)
    def answer(request: dict[str, Any] = Body()) -> Response:  # noqa: B008
        body = orjson.dumps(answered(request), option=orjson.OPT_NON_STR_KEYS)
        return Response(body, media_type="application/json")


def _add_audit(page: gr.Server, audit: PageAudit) -> None:
    @page.api_route("/audit", methods=READ, include_in_schema=False)
    def report(request: Request) -> Response:
        return HTMLResponse(audit.html(may_begin=is_own_user(request.scope)))

    @page.post("/audit", include_in_schema=False)
    def begin(request: Request) -> Response:
        if not is_own_user(request.scope):
            raise HTTPException(403, NOT_YOURS)
        audit.begin()
        return RedirectResponse("audit", 303)


def _add_sign_in(page: gr.Server, password: Password) -> None:
    @page.post("/login", include_in_schema=False)
    @page.post("/login/", include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        fields = await request.form()
        name = str(fields.get("username", ""))
        secret = str(fields.get("password", ""))
        is_right = password.is_right(name, secret)
        wants_page = "text/html" in request.headers.get("accept", "")
        if not is_right:
            if wants_page:
                return HTMLResponse(sign_in_html(f"{WRONG} {HINT}"))
            raise HTTPException(400, WRONG)
        home = RedirectResponse("./", 303)
        response = home if wants_page else JSONResponse({"success": True})
        password.sign_in(response, https=request.url.scheme == "https")
        return response

    @page.get("/logout", include_in_schema=False)
    def sign_out() -> Response:
        response = RedirectResponse("./", 303)
        password.sign_out(response)
        return response
