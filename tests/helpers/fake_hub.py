"""A model hub on this machine: it serves folders at the addresses that the hub's client uses."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

import huggingface_hub
import pytest
from huggingface_hub import constants
from local_server import QuietHandler, serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def fake_hub(
    models: dict[str, Path],
    gated: frozenset[str] = frozenset(),
    cut: list[int] | None = None,
    ranges: bool = True,
    busy: list[int] | None = None,
) -> Iterator[tuple[str, list[str]]]:
    """A running hub: yields its address, and the list of files that were downloaded from it. One
    that was asked for from its middle on stands there with "@" and the first byte.

    models: folders by hub id. gated: hub ids whose files are listed but cannot be downloaded. cut:
    of the next downloads, after how many bytes the connection ends; those that are left are whole.
    ranges: whether it sends a part of a file to those who ask for one, and not all of it. busy: the
    statuses that the next downloads get in place of a file.
    """
    cuts = [] if cut is None else cut
    refusals = [] if busy is None else busy
    given: list[str] = []

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            path = unquote(urlparse(self.path).path).strip("/")
            name, _, file = path.partition("/resolve/")
            revision, _, file = file.partition("/")
            if path == "":
                self.send(200, b"hub")
            elif path.startswith("api/models/"):
                self.listing(path.removeprefix("api/models/"))
            elif revision not in ("main", COMMIT):
                self.send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            else:
                self.file(name, file)

        do_HEAD = do_GET = answer

        def listing(self, path: str) -> None:
            name = "/".join(path.split("/")[:2])
            if name not in models:
                return self.send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
            sizes = {file.name: file.stat().st_size for file in sorted(models[name].iterdir())}
            if "/tree/" in path:
                tree = [
                    {"type": "file", "path": file, "size": size, "oid": COMMIT}
                    for file, size in sizes.items()
                ]
                return self.send(200, json.dumps(tree).encode())
            info = {
                "id": name,
                "modelId": name,
                "sha": COMMIT,
                "private": False,
                "tags": [],
                "gated": "manual" if name in gated else False,
                "siblings": [{"rfilename": file, "size": size} for file, size in sizes.items()],
            }
            return self.send(200, json.dumps(info).encode())

        def file(self, name: str, file: str) -> None:
            commit = {"X-Repo-Commit": COMMIT}
            if name not in models:
                return self.send(401, b"", {"X-Error-Code": "RepoNotFound"})
            if name in gated:
                message = {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated repo"}
                return self.send(403, b"", message | commit)
            if not (models[name] / file).is_file():
                return self.send(404, b"", {"X-Error-Code": "EntryNotFound"} | commit)
            has_body = self.command == "GET"
            if has_body and refusals:
                return self.send(refusals.pop(0), b"", commit)
            content = (models[name] / file).read_bytes()
            headers = commit | {"ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            first = int(asked[1]) if asked and ranges else 0
            if has_body:
                given.append(f"{name}/{file}" + (f"@{first}" if first else ""))
            if first:
                headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            return self.send(206 if first else 200, content[first:], headers)

        def write(self, raw: bytes) -> None:
            if self.command == "HEAD":
                return
            if cuts and len(raw) > cuts[0]:
                raw = raw[: cuts.pop(0)]
                self.close_connection = True
            self.wfile.write(raw)

    with serving(Handler) as address:
        yield address, given


def use_hub(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process take the hub at `address` for the only one, as HF_ENDPOINT would have a new
    process do."""
    pages = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", pages)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", address)


def use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have requests to servers of this machine go there."""
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
