"""Cards, panels and the sampling experiment, with figures compared to Python's."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from filed import emitted
from node import called as computed
from playwright.sync_api import Locator, expect
from sentences import Sentences
from visitor import PATIENCE, Visitor, few_draws, headline_of, two_places, wait_for
from wording import chance, visible

from specviz import Token, Trace, compute_metrics
from specviz.core.events import margin_of
from specviz.core.policy import MAX_GAMMA

IMPORT = """async ([name, call, ...values]) => {
  return (await import(`specviz/${name}`))[call](...values);
}"""
INSIDE = """() => { const box = document.querySelector(".sv-card").getBoundingClientRect();
  return box.left >= 0 && box.top >= 0 && box.right <= innerWidth && box.bottom <= innerHeight; }"""


def called(visitor: Visitor, module: str, function: str, *values: Any) -> Any:
    return visitor.page.evaluate(IMPORT, [module, function, *values])


def card(visitor: Visitor, lane: str, index: int) -> str:
    """Open the card of a token by focus, and return its sentence."""
    visitor.page.mouse.move(0, 0)  # a token that scrolls under the mouse would open its own card
    visitor.page.keyboard.press("Escape")  # so that the browser treats the focus as a keyboard's
    visitor.lane(lane).locator(f"[data-index='{index}']").focus()
    expect(visitor.page.locator(".sv-card")).to_be_visible()
    return visitor.page.locator(".sv-card-reason").inner_text().replace("\u00a0", " ")


def tokens_of(trace: Trace) -> list[tuple[Token, list[Token]]]:
    """The tokens of the lane with drafts in page order, each with all tokens of its round."""
    shown = []
    for r in trace.lane("speculative"):
        own = [t for t in r.emitted if t.outcome != "accepted"]
        shown += [(token, [*r.drafted, *own]) for token in [*r.drafted, *own]]
    return shown


def figures(token: Token, around: list[Token]) -> list[str]:
    """The expected parts of the sentence on a sampled token, from the token's own numbers."""
    own = around[-1]
    word = visible(token.text)
    p = token.p
    q = token.q
    if token.outcome == "ignored":
        fell = next(i for i, other in enumerate(around) if other.outcome == "rejected")
        return [
            chance(q or 0),
            word,
            visible(around[fell].text),
            f"position {fell + 1} was",
            "never",
        ]
    if token.outcome == "bonus":
        return [chance(p or 0), "free", "All" if len(around) > 2 else "accepted"]
    assert p is not None and q is not None
    if token.outcome == "corrected":
        left = [c.probability for c in token.top_residual if c.id == token.id]
        return [word, chance(p), chance(q), *(f"{chance(one)} of the residual" for one in left)]
    said = [chance(p), chance(q), word]
    if token.outcome == "accepted" and p >= q:
        return [*said, "whatever the draw"]
    assert token.u is not None
    if token.outcome == "accepted":
        return [*said, "so it was accepted"]
    rest = ["rules it out"] if p == 0 else []
    return [*said, *rest, "rejected", f"then drew “{visible(own.text)}”"]


def check_odds(said: str, token: Token) -> None:
    """Check that the odds and the draw in a sentence, if any, are the token's, rounded."""
    found = re.search(r"p/q = ([\d.]+); u was ([\d.]+),", said)
    if found is None:
        assert "u was" not in said
        return
    assert token.p is not None and token.q and token.u is not None
    odds, draw = map(float, found.groups())
    assert (odds, draw) == pytest.approx((token.p / token.q, token.u), abs=0.005)
    assert (draw < odds) == (token.outcome == "accepted")


def bars_of(drawer: Locator) -> list[str]:
    """The speed-up at each bar of the panel's γ, from 1 on."""
    bars = drawer.locator(".sv-gammas i")
    return cast("list[str]", bars.evaluate_all("all => all.map((bar) => bar.dataset.value)"))


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_every_outcome_has_its_sentence(visitor: Visitor, width: int, height: int) -> None:
    visitor.set("number input for Length", 64)
    visitor.set("number input for Temperature", 1)
    visitor.page.keyboard.press("Escape")
    visitor.page.set_viewport_size({"width": width, "height": height})
    shown = tokens_of(Trace.from_dict(visitor.run()))
    seen = set()
    for index, (token, around) in enumerate(shown):
        kind = (token.outcome, token.outcome == "accepted" and (token.p or 0) >= (token.q or 0))
        if kind in seen:
            continue
        seen.add(kind)
        said = card(visitor, "speculative", index)
        for figure in figures(token, around):
            assert figure in said, kind
        check_odds(said, token)
        if token.outcome == "corrected":  # it replaces the rejected token
            fell = next(i for i, other in enumerate(around) if other.outcome == "rejected")
            title = visitor.page.locator(".sv-card-title small")
            assert title.inner_text().endswith(f", position {fell + 1}")
            expect(visitor.page.locator(".sv-card-numbers")).not_to_contain_text("min(1")
        wait_for(visitor.page, INSIDE)  # it stays inside once the page has scrolled
        listed = visitor.page.locator(".sv-card-lists ol")
        wanted = [token.top_q, token.top_p, token.top_residual]
        assert listed.count() == sum(bool(choices) for choices in wanted)
    assert {outcome for outcome, _ in seen} >= {"accepted", "rejected", "ignored", "corrected"}
    said = card(visitor, "baseline", 3)
    assert "one token" in said
    visitor.page.keyboard.press("Escape")
    expect(visitor.page.locator(".sv-card")).to_be_hidden()


def test_greedy_cards_speak_of_first_choices_and_the_panel_compares_the_lanes(
    visitor: Visitor, sentences: Sentences
) -> None:
    visitor.set("number input for Temperature", 0)
    visitor.set("number input for Length", 40)
    trace = Trace.from_dict(visitor.run())
    seen = set()
    for index, (token, around) in enumerate(tokens_of(trace)):
        if token.outcome in seen or token.outcome in ("ignored", "bonus"):
            continue
        seen.add(token.outcome)
        said = card(visitor, "speculative", index)
        other = around[-1] if token.outcome == "rejected" else token
        assert f"“{visible(token.text)}”" in said and f"“{visible(other.text)}”" in said
        assert "first choice" in said and chance(token.soft_p or 0) in said
    visitor.page.keyboard.press("Escape")

    visitor.page.locator("[data-panel-open=same]").click()
    drawer = visitor.page.get_by_role("dialog", name="the same text")
    expect(drawer).to_contain_text("40/40")
    sentences(drawer.locator("h2").inner_text())
    sentences(drawer.locator(".sv-lead").inner_text())
    alone = [token for r in trace.lane("baseline") for token in r.emitted]
    margins = [margin_of(token) or 0.0 for token in alone]
    least = min(range(len(alone)), key=margins.__getitem__)
    expect(drawer).to_contain_text(f"closest call was token {least + 1}")
    expect(drawer).to_contain_text(f"{margins[least]:.3f} nats apart")
    assert drawer.locator(".sv-flow span").count() == 40
    drawer.get_by_role("button", name="Run it again").click()
    expect(drawer).to_contain_text("The same run", timeout=PATIENCE)
    expect(drawer).to_contain_text("s recorded,")
    visitor.page.keyboard.press("Escape")


def test_the_panel_explains_the_speed_with_the_figures_of_the_run(visitor: Visitor) -> None:
    visitor.set("number input for Length", 48)
    visitor.set("number input for Temperature", 1)
    data = visitor.run()
    trace = Trace.from_dict(data)
    why = computed("facts/costs.js", "explain", data["rounds"], data["header"], MAX_GAMMA)
    page = visitor.page
    opener = page.get_by_role("button", name="Why this speed?")
    opener.focus()
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog", name="Why this speed?")
    expect(drawer).to_be_visible()
    row = drawer.locator("tr:has(> th:text-is('measured')) td").all_inner_texts()
    tau = sum(len(emitted(r)) for r in data["rounds"] if r["lane"] == "speculative")
    rounds = sum(r["lane"] == "speculative" for r in data["rounds"])
    assert row == [
        two_places(number) for number in (tau / rounds, why["costs"]["price"], why["speedup"])
    ]
    assert page.locator("[data-headline]").inner_text() == headline_of(trace)
    lead = drawer.locator(".sv-lead").inner_text()
    assert re.search(r"times as fast|about even|loses|no acceptance rate", lead)
    if why["break_even"] is not None:
        expect(drawer).to_contain_text(f"break-even of {two_places(why['break_even'])}")
    m = compute_metrics(Trace.from_dict(data))
    assert m.alpha is not None and m.c is not None
    expect(drawer).to_contain_text(f"accepted over drafted is {two_places(m.efficiency)}.")
    for name in ("alpha", "tau", "tau_predicted", "c", "efficiency"):
        shown_figure = page.locator(f"[data-metric={name}]")
        expect(shown_figure).to_be_visible()
        expect(shown_figure).to_have_text(two_places(getattr(m, name)))
    bars = bars_of(drawer)
    assert len(bars) == MAX_GAMMA
    if why["best_gamma"]:
        assert bars[why["best_gamma"] - 1] == two_places(why["best_speedup"])
    expect(drawer).to_contain_text(f"Measured in this run: {two_places(why['speedup'])}×.")
    drawer.get_by_role("slider", name="Cost of a guess").fill("1")
    alpha = float(drawer.get_by_role("slider", name="α").input_value())
    judging, drafted = why["costs"]["judging"], why["costs"]["gamma"]
    wanted = computed("facts/costs.js", "bestGamma", alpha, 1, judging, drafted, MAX_GAMMA)
    assert bars_of(drawer) == [two_places(speed) for speed in wanted["speeds"][1:]]
    drawer.get_by_role("slider", name="α").fill("0")
    expect(drawer.locator(".sv-whatif")).to_contain_text("no γ would pay")
    drawer.get_by_role("button", name="Back to this run").click()
    visitor.begin(drawer.get_by_role("button", name="Run with γ = 3"))
    visitor.state("ended")
    assert visitor.trace()["header"]["lanes"]["speculative"]["gamma"] == 3
    drawer.locator("h2").click()
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(opener).to_be_focused()


def test_draws_in_both_lanes_end_in_a_p_value(visitor: Visitor) -> None:
    page = visitor.page
    visitor.set("number input for Length", 8)
    visitor.set("number input for Temperature", 1)
    visitor.set("number input for Top-k", 3)
    visitor.run()
    page.locator("[data-panel-open=same]").click()
    drawer = page.get_by_role("dialog", name="the same text")
    expect(drawer).to_contain_text("same chances")
    # The first experiment must last until it is stopped; the other requests fewer draws.
    drawer.get_by_role("button", name=re.compile("^Draw")).click()
    drawer.get_by_role("button", name="Stop drawing").click()
    expect(drawer).to_contain_text("Stopped before")
    page.route("**/begin_sampling", few_draws)
    drawer.get_by_role("button", name=re.compile("^Draw")).click()
    expect(drawer.locator(".sv-result")).to_contain_text(
        re.compile(r"χ² = [\d.]+ with \d+ .*, p = [\d.]+\."), timeout=PATIENCE
    )
    page.unroute_all()
    expect(drawer.locator(".sv-result")).to_contain_text("40 draws")
    for lane in ("ours", "theirs"):
        counts = drawer.locator(f".sv-pair > span:has(.{lane}) small").all_inner_texts()
        assert 0 < sum(map(int, counts)) <= 40
    page.keyboard.press("Escape")
    visitor.set("number input for Top-k", 0)
    visitor.run()  # so the engine is free again


def test_a_listener_hears_rounds(visitor: Visitor) -> None:
    visitor.set("number input for Temperature", 0)
    visitor.set("number input for Length", 24)
    visitor.run()
    assert visitor.page.locator("[data-say]").inner_text().startswith("Round ")


def test_each_verdict_tells_its_own_numbers_and_typical_is_marked(visitor: Visitor) -> None:
    visitor.set("number input for Length", 48)
    visitor.set("number input for Temperature", 1)
    page = visitor.page
    visitor.unfold()
    page.get_by_role("radio", name="Block").check()
    trace = Trace.from_dict(visitor.run())
    assert trace.header.settings.verdict == "block"
    expect(page.locator("[data-item=verdict]")).to_have_text("block verdict")
    for outcome in ("accepted", "rejected", "ignored"):
        tokens = [token for token, _ in tokens_of(trace)]
        index = next(i for i, t in enumerate(tokens) if t.outcome == outcome and t.u is not None)
        said = card(visitor, "speculative", index)
        numbers = (tokens[index].weight, tokens[index].threshold, tokens[index].u)
        found = [float(one) for one in re.findall(r"(?:is|threshold|was) (\d[\d.e-]*\d)", said)]
        assert found == pytest.approx(numbers, rel=0.06, abs=5e-4), said
    visitor.unfold()  # Escape has closed the settings
    page.get_by_role("radio", name="Typical").check()
    trace = Trace.from_dict(visitor.run())
    assert not trace.header.settings.exact
    expect(page.locator("[data-item=verdict]")).to_contain_text("changes the text")
    expect(page.locator("[data-item=verdict]")).to_have_css("color", "rgb(213, 94, 0)")
    expect(page.locator("[data-verdict]")).to_contain_text("changes the target’s distribution")
    expect(page.locator("[data-identical]")).to_contain_text("not the target’s")
    assert "threshold" in card(visitor, "speculative", 0)
    expect(page.locator(".sv-card .sv-inexact")).to_be_visible()
