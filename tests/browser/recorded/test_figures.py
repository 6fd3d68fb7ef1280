"""Figures of what is shown: all that a frame tells comes from the same rounds."""

from __future__ import annotations

from playwright.sync_api import Page, expect
from visitor import Visitor

# In every frame of some seconds: what the page says in one place of what it shows in another. A
# watch is a list of the frames whose figures contradict each other.
WATCH = """(seconds) => new Promise((done) => {
  const text = (selector) => document.querySelector(selector).textContent;
  const share = (part, whole) => (whole ? (part / whole).toFixed(2) : "–");
  const found = { looks: 0, wrong: [], rounds: new Set() };
  const until = performance.now() + 1000 * seconds;
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
    if (performance.now() < until) requestAnimationFrame(look);
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
    found = visitor.page.evaluate(WATCH, 2.5)
    assert found["looks"] > 20 and found["rounds"] > 3
    assert found["wrong"] == []


def test_before_the_first_round_figures_are_dashes(visitor: Visitor) -> None:
    page = visitor.page
    play_anew(page, "1")
    page.locator("[data-scrub]").fill("0")
    for name in ("alpha", "tau", "speed"):
        expect(page.locator(f"[data-line={name}] [data-metric]")).to_have_text("–")
        expect(page.locator(f"[data-line={name}] [data-metric]")).to_be_visible()
