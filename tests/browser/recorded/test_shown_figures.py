"""The shown figures: all figures of a frame come from the same rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from visitor import Visitor, two_places, wait_for

from specviz import Trace, compute_metrics
from specviz.core.policy import MAX_GAMMA

PAYING = Path(__file__).resolve().parents[2] / "runs" / "recorded" / "easy.json.gz"
"""A run of the built-in pair, with a cheap draft."""

# Compare the figures in different places of the page in every frame, until enough rounds were seen.
# `wrong` holds the frames whose figures contradict each other.
WATCH = """(enough) => new Promise((done) => {
  const text = (selector) => document.querySelector(selector).textContent;
  const share = (part, whole) => (whole ? (part / whole).toFixed(2) : "–");
  const found = { looks: 0, wrong: [], rounds: new Set() };
  const isOver = () => document.querySelector("[data-player]").dataset.state === "ended";
  function look() {
    const count = (name) => Number(text(`[data-count="${name}"]`));
    const passes = Number(/^\\d+/.exec(text('[data-sums="speculative"]'))[0]);
    const written = count("accepted") + count("corrected") + count("bonus") + count("own");
    const alone = Number(/^\\d+/.exec(text('[data-sums="baseline"]'))[0]);
    const [alpha, tau] = ["alpha", "tau"].map((name) => text(`[data-metric="${name}"]`));
    const figure = document.querySelector('[data-line="alpha"] > div');
    const dot = figure.querySelector(".sv-dot");
    const room = figure.clientHeight - 8 - 24; // px, of the axis from 0 to 1
    const drawn = dot && ((figure.clientHeight - 24 - Number(dot.getAttribute("cy"))) / room);
    const isDotRight = dot ? Math.abs(drawn - Number(alpha)) < 0.01 : alpha === "–";
    const expected = {
      alpha: share(count("accepted"), count("accepted") + count("rejected")),
      tau: share(written, passes),
      passes: String(passes + alone),
      dot: true,
    };
    const told = { alpha, tau, passes: text("[data-position]").split(" ")[0], dot: isDotRight };
    found.looks += 1;
    found.rounds.add(passes);
    if (JSON.stringify(expected) !== JSON.stringify(told)) found.wrong.push({ expected, told });
    if (found.rounds.size < enough && !isOver()) requestAnimationFrame(look);
    else done({ ...found, rounds: found.rounds.size });
  }
  look();
})"""


def play_anew(page: Page, speed: str) -> None:
    page.locator("[data-speed]").select_option(speed)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("r")


def test_in_every_frame_all_figures_come_from_the_same_rounds(visitor: Visitor) -> None:
    play_anew(visitor.page, "10")
    found = visitor.page.evaluate(WATCH, 12)
    assert found["looks"] > found["rounds"] > 3
    assert found["wrong"] == []


def test_before_the_first_round_figures_are_dashes(visitor: Visitor) -> None:
    page = visitor.page
    play_anew(page, "1")
    page.locator("[data-scrub]").fill("0")
    for name in ("alpha", "tau", "speed"):
        expect(page.locator(f"[data-line={name}] [data-metric]")).to_have_text("–")
        expect(page.locator(f"[data-line={name}] [data-metric]")).to_be_visible()


# The positions of the line "1×" and of the ends of the bars: px from the window's upper edge.
BARS = """() => {
  const list = document.querySelector(".sv-gammas");
  const line = getComputedStyle(list, "::after");
  const [, down] = /(-?[\\d.]+)%$/.exec(line.translate) ?? [0, 0];
  const height = parseFloat(line.height);
  const upper = list.getBoundingClientRect().bottom - parseFloat(line.bottom) - height;
  const bars = [...list.querySelectorAll("i")];
  return {
    line: upper + (height * down) / 100,
    bars: bars.map((bar) => [Number(bar.dataset.value), bar.getBoundingClientRect().top]),
  };
}"""


def test_the_panel_why_is_about_the_whole_run_wherever_the_playhead_stands(
    visitor: Visitor, shelf: Path, names: list[str]
) -> None:
    page = visitor.page
    page.locator("#presets .preset").first.click()
    run = Trace.load(shelf / f"{names[0]}.json.gz")
    wait_for(page, "n => window.specviz.trace.rounds.length === n", arg=len(run.rounds))
    m = compute_metrics(run)
    drawer = page.get_by_role("dialog", name="Why this speed?")
    page.get_by_role("button", name="Why this speed?").click()
    for share in (0.3, 1):
        page.locator("[data-scrub]").fill(str(int(share * page.evaluate("window.specviz.events"))))
        for name in ("c", "tau_predicted", "efficiency"):
            figure = drawer.locator(f".sv-greek [data-metric={name}]")
            expect(figure).to_have_text(two_places(getattr(m, name)))
        measured = drawer.locator("tr:has(> th:text-is('measured')) td").first
        expect(measured).to_have_text(two_places(m.tau))
    page.keyboard.press("Escape")


def test_a_bar_ends_above_the_line_of_the_target_alone_if_its_gamma_pays(visitor: Visitor) -> None:
    page = visitor.page
    # The costs of a small random pair vary from run to run, and there are no bars if a draft is too
    # expensive at any acceptance rate.
    page.locator("[data-open]").set_input_files(PAYING)
    rounds = len(Trace.load(PAYING).rounds)
    wait_for(page, "n => window.specviz.trace?.rounds.length === n", arg=rounds)
    page.get_by_role("button", name="Why this speed?").click()
    for alpha in ("0.3", "0.6", "0.9"):
        page.get_by_role("slider", name="α, accepted of judged").fill(alpha)
        seen = page.evaluate(BARS)
        assert len(seen["bars"]) == MAX_GAMMA
        for value, top in seen["bars"]:
            if abs(value - 1) > 0.1:  # nearer bars end within the line's width
                assert (top < seen["line"]) == (value > 1), (alpha, value, top, seen["line"])
    page.keyboard.press("Escape")


# The positions of the crosshairs; null where there is none.
CROSSES = """() => {
  const shares = {};
  for (const figure of document.querySelectorAll("[data-line]")) {
    const cross = figure.querySelector(".sv-cross");
    shares[figure.dataset.line] = cross.hidden ? null : cross.getBoundingClientRect().left;
  }
  const cross = document.querySelector(".sv-timeline .sv-cross");
  shares.timeline = cross.hidden ? null : cross.getBoundingClientRect().left;
  shares.lanes = [...document.querySelectorAll("[data-lane]")].map((lane) => {
    const tokens = [...lane.querySelectorAll(".is-pointed [data-round]")];
    return [...new Set(tokens.map((token) => token.dataset.round))];
  });
  return shares;
}"""
MOMENT = ".sv-moment"


def test_a_moment_that_is_pointed_at_is_shown_in_all_charts_and_lanes(visitor: Visitor) -> None:
    page = visitor.page
    wait_for(page, "window.specviz.events > 0")
    page.keyboard.press("End")
    visitor.drawn()
    trace = Trace.from_dict(visitor.trace())
    ours = trace.lane("speculative")
    chart = page.locator("[data-line=alpha] > div").bounding_box()
    assert chart is not None
    # Point at a round in the chart of alpha, whose axis is rounds.
    left = chart["x"] + 34
    right = chart["x"] + chart["width"] - 92
    place = len(ours) // 2
    x = left + (right - left) * (place - 1) / (len(ours) - 1)
    page.mouse.move(x, chart["y"] + 40)
    expect(page.locator(MOMENT)).to_contain_text(f"Round {place} of {len(ours)}")
    clock = ours[place - 1].clock
    before = [r for r in trace.rounds if r.clock <= clock]
    m = compute_metrics(replace(trace, rounds=before))
    said = page.locator(MOMENT).inner_text()
    assert f"α {two_places(m.alpha)} · τ {two_places(m.tau)}" in said
    assert f"{sum(len(r.emitted) for r in before if r.lane == 'speculative')} tokens" in said
    alone = sum(r.lane == "baseline" for r in before)
    assert f", {alone} alone" in said
    seen = page.evaluate(CROSSES)
    assert all(seen[name] is not None for name in ("tokens", "alpha", "tau", "speed", "timeline"))
    assert seen["alpha"] == pytest.approx(x, abs=2)
    other = [str(r.index) for r in trace.lane("baseline") if r.clock >= clock][:1]
    assert seen["lanes"] == [[str(place - 1)], other]

    # A token of a lane is a moment too; its card describes it.
    page.locator("[data-lane=baseline] [data-round='3']").first.scroll_into_view_if_needed()
    page.locator("[data-lane=baseline] [data-round='3'] .w").first.hover()
    wait_for(page, f"(({CROSSES})()).lanes[1][0] === '3'")
    expect(page.locator(MOMENT)).to_be_hidden()

    # So is a point on the timeline, and nothing stays when the pointer leaves.
    line = page.locator(".sv-timeline").bounding_box()
    assert line is not None
    page.mouse.move(line["x"] + line["width"] / 3, line["y"] + 10)
    expect(page.locator(MOMENT)).to_be_visible()
    page.mouse.move(5, 5)
    wait_for(page, f"(({CROSSES})()).tokens === null")
    expect(page.locator(MOMENT)).to_be_hidden()
    assert page.evaluate(CROSSES)["lanes"] == [[], []]


def test_why_this_speed_begins_with_its_sentence(visitor: Visitor) -> None:
    page = visitor.page
    page.locator("[data-panel-open=why]").click()
    body = page.locator(".sv-drawer-body")
    expect(body.locator(".sv-lead")).to_be_visible()
    first = body.evaluate("node => node.innerText.trim().split('\\n')[0]")
    assert first == body.locator(".sv-lead").first.inner_text()
    page.keyboard.press("Escape")
