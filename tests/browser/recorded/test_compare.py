"""Two runs side by side, and the stage's questions: their figures are those of the recordings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from visitor import Visit, Visitor
from wording import visible

from specviz import Token, Trace, compute_metrics
from specviz.environment import ASSETS
from specviz.lanes import LANES, Lane
from specviz.runs.metrics import Metrics
from specviz.runs.recording import read_recording

FACTS = """() => [...document.querySelectorAll(".sv-compare table.is-other tr + tr")]
  .map((row) => [...row.children].map((cell) => cell.textContent))"""
FIGURES = """() => [...document.querySelectorAll(".sv-compare table.is-figures tr + tr")]
  .map((row) => [...row.querySelectorAll("td")].map((cell) => cell.innerText.split("\\n")[0]))"""
LAST_POINTS = """() => [...document.querySelectorAll(".sv-curves path")]
  .map((path) => path.getTotalLength() > 100)"""


SAME = "The texts are the same for {} characters."
TEXTS = """async (written) => {
  const { texts } = await import("specviz/compare/parts.js");
  const sides = written.map((text) => ({ name: "Earlier", trace: {
    header: { prompt: "same" }, rounds: [{ lane: "speculative", emitted: [{ text }] }] } }));
  const [said, both] = texts(sides);
  return [said.textContent, ...[...both.querySelectorAll("mark")].map((one) => one.textContent)];
}"""
ANSWERS = """async (runs) => {
  const { QUESTIONS } = await import("specviz/stage/questions.js");
  return QUESTIONS.map(({ run, beside, ask, reveal }) => {
    const parts = [runs[run], runs[beside]];
    return [run, ask(...parts), reveal(...parts).right, reveal(...parts).why];
  });
}"""


def mean_seconds(trace: Trace, lane: Lane) -> float:
    """Of a round of a lane."""
    taken = [r.draft_seconds + r.verify_seconds + r.overhead_seconds for r in trace.lane(lane)]
    return sum(taken) / len(taken)


def recordings(shelf: Path, names: list[str]) -> list[Trace]:
    return [Trace.load(shelf / f"{name}.json.gz") for name in names[:2]]


def test_the_last_two_runs_are_compared_once_there_are_two(
    visit: Visit, shelf: Path, names: list[str]
) -> None:
    visitor = visit(width=390, height=844)
    visitor.playing()
    page = visitor.page
    dialog = page.get_by_role("dialog", name="The last two runs, side by side")
    page.keyboard.press("c")
    expect(dialog).to_contain_text("only one run yet")
    page.keyboard.press("c")
    expect(dialog).to_be_hidden()
    page.keyboard.press("2")
    page.wait_for_function("window.specviz.trace.header.settings.gamma === 3")
    visitor.button("Compare").click()
    expect(dialog).to_be_visible()

    earlier, latest = recordings(shelf, names)
    facts = {name: values for name, *values in page.evaluate(FACTS)}
    assert facts["γ"] == ["γ 4", "γ 3"] and facts["Temperature"] == ["T 1", "greedy"]
    assert "Seed" not in facts
    ours, others = compute_metrics(earlier), compute_metrics(latest)
    shown, both = page.evaluate(FIGURES), (ours, others)
    assert shown[0] == [f"{one.speedup:.2f}×" for one in both]
    for row, name in enumerate(("alpha", "efficiency", "tau", "c"), start=1):
        assert shown[row] == [f"{getattr(one, name):.2f}" for one in both], name
    for row, lane in enumerate(LANES, start=5):
        speeds = [one.tokens_per_second[lane] for one in both]
        assert list(map(int, shown[row])) == pytest.approx(speeds, abs=0.51)
    assert shown[-1] == ["64", "40"]
    ratios = (
        f"{ours.speedup:.2f} times as fast as the target alone, the latest {others.speedup:.2f}"
    )
    expect(dialog.locator(".sv-lead")).to_contain_text(f"The earlier run was {ratios}")
    said = dialog.locator(".sv-times dd").all_inner_texts()
    means = [mean_seconds(trace, lane) for trace in (earlier, latest) for lane in LANES]
    for mean, text in zip(means, said, strict=True):
        assert f"{1000 * mean:.2f} ms" in text
    assert page.evaluate(LAST_POINTS) == [True] * 4
    expect(dialog).to_contain_text("The prompts differ")
    assert page.evaluate(TEXTS, ["one way", "one wall"]) == [SAME.format(6), "y", "ll"]
    assert page.evaluate(TEXTS, ["one", "one way"]) == [SAME.format(3), "the end", " way"]
    (same,) = page.evaluate(TEXTS, ["one", "one"])
    assert same == "Draft and target wrote the same text in both runs."
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()

    visitor.page.keyboard.press("1")  # shown before: the same two, the other way round
    page.wait_for_function("window.specviz.trace.header.settings.gamma === 4")
    page.keyboard.press("c")
    assert page.evaluate(FIGURES)[-1] == ["40", "64"]


def test_a_question_is_asked_guessed_and_answered_by_its_run(
    visit: Visit, shelf: Path, names: list[str]
) -> None:
    visitor = visit()
    visitor.playing()
    page = visitor.page
    asked, answer = page.locator("[data-ask]"), page.locator("[data-answer]")
    page.keyboard.press("q")  # from the page to the stage
    expect(asked).to_contain_text("Will it be kept?")
    expect(page.locator("#topbar")).to_be_hidden()
    page.keyboard.press("q")
    m = compute_metrics(recordings(shelf, names)[1])
    expect(asked).to_contain_text(f"{m.efficiency:.2f}. Is that α?")
    page.wait_for_function("window.specviz.trace.header.settings.gamma === 3")
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
    expect(answer).to_contain_text(f"{counts['accepted']} of {judged} held, α = {m.alpha:.2f}")
    expect(page.locator("[data-tally]")).to_have_text("The room guessed: 1 A, 2 B.")
    page.keyboard.press("PageUp")  # a presenter's remote: back, the answer, on
    expect(asked).to_contain_text("Will it be kept?")
    page.keyboard.press("PageDown")
    expect(answer).to_contain_text("p, q and a draw decide")
    page.keyboard.press("PageDown")
    expect(asked).to_contain_text("Is that α?")
    page.keyboard.press("PageDown")
    expect(answer).to_contain_text(right)
    page.keyboard.press("1")  # another run: what was said is not about it
    expect(answer).to_be_hidden()
    expect(page.locator("h1")).to_be_visible()
    check_answers(visitor)


def check_answers(visitor: Visitor) -> None:
    """What each question says of the recordings that ship is what Python counts in them."""
    paths = sorted((ASSETS / "recordings").glob("*.json.gz"))
    runs = {path.name.removesuffix(".json.gz"): read_recording(path.read_bytes()) for path in paths}
    said = visitor.page.evaluate(ANSWERS, {name: run.to_dict() for name, run in runs.items()})
    assert [name for name, *_ in said] == [
        *("hard", "one-guess", "hard", "long-drafts", "copies", "high-temperature", "easy")
    ]
    m = {name: compute_metrics(run) for name, run in runs.items()}
    likely, one, judged, longer, copied, hot, letters = (
        (asked, right, why.replace("\u00a0", " ")) for _, asked, right, why in said
    )
    refused = [t for t in drafted(runs["hard"]) if t.outcome == "rejected" and t.u is not None]
    token = max(refused, key=lambda t: t.p)
    assert likely[1] == 1 and f"“{visible(token.text)}” was refused" in likely[2]
    for number in (token.p, token.q, token.p / token.q, token.u):
        assert f" {number:.2f}" in likely[2]

    own = m["one-guess"]
    assert one[1] == place(own.speedup, 1) and f"τ = {own.tau:.2f}" in one[2]
    assert f"{100 * own.alpha:.0f} % of the guesses hold" in one[2] and ratio(own) in one[2]
    assert judged[1] == (place(m["hard"].alpha, m["hard"].efficiency) == 0)
    assert f"other {m['hard'].counts['ignored']} guesses" in judged[2]
    own, other = m["long-drafts"], m["hard"]
    assert longer[1] == place(own.speedup, other.speedup)
    assert f"yields {own.tau:.2f} tokens instead of {other.tau:.2f}" in longer[2]
    assert f"{ratio(own)} " in longer[2] and f"instead of {ratio(other)}" in longer[2]
    own = m["copies"]
    assert copied[1] == (place(own.tau, own.speedup) == 0) and f"not {own.tau:.2f}×" in copied[2]
    taken = [sum(getattr(r, part) for r in runs["copies"].lane("speculative")) for part in PARTS]
    share = float(re.findall(r"([\d.]+) %", copied[2])[0])
    assert share == pytest.approx(100 * taken[0] / sum(taken), rel=0.06)
    alphas = [f"{m[name].alpha:.2f}" for name in ("easy", "high-temperature")]
    assert hot[1] == 1 and re.search("α is {} at .* and {} at".format(*alphas), hot[2])
    parted = parting(runs["easy"])
    assert letters[1] == (parted is not None)
    assert (f"part after {parted} token" if parted is not None else "Here all") in letters[2]


PARTS = ("draft_seconds", "verify_seconds", "overhead_seconds")


def drafted(run: Trace) -> list[Token]:
    return [token for r in run.lane("speculative") for token in r.drafted]


def place(value: float, than: float) -> int:
    """Of the answers "higher", "lower" and "about the same"."""
    return 0 if value > 1.03 * than else 1 if value < 0.97 * than else 2


def ratio(m: Metrics) -> str:
    return f"{m.speedup:.2f}×"


def parting(run: Trace) -> int | None:
    """The first place at which the lanes differ."""
    ours, theirs = ([t.id for r in run.lane(lane) for t in r.emitted] for lane in LANES)
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
