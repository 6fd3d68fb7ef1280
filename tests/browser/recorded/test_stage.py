"""The stage: it fills any screen, obeys its keys, keeps a guess, and survives a failed run."""

from __future__ import annotations

from filed import emitted
from playwright.sync_api import Page, expect
from sentences import Sentences
from serve_recorded import UNLUCKY
from visitor import Visit, Visitor, wait_for

MEASURES = """() => {
  const sizes = (selector) => [...document.querySelectorAll(selector)]
    .filter((node) => node.getClientRects().length)
    .map((node) => parseFloat(getComputedStyle(node).fontSize));
  const { scrollWidth, scrollHeight } = document.documentElement;
  const outside = [...document.querySelectorAll(
    "[data-headline], [data-verdict], .sv-pill, .sv-bar, [data-lane], .sv-legend li, figure")]
    .filter((node) => {
      const box = node.getBoundingClientRect();
      return box.width && (box.left < 0 || box.top < 0 || box.right > innerWidth + 1
        || box.bottom > innerHeight + 1);
    }).map((node) => node.className || node.tagName);
  const wide = [...document.querySelectorAll(".sv-legend, .sv-lanes header")]
    .filter((node) => node.scrollWidth > node.clientWidth + 1).map((node) => node.className);
  return {
    headline: sizes("[data-headline]"), tokens: sizes("[data-lane] .t .w"),
    legend: sizes(".sv-legend li"), charts: sizes("figure").length,
    controls: sizes("#topbar, #panel, .sv-transport").length,
    over: [scrollWidth - innerWidth, scrollHeight - innerHeight], outside, wide,
  };
}"""
COVERED = """() => {
  const notice = document.querySelector(".sv-notice").getBoundingClientRect();
  return [...document.querySelectorAll(
    "[data-headline], [data-verdict], .sv-asked, [data-lane], .sv-legend li, figure")]
    .filter((node) => {
      const box = node.getBoundingClientRect();
      return box.left < notice.right && notice.left < box.right
        && box.top < notice.bottom && notice.top < box.bottom;
    }).map((node) => node.className || node.tagName);
}"""
TO_THE_END = """() => {
  const scrubber = document.querySelector("[data-scrub]");
  scrubber.value = scrubber.max;
  scrubber.dispatchEvent(new Event("input"));
}"""
FETCHED = """() => performance.getEntriesByType("resource")
  .filter(({ name, responseEnd }) => name.endsWith(".json.gz") && responseEnd).length === 2"""


def shown_ratio(page: Page) -> str:
    return page.locator("[data-headline]").inner_text()


def test_the_stage_fills_any_screen_and_is_read_from_afar(visit: Visit) -> None:
    visitor = visit(query="?stage=1&theme=dark")
    visitor.playing()
    page = visitor.page
    assert page.evaluate("document.body.classList.contains('dark')")
    for width, height in ((1280, 720), (1920, 1080), (3840, 2160)):
        page.set_viewport_size({"width": width, "height": height})
        for key in ("0", "-", "-", "+"):
            page.keyboard.press(key)
            visitor.drawn()
            seen = page.evaluate(MEASURES)
            assert seen["over"] == [0, 0] and not seen["outside"] and not seen["wide"], seen
            assert min(seen["headline"]) >= 48 and min(seen["tokens"]) >= 24
            assert len(seen["legend"]) == 6 and min(seen["legend"]) >= 20
            assert (seen["charts"], seen["controls"]) == (1, 0)
    assert min(seen["tokens"]) > 45  # type grows with the screen


def test_keys_of_the_stage(visitor: Visitor) -> None:
    visitor.playing()
    page = visitor.page
    page.locator("#presets .preset").first.click()  # this preset describes what it shows
    page.keyboard.press("s")
    expect(page.locator("#topbar")).to_be_hidden()
    expect(page.locator(".sv-transport")).to_be_hidden()
    expect(page.locator(".sv-notice")).to_be_visible()
    assert page.evaluate(COVERED) == []
    token = page.locator("[data-lane=baseline] .t .w").first
    size = "node => parseFloat(getComputedStyle(node).fontSize)"
    before = token.evaluate(size)
    page.keyboard.press("+")
    assert token.evaluate(size) > before
    page.keyboard.press("2")
    wait_for(page, "window.specviz.trace.header.settings.gamma === 3")
    page.keyboard.press("Space")
    visitor.state("paused")
    held = page.evaluate("window.specviz.position")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("window.specviz.position") == held + 1
    page.keyboard.press("Shift+ArrowRight")
    assert page.evaluate("window.specviz.position") > held + 1
    page.keyboard.press("r")
    visitor.state("running")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("s")  # this key does nothing in a dialog
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("?")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#topbar")).to_be_hidden()
    wait_for(page, "location.search.includes('stage=1')")
    page.keyboard.press("S")
    expect(page.locator("#topbar")).to_be_visible()
    wait_for(page, "!location.search.includes('stage')")
    for leave in (
        lambda: page.keyboard.press("Escape"),
        page.get_by_role("button", name="Leave the stage").click,
        page.go_back,
    ):
        page.locator("[data-toggle-stage]").first.click()
        expect(page.locator("#topbar")).to_be_hidden()
        leave()
        expect(page.locator("#topbar")).to_be_visible()
    page.get_by_label("Prompt", exact=True).focus()
    page.keyboard.type("sg?")
    expect(page.locator("#topbar")).to_be_visible()
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_guess_hides_all_that_gives_the_ratio_away(
    visitor: Visitor, sentences: Sentences
) -> None:
    page = visitor.page
    page.keyboard.press("s")
    page.keyboard.press("r")
    visitor.state("running")
    hidden = ["[data-headline]", "[data-verdict]", "[data-identical]", "figure[data-line=tokens]"]
    hidden += ["[data-sums=baseline]", "[data-bar=baseline]", "[data-count=accepted]"]
    question = page.get_by_text("Faster or slower than")
    for reveal in ("g", "Enter"):
        expect(question).to_be_hidden()
        page.keyboard.press("g")
        expect(question).to_be_visible()
        sentences(question.inner_text())
        for selector in hidden:
            expect(page.locator(selector)).to_be_hidden()
        assert "×" in page.locator(".sv-ratio").inner_text()
        page.evaluate(TO_THE_END)
        visitor.state("ended")
        expect(question).to_be_visible()  # only a key reveals the answer
        for key in ("ArrowUp", "ArrowUp", "ArrowDown"):
            page.keyboard.press(key)
        expect(page.get_by_role("button", name="Faster 2")).to_be_visible()
        page.keyboard.press(reveal)
        expect(page.locator("[data-tally]")).to_contain_text("2 faster")
        sentences(page.locator("[data-tally]").inner_text())
        expect(page.locator("[data-headline]")).to_be_visible()
        assert float(shown_ratio(page)) > 0
    expect(visitor.player).to_have_attribute("data-source", "recording")  # not run again by Enter
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page.locator("[data-headline]")).to_be_visible()


def test_a_run_that_fails_is_played_from_its_recording_on_stage_and_named_off_it(
    visit: Visit,
) -> None:
    visitor = visit(query=f"?stage=1&seed={UNLUCKY}")
    visitor.state("running")
    recorded = visitor.trace()
    page = visitor.page
    wait_for(page, "location.search.includes('seed=13')")
    page.keyboard.press("Enter")
    badge = page.locator("[data-badge]")
    expect(badge).to_contain_text("RECORDED (live failed) · CPU", timeout=60_000)
    visitor.state("running")
    assert visitor.trace() == recorded
    expect(page.locator("[data-notice]")).to_be_hidden()
    page.keyboard.press("s")
    visitor.button("Run").click()
    visitor.state("error")
    expect(page.locator("[data-notice]")).to_contain_text("Something went wrong")
    expect(visitor.player).to_have_attribute("data-source", "live")


def test_without_a_server_the_stage_goes_on(visit: Visit, names: list[str]) -> None:
    visitor = visit(query=f"?stage=1&preset={names[1]}")
    visitor.state("running")
    recorded = visitor.trace()
    wait_for(visitor.page, "performance.getEntriesByName('specviz-playing').length")
    wait_for(visitor.page, FETCHED)
    visitor.page.wait_for_load_state("networkidle")
    visitor.page.context.set_offline(True)
    forgiven = visitor.problems.copy()
    visitor.page.keyboard.press("Enter")
    expect(visitor.page.locator("[data-badge]")).to_contain_text(
        "RECORDED (live failed)", timeout=60_000
    )
    visitor.page.keyboard.press("1")  # it was fetched when the stage was entered
    wait_for(visitor.page, "window.specviz.trace.header.settings.gamma === 4")
    assert visitor.trace() != recorded
    visitor.page.context.close()
    # A browser reports many problems of a network that was switched off on purpose.
    visitor.problems[:] = forgiven


def test_the_same_seed_gives_the_same_run(visit: Visit) -> None:
    visitor = visit(query="?stage=1&length=24&seed=3")
    visitor.state("running")
    visitor.page.keyboard.press("Enter")
    expect(visitor.player).to_have_attribute("data-source", "live", timeout=60_000)
    visitor.state("ended")
    on_stage = visitor.trace()
    visitor.page.keyboard.press("s")
    texts = [
        ["".join(t["text"] for t in emitted(r)) for r in trace["rounds"]]
        for trace in (on_stage, visitor.run())
    ]
    assert sorted(texts[0]) == sorted(texts[1])  # the order of the lanes may differ


def test_esc_takes_a_question_away_before_the_stage(visitor: Visitor) -> None:
    page = visitor.page
    page.keyboard.press("s")
    for answered in (False, True):
        page.keyboard.press("g")
        expect(page.locator("[data-ask]")).to_be_visible()
        if answered:
            page.keyboard.press("g")
        page.keyboard.press("Escape")
        expect(page.locator("[data-ask]")).to_be_hidden()
        expect(page.locator("#topbar")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#topbar")).to_be_visible()
