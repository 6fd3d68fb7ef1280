"""A run as one HTML file: it is complete, and safe with any texts."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from toy_recordings import GREEDY, SAMPLED, recorded, values

from specviz.__main__ import main
from specviz.page.files import FileReader
from specviz.page.public import RECORDINGS
from specviz.runs.charts import all_figures
from specviz.runs.charts_page import charts_html
from specviz.runs.html import SERVED, embedded_html, imports, standalone_html
from specviz.runs.tables import rounds_csv, tokens_csv
from specviz.runs.trace import Trace

MALICIOUS = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>{title}"


def inside(page: str, name: str) -> str:
    """The text of the script element with the id `name`."""
    found = re.search(rf'<script type="[\w/]+" id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found, name
    return found.group(1)


@cache
def page_of_sampled() -> str:
    return standalone_html(recorded(SAMPLED))


def test_the_page_holds_the_whole_run() -> None:
    trace = recorded(SAMPLED)
    page = page_of_sampled()
    assert Trace.from_dict(json.loads(inside(page, "trace"))) == trace
    assert json.loads(inside(page, "config"))["figures"] == all_figures(trace)


def packed_trace(page: str) -> Trace:
    """The trace inside a small player."""
    packed = base64.b64decode(inside(page, "packed-trace"))
    return Trace.from_dict(json.loads(gzip.decompress(packed)))


# Everything else in a small player is the same for every run.
LARGEST = sorted(RECORDINGS.glob("*.json.gz"), key=lambda path: path.stat().st_size)[-3:]


@pytest.mark.parametrize("path", LARGEST, ids=lambda path: path.name.split(".")[0])
def test_the_small_player_of_any_recording_is_under_a_megabyte(path: Path) -> None:
    trace = Trace.load(path)
    page = embedded_html(trace)
    assert len(page.encode()) < 1_000_000
    assert packed_trace(page) == trace


def test_every_module_is_inside_under_the_name_that_others_import() -> None:
    page = page_of_sampled()
    found = re.search(r'<script type="importmap">(.*?)</script>', page)
    assert found
    packed = json.loads(found.group(1))["imports"]
    mine = {name: others for name, others in imports().items() if not name.startswith(SERVED)}
    assert packed.keys() == mine.keys()
    for name, others in mine.items():
        assert others <= packed.keys(), name


def test_the_page_makes_no_requests() -> None:
    page = page_of_sampled()
    page = page.replace(inside(page, "plotly"), "")
    assert not re.search(r'<(?!a )[^>]*(?:src|href)="(?!#)', page)
    assert not re.search(r"url\((?!data:|#)", page)
    assert "@import" not in page


def test_malicious_texts_are_shown_as_text() -> None:
    trace = recorded(SAMPLED)
    malicious = Trace(replace(trace.header, prompt=MALICIOUS), trace.rounds, trace.end)
    page = standalone_html(malicious)
    assert "alert(1)</script>" not in page
    assert "<img src=x" not in page
    assert json.loads(inside(page, "trace"))["header"]["prompt"] == MALICIOUS


@pytest.fixture(scope="module")
def reader() -> Iterator[FileReader]:
    running = FileReader()
    yield running
    running.close()


@pytest.fixture
def taken_away(reader: FileReader) -> Callable[[str, str], dict[str, Any]]:
    """A function that returns the page's answer to a request for a run in a file format."""

    def ask(form: str, trace: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(reader.answer(form, trace.encode("utf-8", "replace")))
        return found

    return ask


@pytest.mark.parametrize("form", ["html", "embed", "charts", "figures", "tokens", "rounds"])
def test_the_browser_gets_the_run_that_it_shows(taken_away: Any, form: str) -> None:
    trace = recorded(GREEDY)
    # A browser writes whole floats without a point.
    text = json.dumps(values(GREEDY)).replace("1.0,", "1,").replace("0.0,", "0,")
    answer = taken_away(form, text)
    if form == "html":
        assert Trace.from_dict(json.loads(inside(answer["text"], "trace"))) == trace
        assert answer["suffix"] == ".html" and inside(answer["text"], "plotly")
    elif form == "embed":
        assert packed_trace(answer["text"]) == trace
        assert answer["suffix"] == "-player.html" and not inside(answer["text"], "plotly")
    elif form == "charts":
        assert (answer["text"], answer["suffix"]) == (charts_html(trace), "-charts.html")
    elif form == "figures":
        assert json.loads(answer["text"]) == all_figures(trace)
    else:
        wanted = {"tokens": tokens_csv, "rounds": rounds_csv}[form](trace)
        assert (answer["text"], answer["suffix"]) == (wanted, f"-{form}.csv")


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        ("", "empty"),
        ("{", "not valid JSON"),
        ('"\ud800"', "this recording"),
        ("{}", "schema"),
        (" " * (17 * 2**20), "MiB"),
    ],
)
def test_an_invalid_run_is_rejected_with_a_sentence(taken_away: Any, trace: str, said: str) -> None:
    answer = taken_away("html", trace)
    assert set(answer) == {"error"}
    assert said in answer["error"]


def test_a_changed_run_is_rejected(taken_away: Any) -> None:
    data = values(SAMPLED)
    data["rounds"][0]["clock"] += 1.0
    assert "error" in taken_away("html", json.dumps(data))


def test_the_verb_writes_page_and_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = recorded(SAMPLED)
    trace.save(tmp_path / "run.json.gz")
    page = tmp_path / "new" / "run.html"
    charts = tmp_path / "charts.html"
    tables = tmp_path / "tables"
    wanted = ["--html", str(page), "--charts", str(charts), "--csv", str(tables)]
    assert main(["export", str(tmp_path / "run.json.gz"), *wanted]) == 0
    assert charts.read_text("utf-8") == charts_html(trace)
    assert page.read_text("utf-8") == page_of_sampled()
    assert (tables / "tokens.csv").read_bytes() == tokens_csv(trace).encode()
    assert (tables / "rounds.csv").read_bytes() == rounds_csv(trace).encode()
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main(["export", str(tmp_path / "run.json.gz")]) == 2
    assert "--html" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "none.json"), "--csv", str(tables)]) == 2


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Tell a joke.\n", "Tell a joke."),
        ("word " * 30, ("word " * 16).strip() + "…"),
        ("x" * 200, "x" * 80 + "…"),
        ("a b" + "c" * 100, "a…"),
    ],
)
def test_a_title_ends_with_a_word(prompt: str, title: str) -> None:
    run = recorded(SAMPLED)
    named = replace(run, header=replace(run.header, prompt=prompt, question=None))
    found = re.search(r"<title>specviz: (.*?)</title>", embedded_html(named))
    assert found is not None and found[1] == title
