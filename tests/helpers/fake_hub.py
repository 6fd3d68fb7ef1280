"""A model hub on this machine, which serves folders to the hub's client."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import huggingface_hub
import pytest
import transformers
from huggingface_hub import constants
from local_server import Handler, Headers, serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FROM_COMMIT = {"X-Repo-Commit": COMMIT}


@contextmanager
def fake_hub(
    models: dict[str, Path],
    gated: frozenset[str] = frozenset(),
    cut: list[int] | None = None,
    ranges: bool = True,
    busy: list[int] | None = None,
) -> Iterator[tuple[str, list[str]]]:
    """Run a hub; yields its address and the list of files downloaded from it. A download from the
    middle of a file is listed with "@" and the first byte.

    models: folders by hub id. gated: hub ids whose files are listed, but cannot be downloaded. cut:
    the numbers of bytes after which the next downloads end; later ones are whole. ranges: whether
    a request for a part of a file gets only that part. busy: the statuses that the next downloads
    get instead of a file.
    """
    cuts = [] if cut is None else cut
    refusals = [] if busy is None else busy
    given: list[str] = []

    class Hub(Handler):
        def respond(self, body: Any) -> None:
            path = unquote(urlparse(self.path).path).strip("/")
            name, _, file = path.partition("/resolve/")
            revision, _, file = file.partition("/")
            if path == "":
                self.answer(200, b"hub")
            elif path.startswith("api/models/"):
                self.list_files(path.removeprefix("api/models/"))
            elif revision not in ("main", COMMIT):
                self.refuse(404, "RevisionNotFound")
            elif name not in models:
                self.refuse(401, "RepoNotFound")
            elif name in gated:
                self.refuse(403, "GatedRepo", {"X-Error-Message": "gated repo"})
            elif not (models[name] / file).is_file():
                self.refuse(404, "EntryNotFound")
            elif self.command == "GET" and refusals:
                self.answer(refusals.pop(0), b"", FROM_COMMIT)
            else:
                self.send_file(name, file)

        do_HEAD = Handler.do_GET

        def refuse(self, status: int, code: str, headers: Headers | None = None) -> None:
            self.answer(status, b"", {"X-Error-Code": code, **FROM_COMMIT, **(headers or {})})

        def list_files(self, path: str) -> None:
            name = "/".join(path.split("/")[:2])
            if name not in models:
                self.refuse(401, "RepoNotFound")
                return
            files = sorted(models[name].iterdir())
            if "/tree/" in path:
                entry = {"type": "file", "oid": COMMIT}
                self.answer(
                    200,
                    [{"path": file.name, "size": file.stat().st_size, **entry} for file in files],
                )
                return
            siblings = [{"rfilename": file.name, "size": file.stat().st_size} for file in files]
            info = {"id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": []}
            info["gated"] = "manual" if name in gated else False
            self.answer(200, {**info, "siblings": siblings})

        def send_file(self, name: str, file: str) -> None:
            content = (models[name] / file).read_bytes()
            headers = {**FROM_COMMIT, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            first = int(asked[1]) if asked and ranges else 0
            if self.command == "GET":
                given.append(f"{name}/{file}" + (f"@{first}" if first else ""))
            if first:
                headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            self.answer(206 if first else 200, content[first:], headers)

        def write(self, raw: bytes) -> None:
            if cuts and len(raw) > cuts[0]:
                raw = raw[: cuts.pop(0)]
                self.close_connection = True
            self.wfile.write(raw)

    with serving(Hub) as address:
        yield address, given


def use_hub(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process use the hub at `address`, like HF_ENDPOINT in a new process."""
    pages = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", pages)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", address)
    # From release 5.24 on transformers keeps a client of its own, with the address of its first
    # use.
    monkeypatch.setattr(transformers.utils.hub, "_hf_api", None, raising=False)


def use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send requests to servers of this machine directly."""
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
