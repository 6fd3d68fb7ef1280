"""A visit to the published pair, if it was fetched: a question is asked while the pair loads, and
answered with code that has its marks."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fetched_pair
import pytest
from filed import LEGEND, emitted, legend_counts
from forked_page import forked_page
from playwright.sync_api import expect
from visitor import PATIENCE, Visit

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

pytestmark = [pytest.mark.browser, pytest.mark.real]

SERVE = Path(__file__).resolve().parent / "serve_builtin.py"
QUESTION = "Write a Python function that says whether a word is a palindrome, without comments."
LENGTH = 32  # tokens: longer than the answer
LONGEST = 10 * PATIENCE  # ms: two texts of a large model on a busy machine
# The rows of code: their copied text and their font.
CODE = """() => [...document.querySelectorAll("[data-lane=speculative] [data-block=code]")].map(
  (row) => {
    getSelection().selectAllChildren(row);
    const text = String(getSelection());
    return {
      text: text.replaceAll("\\u00a0", " ").replaceAll("\\n", ""),
      face: getComputedStyle(row.querySelector(".w") ?? row).fontFamily,
    };
  }
)"""


@pytest.fixture(scope="module")
def real_page() -> Iterator[str]:
    """The page with the published pair, from fetched files."""
    fetched_pair.fetched_files()
    with forked_page(
        SERVE,
        SPECVIZ_PAIR=fetched_pair.NAME,
        SPECVIZ_MODELS=os.environ[fetched_pair.OWN],
        SPECVIZ_MOST_SECONDS=str(LONGEST // 1000),
    ) as address:
        yield address


def test_a_question_is_answered_with_marked_code(visit: Visit, real_page: str) -> None:
    visitor = visit(address=real_page, query=f"?length={LENGTH}")
    page = visitor.page
    expect(visitor.player).to_have_attribute("data-source", "recording")
    visitor.prompt(QUESTION)
    visitor.button("Run").click()
    expect(visitor.player).to_have_attribute("data-source", "live", timeout=LONGEST)
    expect(visitor.player).to_have_attribute("data-state", "ended", timeout=LONGEST)

    trace = visitor.trace()
    assert trace["header"]["question"] == QUESTION
    expect(page.locator("[data-item=target]")).to_contain_text("Qwen2.5-Coder-1.5B-Instruct")
    texts = [text_of(trace, lane) for lane in ("speculative", "baseline")]
    assert texts[0] == texts[1] and "```python" in texts[0]
    expect(page.locator("[data-identical]")).to_contain_text("identical to the baseline.")
    counts = legend_counts(trace["rounds"])
    assert all(counts[outcome] for outcome in ("accepted", "rejected", "corrected", "bonus"))
    for name in LEGEND:
        expect(page.locator(f"[data-count={name}]")).to_have_text(str(counts[name]))
    marks = visitor.lane("speculative").locator("[data-block=code] [data-outcome]")
    assert marks.count() > 10

    visitor.button("text").click()
    rows = page.evaluate(CODE)
    code = texts[0].split("```python\n")[1].split("```")[0]
    shown = "\n".join(row["text"].rstrip() for row in rows)
    assert shown.strip() == "\n".join(line.rstrip() for line in code.split("\n")).strip()
    assert any(row["text"].startswith("    ") for row in rows), "indentation is kept"
    assert all("Mono" in row["face"] for row in rows)
    assert any(isinstance(part, ast.FunctionDef) for part in ast.parse(shown).body)


def text_of(trace: Any, lane: str) -> str:
    rounds = [round for round in trace["rounds"] if round["lane"] == lane]
    return "".join(token["text"] for round in rounds for token in emitted(round))
