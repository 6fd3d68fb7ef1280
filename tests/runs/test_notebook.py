"""Runs in a notebook: the output of a cell, and the printed lines outside a notebook."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from places import ROOT
from sentences import Sentences
from toy_models import llama, pair_of, relative
from toy_recordings import GREEDY, SAMPLED, recorded

from specviz import Pair, Settings, Trace, generate, race, watch
from specviz.page.public import RECORDINGS
from specviz.runs.html import MAX_IN_CELL
from specviz.runs.terminal import metric_lines

EXAMPLE = ROOT / "docs" / "notebook.ipynb"
MALICIOUS = '"></iframe><script>alert(1)</script><img src=x onerror=alert(2)>'


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(64, num_hidden_layers=2)
    return pair_of(target, relative(target, noise=0.1))


class Elements(HTMLParser):
    """Collect all elements of an HTML text, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def page_in(cell: str) -> str:
    """The page inside the frame of a cell."""
    ((tag, attributes),) = Elements(cell).found
    assert tag == "iframe"
    loader = attributes["srcdoc"] or ""
    packed = re.search(r'atob\("([\w+/=]+)"\)', loader)
    assert packed is not None
    return gzip.decompress(base64.b64decode(packed.group(1))).decode()


def trace_in(page: str) -> Trace:
    found = re.search(r'id="trace">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return Trace.from_dict(json.loads(found.group(1)))


def test_a_trace_shows_itself_in_a_frame_of_its_own() -> None:
    trace = recorded(SAMPLED)
    cell = trace._repr_html_()
    assert cell is not None
    ((_, attributes),) = Elements(cell).found
    assert (attributes["sandbox"] or "").split() == ["allow-scripts", "allow-downloads"]
    assert "default-src 'none'" in (attributes["srcdoc"] or "")
    page = page_in(cell)
    assert trace_in(page) == trace and "default-src 'none'" in page
    assert not re.search(r"""\bsrc=["']?https?:""", page)


def test_the_cell_of_any_recording_is_small() -> None:
    largest = max(RECORDINGS.glob("*.json.gz"), key=lambda path: path.stat().st_size)
    assert len(Trace.load(largest)._repr_html_() or "") < 400_000


def test_what_a_model_wrote_cannot_leave_its_frame() -> None:
    trace = recorded(SAMPLED)
    header = replace(trace.header, prompt=MALICIOUS, question=MALICIOUS)
    cell = Trace(header, trace.rounds, trace.end)._repr_html_()
    assert cell is not None and len(Elements(cell).found) == 1
    assert "<script>alert" not in page_in(cell)


def test_a_long_run_is_a_line_at_once() -> None:
    trace = recorded(GREEDY)
    count = MAX_IN_CELL // max(1, sum(len(r.emitted) for r in trace.rounds)) + 1
    long = Trace(trace.header, count * trace.rounds, trace.end)
    assert long._repr_html_() is None
    assert len(repr(long)) < 200 and f"{len(long.rounds)} rounds" in repr(long)
    assert "not finished" not in repr(long) and "not finished" in repr(Trace(trace.header))


def test_a_result_tells_its_text_and_why_it_ended(pair: Pair) -> None:
    result = generate(pair, [1, 2, 3] * 4, Settings(max_new_tokens=20, ignore_eos=True))
    assert result.trace.end is not None and result.trace.end.reasons == {"speculative": "length"}
    assert f"20 tokens in {len(result.rounds)} rounds" in repr(result)
    assert repr(result.text)[1:20] in repr(result) and len(repr(result)) < 300
    cell = result._repr_html_()
    assert cell is not None and trace_in(page_in(cell)) == result.trace


def test_outside_a_notebook_a_race_is_printed(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = watch(race(pair, [1, 2, 3] * 4, gamma=3, max_new_tokens=20, ignore_eos=True))
    printed = capsys.readouterr().out
    assert sum(" │ " in line for line in printed.splitlines()) == 1 + len(trace.lane("speculative"))
    assert printed.endswith("\n".join(metric_lines(trace)) + "\n")


class Cell:
    """A fake notebook cell that records everything that is displayed in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kernel: object = object()) -> None:
        self.shown: list[tuple[str, str]] = []
        ipython: Any = ModuleType("IPython")
        ipython.get_ipython = lambda: SimpleNamespace(kernel=kernel)
        ipython.display = ModuleType("IPython.display")
        ipython.display.display = self.display
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
        monkeypatch.setattr("specviz.runs.notebook.PAUSE", 0.0)

    def display(self, value: Any, display_id: bool = False) -> Cell:
        assert display_id
        self.update(value)
        return self

    def update(self, value: Any) -> None:
        self.shown.append((value._repr_html_(), repr(value)))


def test_in_a_cell_one_picture_is_renewed_until_the_race_is_over(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sentences: Sentences,
) -> None:
    cell = Cell(monkeypatch)
    lanes = {
        "one": Settings(gamma=3, max_new_tokens=20, ignore_eos=True),
        "two": Settings(gamma=2, max_new_tokens=20, ignore_eos=True),
    }
    trace = watch(race(pair, [1, 2, 3] * 4, lanes))
    assert len(cell.shown) == 2 + len(trace.rounds) + 2  # waiting, header, rounds, end, last
    first = cell.shown[0]
    last = cell.shown[-1]
    for form in first:
        sentences(form)
    assert last[1] == "\n".join(metric_lines(trace))
    assert all(f"<b>{name}</b> 20 tokens" in last[0] for name in ("one", "two"))
    assert "All lanes are writing." in cell.shown[1][0] and capsys.readouterr().out == ""


def test_texts_in_a_cell_are_text(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(monkeypatch)
    trace = recorded(SAMPLED)
    rounds = [
        replace(r, drafted=tuple(replace(t, text=MALICIOUS) for t in r.drafted))
        for r in trace.rounds
    ]
    watch([trace.header, *rounds])
    assert {tag for tag, _ in Elements(cell.shown[-1][0]).found} <= {"p", "b", "div", "span"}


def test_in_a_terminal_of_ipython_a_race_is_printed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = Cell(monkeypatch, kernel=None)
    watch(race(pair, [1, 2, 3] * 4, max_new_tokens=4))
    assert not cell.shown and "tokens/s" in capsys.readouterr().out


def test_the_example_runs_and_has_no_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.loads(EXAMPLE.read_text("utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            exec("".join(cell["source"]), names)
    assert "times the speed" in capsys.readouterr().out
    assert names["trace"].end and names["result"].text
