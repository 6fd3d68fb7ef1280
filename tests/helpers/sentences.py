"""Compares sentences that users read with one reviewed file, tests/sentences.json.

A test passes each sentence to the fixture `sentences`: `sentences(text)`, or `with
sentences.raises(PairError): ...` for the text of an error. They must be equal to the sentences of
the file, in order. The option `--write-sentences` updates the file instead, for the tests that run,
and removes the entries of deleted tests; a reviewer reads its diff.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import ndiff
from pathlib import Path
from typing import Any

import pytest

from specviz.base.errors import SpecvizError

FILE = Path(__file__).parents[1] / "sentences.json"
SAID = pytest.StashKey["Sentences"]()
REVIEWED = pytest.StashKey[dict[str, list[str]]]()
"""The lines in the file, by the id of the test."""
WRITTEN = pytest.StashKey[dict[str, list[str]]]()
"""The lines to be written into the file, by the id of the test."""
LEFT_OVER = pytest.StashKey[list[str]]()
"""The ids in the file whose tests were deleted, or pass no sentences any more."""


class Sentences:
    """Collects the lines that a test passes, without the parts that differ from run to run."""

    def __init__(self, temporary: Path) -> None:
        self._texts: list[str] = []
        self._temporary = re.compile(re.escape(str(temporary)) + r"/\w+")

    def __call__(self, text: str, *, measured: bool = False) -> None:
        """Add a text. measured: its numbers differ from run to run: leave them and the width of
        columns out."""
        text = self._temporary.sub("TMP", text)
        text = re.sub(r"(127\.0\.0\.1|localhost):\d+", r"\1:PORT", text)
        if measured:
            text = re.sub(r"\d+([.,]\d+)*(e-?\d+)?", "N", text)
            text = re.sub(" +", " ", text)
        if text not in self._texts[-1:]:  # repetitions are kept once
            self._texts.append(text)

    def lines(self) -> list[str]:
        return [line for text in self._texts for line in text.split("\n")]

    @contextmanager
    def raises(
        self, kind: type[BaseException], *, measured: bool = False
    ) -> Iterator[pytest.ExceptionInfo]:
        """Expect an error, and add its text. An error of specviz must be one sentence."""
        with pytest.raises(kind) as caught:
            yield caught
        text = str(caught.value)
        if isinstance(caught.value, SpecvizError):
            assert re.fullmatch(r".+[.?]", text), f"no plain sentence: {text}"
        self(text, measured=measured)

    @contextmanager
    def warns(self, kind: type[Warning], *, measured: bool = False) -> Iterator[None]:
        """Expect one warning of this kind, and add its text."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        [text] = [str(warning.message) for warning in caught if issubclass(warning.category, kind)]
        self(text, measured=measured)


@pytest.fixture
def sentences(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Sentences:
    said = Sentences(tmp_path_factory.getbasetemp())
    request.node.stash[SAID] = said
    return said


def read() -> dict[str, list[str]]:
    """Read the lines of each test, by its id."""
    by_file = json.loads(FILE.read_text("utf-8"))
    return {
        f"{path}::{test}": [lines] if isinstance(lines, str) else lines
        for path, tests in by_file.items()
        for test, lines in tests.items()
    }


def write(changed: dict[str, list[str]]) -> None:
    """Write the file with the lines of these tests."""
    by_file: dict[str, dict[str, str | list[str]]] = {}
    for test_id, lines in sorted((read() | changed).items()):
        path, test = test_id.split("::", 1)
        if lines:
            by_file.setdefault(path, {})[test] = lines[0] if len(lines) == 1 else lines
    FILE.write_text(json.dumps(by_file, indent=1, ensure_ascii=False) + "\n", "utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-sentences",
        action="store_true",
        help="write the sentences of the tests that run into tests/sentences.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[REVIEWED] = read()
    config.stash[WRITTEN] = {}


@pytest.hookimpl(tryfirst=True)  # before -k and -m remove tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # If single tests are named, the other tests of their files are unknown.
    files = set() if "::" in " ".join(config.args) else {item.path for item in items}
    using = {item.nodeid for item in items if "sentences" in getattr(item, "fixturenames", ())}
    config.stash[LEFT_OVER] = [
        test_id
        for test_id in config.stash[REVIEWED].keys() - using
        for path in [config.rootpath / test_id.split("::")[0]]
        if path in files or not path.exists()
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    result = yield  # raises if the test failed or was skipped
    said = item.stash.get(SAID, None)
    if said is None:
        return result
    if item.config.getoption("write_sentences"):
        item.config.stash[WRITTEN][item.nodeid] = said.lines()
        return result
    reviewed = item.config.stash[REVIEWED].get(item.nodeid, [])
    difference = [line for line in ndiff(reviewed, said.lines()) if not line.startswith(" ")]
    if difference:
        explained = f"- is in {FILE.name}, + is new (--write-sentences accepts it):"
        pytest.fail("\n".join([explained, *difference]), pytrace=False)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if not config.getoption("write_sentences"):
        return
    gone: dict[str, list[str]] = {test_id: [] for test_id in config.stash.get(LEFT_OVER, [])}
    changed = gone | config.stash[WRITTEN]
    if hasattr(config, "workeroutput"):
        config.workeroutput["sentences"] = changed
    else:
        write(changed)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[WRITTEN].update(getattr(node, "workeroutput", {}).get("sentences", {}))
