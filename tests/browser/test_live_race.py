"""A run in a real browser: it streams, its counts add up and equal the metrics, and it stops."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import pytest
from filed import LEGEND, emitted, legend_counts
from playwright.sync_api import expect
from sentences import Sentences
from serve import UNHURRIED
from visitor import PATIENCE, Visit, Visitor, headline_of, two_places, wait_for

from specviz import Trace, compute_metrics
from specviz.core.lanes import LANES
from specviz.runs.series import series

MARKS = """(tokens) => tokens.map(({ classList, dataset }) =>
  classList.contains("own") ? "own" : dataset.outcome)"""

# Layout shifts outside the lanes' texts, in which growing words move to the next line.
MOVED = """() => new Promise((told) => {
  const inLane = ({ node }) =>
    !node || (node.closest ? node : node.parentElement)?.closest("[data-lane]");
  const counts = (one) => !one.hadRecentInput && !one.sources.every(inLane);
  new PerformanceObserver((list) => told(
    list.getEntries().filter(counts).reduce((sum, one) => sum + one.value, 0)
  )).observe({ type: "layout-shift", buffered: true });
})"""


def test_a_run_streams_into_both_lanes_and_its_counts_add_up(visitor: Visitor) -> None:
    expect(visitor.player).to_have_attribute("data-state", "idle")
    visitor.set("number input for Length", 24)
    visitor.prompt(UNHURRIED)
    visitor.button("Run").click()
    visitor.page.wait_for_selector("[data-state=running] [data-lane=speculative] [data-index]")
    visitor.page.wait_for_selector("[data-state=running] [data-lane=baseline] [data-index]")
    visitor.state("ended")

    counts = {
        name: int(visitor.page.locator(f"[data-count={name}]").inner_text()) for name in LEGEND
    }
    assert counts == legend_counts(visitor.trace()["rounds"])
    tokens = visitor.lane("speculative").locator("[data-outcome]")
    drawn = tokens.evaluate_all(MARKS)
    assert counts == {name: drawn.count(name) for name in LEGEND}
    rounds = [r for r in visitor.trace()["rounds"] if r["lane"] == "speculative"]
    drafted = sum(len(r["drafted"]) for r in rounds)
    written = sum(len(emitted(r)) for r in rounds)
    assert counts["accepted"] + counts["rejected"] + counts["ignored"] == drafted
    target_tokens = counts["corrected"] + counts["bonus"] + counts["own"]
    assert counts["accepted"] + target_tokens == written == 24
    places = [int(token.get_attribute("data-index") or -1) for token in tokens.all()]
    assert places == list(range(len(drawn)))
    assert visitor.lane("baseline").locator("[data-outcome=bonus]").count() == 24
    # Spontaneous layout shifts since the page was opened, as a share of the visible area.
    assert visitor.page.evaluate(MOVED) < 0.02


def test_every_number_equals_the_metrics_of_the_trace(
    visitor: Visitor, sentences: Sentences
) -> None:
    visitor.prompt("the cat")
    visitor.set("number input for Length", 24)
    for temperature in (0, 1):
        visitor.set("number input for Temperature", temperature)
        trace = Trace.from_dict(visitor.run())
        assert trace.header.settings.temperature == temperature
        check_numbers(visitor, trace)
        if temperature == 0:
            assert trace.end is not None and trace.end.identical is True
            said = visitor.page.locator("[data-identical]")
            expect(said).to_contain_text("24/24")
            sentences(said.inner_text())


def check_numbers(visitor: Visitor, trace: Trace) -> None:
    """Check that all numbers of the page equal Python's; test_why checks those of the panel."""
    metrics = compute_metrics(trace)
    shown = visitor.page.evaluate("window.specviz.metrics")
    for name, value in asdict(metrics).items():
        if name in shown:
            assert shown[name] == approximately(value), name
    assert len(shown) >= 18
    points = visitor.page.evaluate("window.specviz.series")
    assert points == approximately(series(trace.rounds))

    text = visitor.page.locator("[data-headline]").inner_text()
    assert text == headline_of(trace)
    for name in ("alpha", "tau"):
        shown_figure = visitor.page.locator(f"[data-line={name}] [data-metric]")
        expect(shown_figure).to_have_text(two_places(getattr(metrics, name)))
    formula = f"{two_places(metrics.tau_predicted)} formula"
    expect(visitor.page.locator("[data-head=tau] small")).to_have_text(formula)


def approximately(value: Any) -> Any:
    """Compare nested values up to the rounding of sums."""
    if isinstance(value, dict):
        return {key: approximately(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [approximately(item) for item in value]
    return pytest.approx(value, rel=1e-9) if isinstance(value, float) else value


def test_stop_ends_both_lanes_and_the_next_run_works(visitor: Visitor) -> None:
    visitor.set("number input for Length", 512)
    visitor.prompt(UNHURRIED)
    visitor.begin(visitor.button("Run"))
    expect(visitor.lane("baseline").locator("[data-index='5']")).to_be_attached()
    visitor.button("Stop").click()
    visitor.state("ended")
    trace = visitor.trace()
    assert trace["header"]["lanes"]["speculative"]["max_new_tokens"] == 512
    assert set(trace["end"]["reasons"].values()) == {"stopped"}
    written = sum(len(emitted(r)) for r in trace["rounds"] if r["lane"] == "speculative")
    assert written < 512

    visitor.set("number input for Length", 16)
    again = visitor.run()
    assert sum(len(emitted(r)) for r in again["rounds"]) == 32
    assert again["end"]["reasons"] == {"speculative": "length", "baseline": "length"}


def test_what_gets_lost_on_the_way_is_asked_for_again(visitor: Visitor) -> None:
    visitor.set("number input for Length", 64)
    visitor.prompt("lose some of it")
    trace = Trace.from_dict(visitor.run())
    assert trace.end is not None
    for lane in LANES:
        assert [r.index for r in trace.lane(lane)] == list(range(len(trace.lane(lane))))
        assert sum(len(r.emitted) for r in trace.lane(lane)) == 64


def test_run_again_replaces_a_run_that_is_under_way(visitor: Visitor) -> None:
    visitor.set("number input for Length", 512)
    visitor.prompt(UNHURRIED)
    visitor.button("Run").click()
    expect(visitor.lane("baseline").locator("[data-index='5']")).to_be_attached()
    visitor.set("number input for Length", 8)
    visitor.prompt("the mat")
    # Stop replaces Run. Without a stop, the first run would outlast this wait.
    visitor.page.get_by_label("Prompt", exact=True).press("Enter")
    wait_for(
        visitor.page, "window.specviz.trace?.header.prompt === 'the mat'", timeout=PATIENCE / 2
    )
    visitor.state("ended")
    trace = visitor.trace()
    assert sum(len(emitted(r)) for r in trace["rounds"]) == 16


def test_two_visitors_at_once_each_get_their_own_run(visitor: Visitor, visit: Visit) -> None:
    one = visitor
    other = visit()
    asked = ((one, UNHURRIED, 28), (other, "don't stop", 20))
    for each, prompt, length in asked:
        each.prompt(prompt)
        each.set("number input for Length", length)
    one.button("Run").click()
    expect(one.lane("baseline").locator("[data-index='3']")).to_be_attached()
    other.button("Run").click()
    expect(other.lane("speculative").locator("[data-phase]")).to_contain_text("1 other run")
    for each, prompt, length in asked:
        each.state("ended")
        trace = each.trace()
        assert trace["header"]["prompt"] == prompt
        assert sum(len(emitted(r)) for r in trace["rounds"]) == 2 * length
        expect(each.lane("speculative").locator(".sv-given")).to_have_text(prompt)


def test_a_closed_tab_ends_its_run(visitor: Visitor, visit: Visit) -> None:
    one = visit()
    other = visitor
    one.set("number input for Length", 512)
    one.prompt(UNHURRIED)
    one.button("Run").click()
    expect(one.lane("baseline").locator("[data-index='5']")).to_be_attached()
    other.set("number input for Length", 8)
    other.button("Run").click()
    waiting = other.lane("speculative").locator(".sv-pending")
    expect(waiting.locator("[data-phase]")).to_contain_text("ahead of yours")
    expect(waiting.locator(".sv-waiting-time")).to_have_text(
        re.compile(r"^\d+ s elapsed · .* left")
    )
    one.page.close()
    other.state("ended")
    expect(waiting).to_have_count(0)


def test_a_run_that_is_stopped_in_line_leaves_the_one_before_as_what_it_is(
    visitor: Visitor, visit: Visit, sentences: Sentences
) -> None:
    visitor.set("number input for Length", 8)
    visitor.prompt("the cat")
    visitor.run()
    one = visit()
    one.set("number input for Length", 512)
    one.prompt(UNHURRIED)
    one.begin(one.button("Run"))
    visitor.prompt("the dog")
    visitor.button("Run").click()
    ours = visitor.lane("speculative")
    expect(ours.locator("[data-phase]")).to_contain_text("ahead of yours")
    expect(ours.locator(".sv-given")).to_have_text("the dog")
    expect(ours.locator("[data-index]")).to_have_count(0)
    visitor.button("Stop").click()
    expect(ours.locator(".sv-given")).to_have_text("the cat")
    expect(visitor.player).to_have_attribute("data-faded", "")
    stale = visitor.page.locator("[data-stale]")
    expect(stale).to_contain_text("another prompt")
    sentences(stale.inner_text())
    visitor.prompt("the cat")
    expect(visitor.player).not_to_have_attribute("data-faded", "")
    one.page.close()


def test_a_fast_run_is_played_again_slowly_and_repeated_on_demand(visitor: Visitor) -> None:
    page = visitor.page
    visitor.set("number input for Length", 10)
    visitor.run()
    said = page.locator("[data-repeats]")
    page.get_by_role("button", name="Repeat ×5").click()
    # On a busy machine some of these short runs may give no fair ratio, but there are always five.
    expect(said).to_contain_text(re.compile("median|no fair ratio"), timeout=PATIENCE)
    assert sum(map(int, re.findall(r"(\d) runs?\b", said.inner_text()))) == 5
    page.evaluate("window.isHurried = true")
    visitor.run()
    visitor.state("running")  # without a key press
    expect(page.locator("[data-speed]")).not_to_have_value("1")
    assert page.evaluate("window.specviz.position < window.specviz.events")
