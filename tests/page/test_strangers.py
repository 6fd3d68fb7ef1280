"""Strangers against the running page: what they send costs other visitors nothing."""

from __future__ import annotations

import base64
import gzip
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from machine_load import runs_in_parallel
from page_server import Site, served

BOMB = base64.b64encode(gzip.compress(b"[" + b"[]," * 5_500_000 + b"[]]")).decode()
# As many values as a recording may have.
HEAVY = base64.b64encode(gzip.compress(b"[" + b"[]," * 1_000_000 + b"[]]")).decode()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served() as site:
        yield site


def at_once(actions: list[Callable[[], Any]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    return threads


def test_files_that_cost_a_parser_dear_freeze_nobody(site: Site) -> None:
    assert len(BOMB) < 50_000
    site.question("opened", {"packed": "e30="})  # the reading process is there
    errors: list[str] = []

    def open_file(packed: str) -> None:
        errors.append(site.question("opened", {"packed": packed}).json["error"])

    threads = at_once([lambda one=one: open_file(one) for one in (BOMB, HEAVY, BOMB, BOMB)])
    waits = []
    while any(thread.is_alive() for thread in threads):
        began = time.monotonic()
        assert site.get("/gradio_api/app_id").status == 200
        waits.append(time.monotonic() - began)
    assert len(errors) == 4 and all(error.endswith(".") for error in errors)
    assert max(waits) < 0.5 or runs_in_parallel()
