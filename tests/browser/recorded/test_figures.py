"""Figures of what is shown: all that a frame tells comes from the same rounds."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect
from visitor import Visitor, two_places, wait_for

from specviz import Trace, compute_metrics
from specviz.core.policy import MOST_GAMMA

PAYING = Path(__file__).resolve().parents[2] / "runs" / "recorded" / "easy.json.gz"
"""A run of the built-in pair, whose draft is cheap."""

# In every frame, until enough rounds were seen: what the page says in one place of what it shows in
# another. `wrong` are the frames whose figures contradict each other.
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


# Where the line "1×" of the bars lies, and where bars end: px from the window's upper edge.
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
    # What a small random pair costs here differs from run to run; with a draft that is too dear for
    # any acceptance rate there are no bars.
    page.locator("[data-open]").set_input_files(PAYING)
    rounds = len(Trace.load(PAYING).rounds)
    wait_for(page, "n => window.specviz.trace?.rounds.length === n", arg=rounds)
    page.get_by_role("button", name="Why this speed?").click()
    for alpha in ("0.3", "0.6", "0.9"):
        page.get_by_role("slider", name="α, accepted of judged").fill(alpha)
        seen = page.evaluate(BARS)
        assert len(seen["bars"]) == MOST_GAMMA
        for value, top in seen["bars"]:
            if abs(value - 1) > 0.1:  # nearer ones end within the line's own width
                assert (top < seen["line"]) == (value > 1), (alpha, value, top, seen["line"])
    page.keyboard.press("Escape")
