"""The start of the page: an invalid setting ends it with one sentence, before any model is
loaded."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest
from forked_process import run_forked
from places import ROOT

from specviz.__main__ import main
from specviz.page import serve
from specviz.page.serve import address


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def started() -> None:
        raise AssertionError("models were started")

    monkeypatch.setattr(serve, "_start_worker", started)
    monkeypatch.setattr(serve, "set_up_logging", lambda: None)
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def said_at_the_start(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["page"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("specviz: ") and said.endswith(".\n") and said.count("\n") == 1
    return said


def test_a_port_that_is_taken_is_an_error(
    taken: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRADIO_SERVER_PORT", str(taken))
    assert f"Port {taken} is taken" in said_at_the_start(capsys)
    monkeypatch.setenv("GRADIO_SERVER_NAME", "localhost")
    assert f"Port {taken} is taken" in said_at_the_start(capsys)


def test_a_port_that_is_taken_meanwhile_is_one_too(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specviz.core.race import race
    from specviz.page.queue import RunQueue
    from specviz.page.server import Page
    from specviz.worker.local import LocalWorker

    monkeypatch.setenv("GRADIO_SERVER_PORT", str(taken))
    monkeypatch.setattr("specviz.page.serve.signal.signal", lambda *_: None)
    page = Page(RunQueue(LocalWorker(lambda *_: None, race)))
    with pytest.raises(serve.SettingsError, match="is taken"):
        serve.launch(page)


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "7860.0", "٣", "7 860"])
def test_a_port_is_a_whole_number(port: str) -> None:
    with pytest.raises(serve.SettingsError, match="GRADIO_SERVER_PORT is"):
        address({"GRADIO_SERVER_PORT": port})
    assert address({"GRADIO_SERVER_PORT": ""}) == ("127.0.0.1", 7860)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_an_error(
    host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRADIO_SERVER_NAME", host)
    assert f"cannot listen on '{host}'" in said_at_the_start(capsys)


def test_pairs_that_do_not_exist_are_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECVIZ_PAIRS", "builtin,nonsense")
    assert "unknown name 'nonsense'" in said_at_the_start(capsys)


def test_app_says_it_in_one_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_PAIRS", "nonsense")
    script = f"import runpy; runpy.run_path({str(ROOT / 'app.py')!r}, run_name='__main__')"
    done = run_forked([sys.executable, "-c", script])
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("specviz: SPECVIZ_PAIRS") and done.stderr.count("\n") == 1
