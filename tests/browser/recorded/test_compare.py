"""Two runs side by side, and the stage's questions, with the figures of the recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect
from sentences import Sentences
from visitor import Visitor, wait_for

from specviz import Trace, compute_metrics
from specviz.core.lanes import LANES, Lane

FACTS = """() => [...document.querySelectorAll(".sv-compare table.is-other tr + tr")]
  .map((row) => [...row.children].map((cell) => cell.textContent))"""
FIGURES = """() => [...document.querySelectorAll(".sv-compare table.is-figures tr + tr")]
  .map((row) => [...row.querySelectorAll("td")].map((cell) => cell.innerText.split("\\n")[0]))"""
LAST_POINTS = """() => [...document.querySelectorAll(".sv-curves .sv-line")]
  .map((path) => path.getTotalLength() > 100)"""


SAME = "The texts are the same for {} characters."
TEXTS = """async (written) => {
  const { texts } = await import("specviz/compare/compare.js");
  const sides = written.map((text) => ({ name: "Earlier", trace: {
    header: { prompt: "same" }, rounds: [{ lane: "speculative", emitted: [{ text }] }] } }));
  const [said, both] = texts(sides);
  return [said.textContent, ...[...both.querySelectorAll("mark")].map((one) => one.textContent)];
}"""


def mean_seconds(trace: Trace, lane: Lane) -> float:
    """The mean seconds of a round of a lane."""
    taken = [r.draft_seconds + r.verify_seconds + r.overhead_seconds for r in trace.lane(lane)]
    return sum(taken) / len(taken)


def recordings(shelf: Path, names: list[str]) -> list[Trace]:
    return [Trace.load(shelf / f"{name}.json.gz") for name in names[:2]]


def test_the_last_two_runs_are_compared_once_there_are_two(
    visitor: Visitor, shelf: Path, names: list[str], sentences: Sentences
) -> None:
    page = visitor.page
    page.set_viewport_size({"width": 390, "height": 844})
    visitor.playing()
    dialog = page.get_by_role("dialog", name="Two runs")
    page.keyboard.press("c")
    expect(dialog).to_contain_text("only one run so far")
    sentences(dialog.inner_text().splitlines()[-1])
    page.keyboard.press("c")
    expect(dialog).to_be_hidden()
    expect(visitor.button("Compare runs")).to_be_hidden()
    page.keyboard.press("2")
    wait_for(page, "window.specviz.trace.header.settings.gamma === 3")
    visitor.button("Compare runs").click()
    expect(dialog).to_be_visible()

    earlier, latest = recordings(shelf, names)
    facts = {name: values for name, *values in page.evaluate(FACTS)}
    assert facts["γ"] == ["γ 4", "γ 3"] and facts["Temperature"] == ["T 1", "greedy"]
    assert "Seed" not in facts
    ours = compute_metrics(earlier)
    others = compute_metrics(latest)
    shown = page.evaluate(FIGURES)
    both = (ours, others)
    assert shown[0] == [f"{one.speedup:.2f}×" for one in both]
    for row, name in enumerate(("alpha", "efficiency", "tau", "c"), start=1):
        assert shown[row] == [f"{getattr(one, name):.2f}" for one in both], name
    for row, lane in enumerate(LANES, start=5):
        speeds = [one.tokens_per_second[lane] for one in both]
        assert list(map(float, shown[row])) == pytest.approx(speeds, abs=0.051)  # one decimal
    assert shown[-1] == ["64", "40"]
    lead = dialog.locator(".sv-lead")
    expect(lead).to_contain_text(f"Earlier recording: {ours.speedup:.2f} times as fast as")
    expect(lead).to_contain_text(f"Latest recording: {others.speedup:.2f} times.")
    said = dialog.locator(".sv-times dd").all_inner_texts()
    means = [mean_seconds(trace, lane) for trace in (earlier, latest) for lane in LANES]
    for mean, text in zip(means, said, strict=True):
        assert f"{1000 * mean:.2f} ms" in text
    assert page.evaluate(LAST_POINTS) == [True] * 4
    expect(dialog).to_contain_text("The prompts differ")
    assert page.evaluate(TEXTS, ["one way", "one wall"]) == [SAME.format(6), "y", "ll"]
    assert page.evaluate(TEXTS, ["one", "one way"]) == [SAME.format(3), "the end", " way"]
    (same,) = page.evaluate(TEXTS, ["one", "one"])
    sentences(same)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()

    visitor.page.keyboard.press("1")  # shown before: the same two runs in the other order
    wait_for(page, "window.specviz.trace.header.settings.gamma === 4")
    page.keyboard.press("c")
    assert page.evaluate(FIGURES)[-1] == ["40", "64"]
    page.keyboard.press("Escape")


def test_a_question_is_asked_guessed_and_answered_by_its_run(
    visitor: Visitor, shelf: Path, names: list[str], sentences: Sentences
) -> None:
    page = visitor.page
    page.keyboard.press("1")
    wait_for(page, "window.specviz.trace?.header.settings.gamma === 4")
    visitor.playing()
    asked = page.locator("[data-ask]")
    answer = page.locator("[data-answer]")
    page.keyboard.press("q")  # from the page to the stage
    expect(asked).to_contain_text("Will it be accepted?")
    expect(page.locator("#topbar")).to_be_hidden()
    page.keyboard.press("q")
    m = compute_metrics(recordings(shelf, names)[1])
    expect(asked).to_contain_text(f"{m.efficiency:.2f}. Is that α?")
    wait_for(page, "window.specviz.trace.header.settings.gamma === 3")
    for key in ("a", "b", "b", "c"):  # there is no third answer
        page.keyboard.press(key)
    expect(page.get_by_role("button", name="B. No, α is higher 2")).to_be_visible()
    expect(page.locator("[data-headline]")).to_be_hidden()
    expect(answer).to_be_hidden()
    page.get_by_role("button", name="Show the answer").click()
    right = "B. No, α is higher" if m.alpha > 1.03 * m.efficiency else "A. Yes, that is α"
    expect(answer).to_contain_text(right)
    counts = m.counts
    judged = counts["accepted"] + counts["rejected"]
    kept = f"{counts['accepted']} of {judged} were accepted, α = {m.alpha:.2f}"
    expect(answer).to_contain_text(kept)
    sentences(page.locator("[data-tally]").inner_text())
    page.keyboard.press("PageUp")  # a presenter's remote: back, the answer, on
    expect(asked).to_contain_text("Will it be accepted?")
    page.keyboard.press("PageDown")
    expect(answer).to_contain_text("a draw decide")
    page.keyboard.press("PageDown")
    expect(asked).to_contain_text("Is that α?")
    page.keyboard.press("PageDown")
    expect(answer).to_contain_text(right)
    page.keyboard.press("1")  # another run, to which the answer does not apply
    expect(answer).to_be_hidden()
    expect(page.locator("h1")).to_be_visible()
