"""The reviewed file of sentences: a difference fails, and unused entries are removed."""

from __future__ import annotations

import json

import pytest
import sentences as plugin

pytest_plugins = ["pytester"]

TESTS = """
    def test_a_text(sentences):
        sentences("It is 5.")

    def test_an_error(sentences, tmp_path):
        with sentences.raises(ValueError):
            raise ValueError(f"{tmp_path}/a at http://127.0.0.1:8000 is 'b'.")
        sentences("took 3.25 s", measured=True)
"""
SAID = {
    "test_a_text": "It is 5.",
    "test_an_error": ["TMP/a at http://127.0.0.1:PORT is 'b'.", "took N s"],
}


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setattr(plugin, "FILE", pytester.path / "sentences.json")
    pytester.makepyfile(test_a=TESTS, test_b="def test_b(sentences): sentences('b')")
    return pytester


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    return suite.runpytest_inprocess("-p", "sentences", *options)


def test_what_differs_from_the_file_fails(suite: pytest.Pytester) -> None:
    kept = {"test_a_text": "It is 6.", "test_an_error": [*SAID["test_an_error"], "And more."]}
    plugin.FILE.write_text(json.dumps({"test_a.py": kept}))
    run(suite).assert_outcomes(failed=3)
    plugin.FILE.write_text(json.dumps({"test_a.py": SAID, "test_b.py": {"test_b": "b"}}))
    run(suite).assert_outcomes(passed=3)


def test_writing_leaves_the_entries_of_other_tests(suite: pytest.Pytester) -> None:
    kept = {"test_a_text": "It was 5.", "test_gone": "Gone."}
    plugin.FILE.write_text(json.dumps({"test_a.py": kept, "test_b.py": {"test_b": "b"}}))
    run(suite, "--write-sentences", "test_a.py::test_a_text")
    written = json.loads(plugin.FILE.read_text())
    assert written["test_a.py"] == {"test_a_text": "It is 5.", "test_gone": "Gone."}
    run(suite, "--write-sentences", "test_a.py", "-k", "error")
    written = json.loads(plugin.FILE.read_text())
    assert written == {"test_a.py": SAID, "test_b.py": {"test_b": "b"}}


def test_every_sentence_is_still_said(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.stash[plugin.LEFT_OVER] == [], "--write-sentences removes them"
