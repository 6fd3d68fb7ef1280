"""Recordings in a real browser: they play at once, follow the playhead, and can be saved and opened
as files."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from filed import legend_counts
from machine_load import is_busy
from malformed_recordings import DAMAGED_FILES, INVALID
from playwright.sync_api import Browser, expect
from sentences import Sentences
from serve import UNHURRIED
from toy_recordings import SAMPLED, recorded, saved, sentence, values
from visitor import Visitor, two_places, wait_for

from specviz import Trace, compute_metrics
from specviz.core.lanes import LANES
from specviz.page.public import RECORDINGS
from specviz.runs.recording import MAX_PACKED, UNVERIFIED, read_recording

# Whether a lane has scrolled, and the number of words that its upper edge cuts.
CUT = """() => {
  const stream = document.querySelector("[data-lane=speculative] .sv-stream");
  const { top } = stream.getBoundingClientRect();
  const isCut = (box) => box.top < top - 2 && box.bottom > top + 2;
  return [stream.scrollTop > 0, [...stream.querySelectorAll(".w")]
    .filter((word) => [...word.getClientRects()].some(isCut)).length];
}"""
LOWER = """(height) => {
  document.querySelector("[data-lane=speculative] .sv-stream").style.height = `${height}px`;
}"""
SCROLL = """(by) => {
  document.querySelector("[data-lane=speculative] .sv-stream").scrollTop += by;
}"""
# Pixels of a lane's text below its visible part.
BELOW = """() => {
  const stream = document.querySelector("[data-lane=speculative] .sv-stream");
  return stream.scrollHeight - stream.scrollTop - stream.clientHeight;
}"""
# Elements that are wider than the page.
WIDER = """() => [document.documentElement, ...document.querySelectorAll("#player, .sv > *")]
  .filter((node) => node.getBoundingClientRect().right > innerWidth + 1
    || (node === document.documentElement && node.scrollWidth > innerWidth))
  .map((node) => node.className || node.tagName)"""
# The blocks of a lane: their accepted texts, the tokens of rounds that begin them, their heights in
# lines, and the empty lines at their ends.
BLOCKS = """() => {
  const lane = document.querySelector("[data-lane=speculative]");
  const blocks = [...lane.querySelectorAll(".sv-block")];
  const height = parseFloat(getComputedStyle(lane.querySelector(".sv-stream")).lineHeight);
  const kept = (block) => [...block.querySelectorAll(".t:is(.accepted, .corrected, .bonus)")];
  const last = (block) => [...block.querySelectorAll(".w")].pop().getBoundingClientRect().bottom;
  return {
    texts: blocks.map((block) => kept(block).map((token) => token.textContent).join("")),
    first: blocks.flatMap((block) => block.querySelector("[data-index]")?.dataset.index ?? []),
    lines: blocks.map((block) => (block.getBoundingClientRect().height
      - parseFloat(getComputedStyle(block).paddingTop)) / height),
    empty: blocks.slice(0, -1)
      .filter((block) => block.getBoundingClientRect().bottom - last(block) > 20).length,
  };
}"""
PLAYING = "performance.getEntriesByName('specviz-playing')"


def test_a_visit_begins_with_a_recording_and_run_goes_live(
    visitor: Visitor, shelf: Path, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    wait_for(visitor.page, f"{PLAYING}.length")
    taken = visitor.page.evaluate(f"{PLAYING}[0].startTime")  # ms since the page was requested
    with capsys.disabled():
        print(f" [a recording plays after {taken:.0f} ms]", end=" ")
    assert taken < 2000 or is_busy()
    visitor.state("running")
    expect(visitor.player).to_have_attribute("data-source", "recording")
    badge = visitor.page.locator("[data-badge]")
    expect(badge).to_contain_text("RECORDED · CPU")
    first = Trace.load(shelf / f"{names[0]}.json.gz")
    assert Trace.from_dict(visitor.trace()) == first

    visitor.page.locator("#presets .preset").nth(1).click()
    second = Trace.load(shelf / f"{names[1]}.json.gz")
    wait_for(visitor.page, "length => window.specviz.trace.rounds.length === length",
                                   arg=len(second.rounds))  # fmt: skip
    assert Trace.from_dict(visitor.trace()) == second
    visitor.page.locator("#presets .preset").nth(2).click()  # has no recording
    expect(visitor.page.locator("[data-notice]")).to_contain_text("Press Run.")
    assert Trace.from_dict(visitor.trace()) == second

    visitor.set("number input for Length", 12)
    live = visitor.run()
    expect(visitor.player).to_have_attribute("data-source", "live")
    expect(badge).to_contain_text("LIVE · CPU")
    assert live["header"]["lanes"]["speculative"]["max_new_tokens"] == 12


def begin_anew(visitor: Visitor) -> None:
    """Play the first preset's recording from its beginning."""
    length = "(count) => window.specviz.trace?.header.settings.max_new_tokens === count"
    for place, count in ((1, 40), (0, 64)):
        visitor.page.locator("#presets .preset").nth(place).click()
        wait_for(visitor.page, length, arg=count)
    visitor.playing()


def test_at_any_place_the_figures_are_those_of_the_prefix(
    visitor: Visitor, shelf: Path, names: list[str]
) -> None:
    begin_anew(visitor)
    run = Trace.load(shelf / f"{names[0]}.json.gz")
    page = visitor.page
    total = page.evaluate("window.specviz.events")
    whole = compute_metrics(run)
    for place in (0, 1, 2, 7, total // 3, total // 2, total - 1, total):
        page.locator("[data-scrub]").fill(str(place))
        done = {lane: page.evaluate("lane => window.specviz.finished(lane)", lane)
                for lane in LANES}  # fmt: skip
        rounds = [r for r in run.rounds if r.index < done[r.lane]]
        expected = asdict(compute_metrics(Trace(run.header, rounds)))
        shown = page.evaluate("window.specviz.shown")
        for name in shown.keys() & expected.keys():
            assert shown[name] == pytest.approx(expected[name]), (place, name)
        expect(page.locator("[data-position]")).to_have_text(
            f"{len(rounds)} / {len(run.rounds)} passes"
        )
        for name, count in legend_counts(asdict(r) for r in rounds).items():
            expect(page.locator(f"[data-count={name}]")).to_have_text(str(count))
        # The ratio of the finished run stays; that of a part would be shown in small type, if at
        # all.
        expect(page.locator("[data-headline]")).to_have_text(two_places(whole.speedup))
        said = re.compile("^replay" if len(rounds) < len(run.rounds) else "^parts of the run: ")
        expect(page.locator("[data-spread]")).to_have_text(said)
    visitor.state("ended")
    page.locator("[data-speed]").select_option("10")
    page.locator("[data-scrub]").fill(str(total - 8))
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    wait_for(page, "window.specviz.position === window.specviz.events")
    visitor.state("ended")


def test_the_charts_go_with_the_text(visitor: Visitor) -> None:
    """The lines of the charts end at the playhead, in the same frame as the lanes."""
    page = visitor.page
    begin_anew(visitor)
    for share in (0.2, 0.7, 1):
        page.locator("[data-scrub]").fill(str(int(share * page.evaluate("window.specviz.events"))))
        visitor.drawn()
        metrics = page.evaluate("window.specviz.shown")
        said = page.locator("[data-line=tokens] > div").get_attribute("aria-label") or ""
        for lane in LANES:
            assert f"{metrics['tokens'][lane]} tokens in" in said
        for name in ("alpha", "tau"):
            shown = page.locator(f"[data-metric={name}]")
            expect(shown).to_have_text(two_places(metrics[name]))


def test_a_saved_run_is_a_recording_and_opens_again(visitor: Visitor, tmp_path: Path) -> None:
    begin_anew(visitor)
    page = visitor.page
    shown = Trace.from_dict(visitor.trace())
    for button, suffix in (
        ("Save this run (.json.gz)", ".json.gz"),
        ("Save this run (.json)", ".json"),
    ):
        page.locator("[data-share] > summary").click()
        with page.expect_download() as coming:
            visitor.button(button).click()
        path = tmp_path / coming.value.suggested_filename
        assert path.name.startswith("specviz-") and path.name.endswith(suffix)
        coming.value.save_as(path)
        raw = path.read_bytes()
        assert read_recording(raw) == shown
        data = orjson.loads(gzip.decompress(raw) if suffix.endswith("gz") else raw)
        assert data["digest"].startswith("sha256:")  # read_recording has checked it

    other = saved(recorded(SAMPLED), tmp_path)
    opened(visitor, other)
    wait_for(page, "window.specviz.trace.header.prompt_ids.length === 3")
    expect(visitor.player).to_have_attribute("data-source", "recording")
    badge = page.locator("[data-badge]")
    expect(badge).to_contain_text("(opened from a file)")
    expect(page.locator("[data-notice]")).to_have_text(UNVERIFIED)
    assert UNVERIFIED in (badge.get_attribute("title") or "")
    assert Trace.from_dict(visitor.trace()) == recorded(SAMPLED)
    expect(page.locator("[data-speed]")).not_to_have_value("1")  # slower than it was, and labelled
    page.evaluate("window.specviz.trace.isOld = true")
    opened(visitor, gzip.decompress(other), "run.json")
    wait_for(page, "!window.specviz.trace.isOld")
    # Runs from files are the visitor's own, unlike the page's recordings.
    both = "Your earlier run and Your latest run, side by side (C)"
    expect(visitor.button("Compare runs")).to_have_attribute("title", both)
    assert Trace.from_dict(visitor.trace()) == recorded(SAMPLED)


def test_an_opened_run_that_was_interrupted_or_is_too_short_is_shown_as_such(
    visitor: Visitor, tmp_path: Path
) -> None:
    begin_anew(visitor)
    page = visitor.page
    badge = visitor.page.locator("[data-badge]")
    assert UNVERIFIED not in (badge.get_attribute("title") or "")
    whole = recorded(SAMPLED)
    opened(visitor, saved(Trace(whole.header, whole.rounds[:9]), tmp_path))
    expect(badge).to_contain_text("from a file, interrupted)")
    opened(visitor, saved(recorded(replace(SAMPLED, max_new_tokens=1)), tmp_path))
    expect(badge).to_contain_text("from a file) ")
    page.locator("[data-scrub]").fill("2")
    expect(page.locator("[data-verdict]")).to_have_text("Too short to compare.")
    expect(page.locator("[data-headline]")).to_have_text("?")


def test_the_panel_tells_the_ratio_of_the_wall_clock(visitor: Visitor, tmp_path: Path) -> None:
    begin_anew(visitor)
    page = visitor.page
    run = recorded(SAMPLED)
    old = replace(run, rounds=[replace(r, wall=None) for r in run.rounds])
    m = compute_metrics(run)
    for trace, words in (
        (run, f"prefill and text: {m.speedup_wall:.2f}×."),
        (old, f"With prefill: {m.speedup_end_to_end:.2f}×."),
    ):
        opened(visitor, saved(trace, tmp_path))
        wait_for(page, "window.specviz.trace.header.prompt_ids.length === 3")
        page.locator("[data-scrub]").fill("9999")
        page.get_by_role("button", name="Why this speed?").click()
        expect(page.get_by_role("dialog", name="Why this speed?")).to_contain_text(words)
        page.keyboard.press("Escape")


def opened(visitor: Visitor, raw: bytes, name: str = "run.json.gz") -> None:
    file: Any = {"name": name, "mimeType": "application/octet-stream", "buffer": raw}
    visitor.page.locator("[data-open]").set_input_files(file)


def opened_at_its_end(visitor: Visitor, name: str) -> Trace:
    """Open a recording of the package from its file, and go to its end."""
    raw = (RECORDINGS / f"{name}.json.gz").read_bytes()
    trace = read_recording(raw)
    opened(visitor, raw, f"{name}.json.gz")
    wait_for(
        visitor.page, "p => window.specviz.trace?.header.prompt === p", arg=trace.header.prompt
    )
    bar = visitor.page.locator("[data-scrub]")
    bar.fill(str(bar.get_attribute("max")))
    visitor.drawn()
    return trace


def test_a_bad_file_gets_its_sentence_and_changes_nothing(visitor: Visitor, tmp_path: Path) -> None:
    begin_anew(visitor)
    visitor.page.keyboard.press("Space")
    visitor.state("paused")
    before = visitor.trace(), visitor.page.evaluate("window.specviz.position")
    good = saved(recorded(SAMPLED), tmp_path)
    # A sample of the files that tests/runs/test_malformed_recordings.py reads.
    files = {name: damage(good) for name, damage in list(DAMAGED_FILES.items())[::4]}
    for name, edit in list(INVALID.items())[::10]:
        data = values(SAMPLED)
        edit(data)
        files[name] = orjson.dumps(data)
    files["vast"] = bytes(MAX_PACKED + 1000)
    assert len(files) > 10
    notice = visitor.page.locator("[data-notice]")
    for name, raw in files.items():
        expected = sentence(raw[: MAX_PACKED + 1])
        opened(visitor, raw)
        expect(notice).to_have_text(expected), name
        expect(notice).to_have_class("sv-notice is-error")
        visitor.page.evaluate("document.querySelector('[data-notice]').textContent = ''")
    assert before == (visitor.trace(), visitor.page.evaluate("window.specviz.position"))
    expect(visitor.page.locator("[data-badge]")).not_to_contain_text("opened")


def test_an_answer_reads_as_one_and_the_template_is_behind_a_click(visitor: Visitor) -> None:
    header = opened_at_its_end(visitor, "function").header
    lane = visitor.lane("speculative")
    expect(lane.locator(".sv-given")).to_have_count(0)
    expect(lane.locator(".sv-stream")).not_to_contain_text("a helpful AI assistant")
    code = "".join(lane.locator(".t.code:not(.rejected, .ignored)").all_text_contents())
    assert "def reverse_string(" in code and "This function" not in code
    assert lane.locator(".t.accepted .md-code, .t.bonus .md-code").count() > 5, "marks stay"
    expect(visitor.page.locator("[data-item=draft]")).to_have_text("+ its head 9.8 M")
    whole = visitor.page.locator(".sv-details")
    expect(whole.locator("pre")).to_be_hidden()
    whole.locator("summary").click()
    expect(whole.locator("pre")).to_have_text(header.prompt, use_inner_text=True)


def test_a_long_text_stands_in_blocks_that_come_and_go_with_the_playhead(visitor: Visitor) -> None:
    """A block ends at a line break, even inside a round or a token: nothing is lost or repeated."""
    trace = opened_at_its_end(visitor, "page")
    page = visitor.page
    bar = visitor.page.locator("[data-scrub]")
    rounds = [r for r in trace.rounds if r.lane == "speculative"]
    for share in (1, 0.5, 0.7, 0, 1):
        bar.fill(str(int(share * page.evaluate("window.specviz.events"))))
        visitor.drawn()
        done = page.evaluate("window.specviz.finished('speculative')")
        wanted = "".join(t.text for r in rounds[:done] for t in r.emitted)
        shown = page.evaluate(BLOCKS)
        assert "".join(shown["texts"]).startswith(wanted) and not shown["empty"]
        assert all(text.endswith("\n") for text in shown["texts"][:-1])
        assert shown["lines"] == pytest.approx([round(count) for count in shown["lines"]], abs=0.02)
    assert len(shown["texts"]) > 3
    index = 0
    for r in rounds:
        for position, token in enumerate(r.drafted, 1):
            if str(index) in shown["first"]:
                page.locator(f"[data-lane=speculative] [data-index='{index}']").focus()
                said = f"{token.outcome} in round {r.index + 1}, position {position}"
                expect(page.locator(".sv-card-title small")).to_have_text(said)
            index += 1
        index += r.emitted[-1].outcome != "accepted"


def test_a_live_run_can_be_held_back_and_caught_up_with(visitor: Visitor) -> None:
    visitor.set("number input for Length", 32)
    visitor.prompt(UNHURRIED)
    visitor.button("Run").click()
    expect(visitor.player).to_have_attribute("data-source", "live")
    page = visitor.page
    wait_for(page, "window.specviz.position > 20")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    visitor.state("paused")
    held = page.evaluate("window.specviz.position")
    wait_for(page, "held => window.specviz.events > held + 20", arg=held)
    assert page.evaluate("window.specviz.position") == held
    expect(visitor.button("Back to live")).to_be_visible()
    page.keyboard.press("l")
    wait_for(page, "window.specviz.position === window.specviz.events")
    visitor.state("ended")
    assert len(visitor.trace()["rounds"]) > 32


def test_a_run_that_was_stopped_before_its_first_round_has_ended(
    visitor: Visitor, sentences: Sentences
) -> None:
    data = values(SAMPLED) | {"rounds": []}
    data["end"] = {"reasons": dict.fromkeys(LANES, "stopped")}
    opened(visitor, json.dumps(data).encode())
    visitor.state("ended")
    expect(visitor.page.locator("[data-verdict]")).to_contain_text("too early")
    sentences(visitor.page.locator("[data-verdict]").inner_text())


def test_a_lane_shows_the_end_of_its_text_until_a_visitor_scrolls(visitor: Visitor) -> None:
    """A change of layout scrolls too, for example when the settings open: that must not count."""
    page = visitor.page
    begin_anew(visitor)
    page.locator("[data-scrub]").fill(str(page.evaluate("window.specviz.events")))
    visitor.state("ended")
    page.evaluate(LOWER, 100)
    wait_for(page, f"({BELOW})() < 2")
    page.evaluate(SCROLL, -80)
    visitor.drawn()
    assert page.evaluate(BELOW) > 60
    page.evaluate(LOWER, 96)
    wait_for(page, f"({BELOW})() < 2")
    visitor.lane("speculative").locator(".sv-stream").hover()
    page.mouse.wheel(0, -80)
    wait_for(page, f"({BELOW})() > 60")
    page.evaluate(LOWER, 92)
    visitor.drawn()
    assert page.evaluate(BELOW) > 60


def test_reduced_motion_opens_at_the_end_and_a_phone_shows_both(browser: Browser, url: str) -> None:
    context = browser.new_context(
        reduced_motion="reduce", viewport={"width": 390, "height": 844}, has_touch=True
    )
    visitor = Visitor(context.new_page())
    visitor.page.goto(url)
    visitor.state("ended")
    assert visitor.page.evaluate("window.specviz.position === window.specviz.events")
    lanes = [visitor.lane(name).bounding_box() for name in LANES]
    assert lanes[0] and lanes[1] and lanes[0]["y"] < 844
    assert lanes[1]["y"] >= lanes[0]["y"] + lanes[0]["height"]
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390
    for height in (168, 180):  # neither is a multiple of the line height
        visitor.page.evaluate(LOWER, height)
        visitor.drawn()
        assert visitor.page.evaluate(CUT) == [True, 0]
    visitor.page.locator("[data-toggle-panel]").click()
    for width, height in ((390, 844), (820, 1180), (1280, 720), (1440, 900)):
        visitor.page.set_viewport_size({"width": width, "height": height})
        visitor.drawn()
        assert visitor.page.evaluate(WIDER) == [], (width, height)
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    visitor.button("Play").tap()
    visitor.state("running")
    context.close()
    assert visitor.problems == []


def test_escape_closes_one_thing_at_a_time(visitor: Visitor) -> None:
    begin_anew(visitor)
    page = visitor.page
    page.locator("[data-panel-open=why]").click()
    drawer = page.get_by_role("dialog", name="Why this speed?")
    expect(drawer).to_be_visible()
    for menu, entry in (("[data-share]", "data-choose"), ("[data-share]", "data-take=tokens")):
        page.locator(f"{menu} > summary").focus()  # by keyboard, because the panel may cover it
        page.keyboard.press("Enter")
        expect(page.locator(f"{menu} [{entry}]")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator(f"{menu} [{entry}]")).to_be_hidden()
        expect(drawer).to_be_visible()
        expect(page.locator(f"{menu} > summary")).to_be_focused()
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
