"""Exports of a run: the page that plays from disk, the tables, the pictures."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from filed import legend_counts
from playwright.sync_api import Browser, Page, expect
from replaying_server import replay_of, replaying
from sentences import Sentences
from visitor import PATIENCE, Visitor, speedup_of, two_places

from specviz import Settings, Trace, compute_metrics, load_pair, race
from specviz.base.environment import ASSETS
from specviz.core.events import End
from specviz.core.lanes import LANES
from specviz.runs.charts_page import charts_html
from specviz.runs.html import standalone_html
from specviz.runs.series import series
from specviz.runs.tables import rounds_csv, tokens_csv
from specviz.runs.uncertainty import uncertainty

RECORDINGS = ASSETS / "recordings"
# A film takes twelve seconds; `HURRY` makes the clock run faster.
HAS_PLOTLY = "performance.getEntriesByType('resource').some(({ name }) => name.includes('plotly'))"
HURRY = """() => { const now = performance.now.bind(performance);
  performance.now = () => 20 * now(); }"""
# Count frames, starting before the page's first script, which may store the function.
NOTED_FRAMES = """(() => {
  const next = window.requestAnimationFrame.bind(window);
  window.framesAsked = 0;
  window.requestAnimationFrame = (then) => { window.framesAsked += 1; return next(then); };
})()"""
FRAMES_UNTIL_REST = """async () => {
  const counts = [];
  while (counts.length < 30 && counts.at(-1) !== 0) {
    window.framesAsked = 0;
    await new Promise((resume) => setTimeout(resume, 400));
    counts.push(window.framesAsked);
  }
  return counts;
}"""
# Text that is cut off in the verdict, and in the speed control.
CUT_OFF = """() => {
  const verdict = document.querySelector(".sv-verdict");
  const select = document.querySelector("[data-speed]");
  const { font, paddingLeft, paddingRight } = getComputedStyle(select);
  const context = document.createElement("canvas").getContext("2d");
  context.font = font;
  const words = context.measureText(select.selectedOptions[0].textContent).width;
  const room = select.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  return [
    ...(verdict.scrollHeight > verdict.clientHeight + 1 ? ["verdict"] : []),
    ...(words > room + 1 ? ["speed"] : []),
  ];
}"""
# Put the longest sentences of any run into the verdict, with or without a doubt.
SAID_AT_LENGTH = """async (isDoubted) => {
  const { detail, doubt } = await import("specviz/words/verdict.js");
  const root = document.querySelector("[data-player]");
  const slow = { tau: 2.3, speedup: 0.93, counts: { accepted: 122, rejected: 122 }, rounds: 100,
    drafted: 400, c: 0.2, alpha: 0.5 };
  const delayed = { doubt: "delay", delays: { speculative: 0.12, baseline: 0 },
    spread: { low: 1.1, high: 1.25 } };
  const texts = isDoubted ? {
    verdict: "the speed of the target alone, but with a different text: "
      + "the verdict typical changes the target’s distribution.",
    detail: "", doubt: doubt(slow, delayed, true),
  } : {
    verdict: "the speed of the target alone, per request: here speculation is slower.",
    detail: detail(slow, true), doubt: "",
  };
  for (const [name, text] of Object.entries({ times: "0.93 times ", spread: "", ...texts })) {
    root.querySelector(`[data-${name}]`).textContent = text;
  }
  root.toggleAttribute("data-doubted", isDoubted);
}"""
CAN_MP4 = "MediaRecorder.isTypeSupported('video/mp4;codecs=avc1.42E01E')"
# Record the texts drawn in a film; each picture begins with its title.
NOTED_WORDS = """() => {
  const { fillText } = CanvasRenderingContext2D.prototype;
  window.painted = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.painted.push(text);
    return fillText.call(this, text, ...rest);
  };
}"""


def taken(visitor: Visitor, name: str, folder: Path) -> Path:
    """Save the file of an entry of the menu."""
    return taken_on(visitor.page, name, folder)


def taken_on(page: Page, name: str, folder: Path) -> Path:
    menu = page.locator("[data-share]")
    if menu.get_attribute("open") is None:
        menu.locator("> summary").click()
    charts = menu.locator(".sv-take-charts")
    if "." in name and charts.get_attribute("open") is None:
        charts.locator("summary").click()
    with page.expect_download(timeout=PATIENCE) as download:
        menu.locator(f"[data-take='{name}']").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


@pytest.fixture
def offline(browser: Browser) -> Iterator[Page]:
    """A window without a network, in which nothing may fail or be requested."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, offline=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    problems: list[Any] = []
    page.on("pageerror", lambda error: problems.append(error))
    page.on(
        "console", lambda said: said.type in ("error", "warning") and problems.append(said.text)
    )
    page.on(
        "request",
        lambda asked: (
            asked.url.startswith(("file:", "data:", "blob:")) or problems.append(asked.url)
        ),
    )
    yield page
    context.close()
    assert problems == []


def test_a_run_taken_away_plays_from_disk_without_a_network(
    visitor: Visitor, offline: Page, tmp_path: Path
) -> None:
    visitor.set("number input for Length", 32)
    visitor.set("number input for Temperature", 0.7)
    visitor.prompt("</script> the <b>cat</b>")
    data = visitor.run()
    path = taken(visitor, "html", tmp_path)
    assert path.name.endswith(".html") and path.stat().st_size < 6e6

    offline.goto(path.as_uri())
    player = offline.locator("[data-player]")
    offline.wait_for_selector("[data-player][data-ready][data-source=recording]")
    expect(offline.locator("[data-badge]")).to_contain_text("RECORDED")
    expect(offline.locator(".sv-prompt")).to_have_text("</script> the <b>cat</b>")
    offline.get_by_label("Playing speed").select_option("10")
    if player.get_attribute("data-state") != "running":
        offline.get_by_role("button", name="Play", exact=True).click()
    offline.wait_for_selector("[data-state=ended]")

    assert json.loads(offline.evaluate("JSON.stringify(specviz.trace)")) == data
    for name, count in legend_counts(data["rounds"]).items():
        expect(offline.locator(f"[data-count={name}]")).to_have_text(str(count))
    headline = visitor.page.locator("[data-headline]").inner_text()
    expect(offline.locator("[data-headline]")).to_have_text(headline)
    expect(offline.locator("[data-line=tokens] svg").first).to_be_visible()

    for speed in ("0.005", "10"):
        offline.get_by_label("Playing speed").select_option(speed)
        assert offline.evaluate(CUT_OFF) == [], speed

    picture = taken_on(offline, "picture", tmp_path).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (1200, 630)
    menu = offline.locator("[data-share]")
    menu.locator("> summary").click()
    menu.locator("[data-take=film]").click()
    expect(menu.get_by_role("progressbar")).to_be_visible()
    menu.get_by_role("button", name="Cancel").click()
    expect(menu.locator("[data-take=film]")).to_be_focused()  # nothing was saved
    offline.evaluate(HURRY)
    offline.evaluate(NOTED_WORDS)
    film = taken_on(offline, "film", tmp_path)
    check_film(film, offline.evaluate(CAN_MP4))
    check_last_picture(offline.evaluate("window.painted"), Trace.from_dict(data))
    offline.keyboard.press("Escape")

    offline.get_by_role("button", name="Step by step").click()
    expect(offline.locator(".sv-explain[open] .sx-bars li").first).to_be_visible()
    offline.keyboard.press("Escape")
    offline.get_by_role("button", name="Why this speed?").click()
    measured = two_places(speedup_of(Trace.from_dict(data)))
    expect(offline.locator("tr:has(> th:text-is('measured')) td").last).to_have_text(measured)
    expect(offline.locator(".sv-charts .js-plotly-plot").first).to_be_visible()
    offline.keyboard.press("Escape")
    offline.get_by_role("button", name="the same text").click()
    expect(offline.locator(".sv-drawer")).to_contain_text("needs the models")
    expect(offline.get_by_role("button", name="Draw")).to_have_count(0)
    offline.keyboard.press("Escape")
    check_that_nothing_is_cut_off(offline)

    small = taken(visitor, "embed", tmp_path)  # it fills a frame of any size and plays in it
    for width, height in ((720, 420), (360, 520)):
        offline.set_viewport_size({"width": width, "height": height})
        offline.goto(small.as_uri())
        offline.wait_for_selector("[data-player][data-ready][data-state=running]")
        for place in ("[data-lane=speculative]", "[data-lane=baseline]", "[data-play]"):
            box = offline.locator(place).bounding_box()
            assert box and box["y"] + box["height"] <= height and box["x"] + box["width"] <= width
        expect(offline.locator("[data-line=tokens]")).to_be_hidden()


def test_cells_of_a_notebook_play_each_in_its_frame(
    offline: Page, tmp_path: Path, sentences: Sentences
) -> None:
    """Two runs are next to each other, one of them a text without a race."""
    race_of_two = Trace.load(RECORDINGS / "easy.json.gz")
    prefill = {"speculative": race_of_two.header.prefill_seconds["speculative"]}
    alone = Trace(
        replace(race_of_two.header, prefill_seconds=prefill),
        race_of_two.lane("speculative"),
        End({"speculative": "length"}),
    )
    path = tmp_path / "cells.html"
    cells = [trace._repr_html_() or "" for trace in (race_of_two, alone)]
    path.write_text("<!doctype html>" + "".join(cells), "utf-8")
    offline.goto(path.as_uri())
    for place, lanes in enumerate((2, 1)):
        cell = offline.frame_locator("iframe").nth(place)
        expect(cell.locator("[data-player][data-ready]")).to_be_visible()
        expect(cell.locator("[data-lane]:not([hidden]):visible")).to_have_count(lanes)
        expect(cell.locator("[data-outcome=accepted]").first).to_be_visible()
    verdict = cell.locator("[data-verdict]")
    expect(verdict).to_contain_text("without a race")
    sentences(verdict.inner_text())
    outer = offline.frames[1]
    assert (
        outer.evaluate("() => { try { return parent.document.title } catch { return null } }")
        is None
    )


def per_second(rate: float) -> str:
    return f"{rate:.1f}" if rate < 20 else f"{rate:.0f}"


def check_film(film: Path, can_mp4: bool) -> None:
    """Check that a film is MP4 if the browser can record it, which slides and phones play. A WebM
    must have its duration, so that players can seek."""
    data = film.read_bytes()
    assert len(data) > 10_000
    if can_mp4:
        assert film.suffix == ".mp4" and data[4:8] == b"ftyp"
    else:
        assert film.suffix == ".webm" and data.startswith(b"\x1a\x45\xdf\xa3")
        assert b"\x44\x89\x84" + struct.pack(">f", 12_000) in data[:400]


def check_last_picture(painted: list[str], run: Trace) -> None:
    """Check that a film ends with the whole run: its ratio, and both lanes' counts, speeds and
    texts."""
    pace = next(place for place in reversed(range(len(painted))) if "played at" in painted[place])
    words = painted[pace:]
    m = compute_metrics(run)
    found = uncertainty(run)
    assert found is not None
    ratio = "?" if found.doubt == "price" else f"{m.speedup:.2f}×"
    about = {"price": "no fair ratio", None: ""}.get(found.doubt, "uncertain")
    assert ratio in words and about in words
    assert {"accepted", "rejected", "corrected", "bonus", "no guess"} <= set(words)  # the legend
    for lane in LANES:
        rounds = run.lane(lane)
        written = sum(len(r.emitted) for r in rounds)
        clock = rounds[-1].clock
        assert f"{written} tokens · {clock:.2f} s · {per_second(written / clock)} tok/s" in words
    assert {"With drafts", "Target alone"} <= set(words)
    shown = "".join(words)
    assert run.lane("baseline")[-1].emitted[-1].text.split("\n")[-1].strip() in shown
    assert painted.count("0 tokens · 0.00 s") >= 2  # and the film begins with no tokens


def test_a_watched_server_shows_what_it_told_and_names_what_not(
    offline: Page, tmp_path: Path, sentences: Sentences
) -> None:
    with replaying(replay_of("vllm", counted=(3, 15, 8))) as server:
        pair = load_pair(f"{server.url}#target")
        settings = Settings(max_new_tokens=12)
        trace = Trace.from_events(race(pair, "Once upon a time", settings))
    path = tmp_path / "watched.html"
    path.write_text(standalone_html(trace), "utf-8")
    offline.goto(path.as_uri())
    offline.wait_for_selector("[data-player][data-ready]")
    offline.get_by_label("Playing speed").select_option("10")
    offline.wait_for_selector("[data-state=ended]")
    shown = offline.evaluate("window.specviz.metrics")
    ours = asdict(compute_metrics(trace))
    assert {name: shown[name] for name in ("counts", "drafted", "rounds")} == {
        name: ours[name] for name in ("counts", "drafted", "rounds")
    }
    for name in ("alpha", "efficiency", "tau", "tau_predicted", "c", "speedup"):
        assert shown[name] == pytest.approx(ours[name])
    assert offline.evaluate("window.specviz.series.tau")[0]["y"] == pytest.approx(
        series(trace.rounds, trace.lanes)["tau"][0]["y"]
    )
    expect(offline.locator("[data-verdict]")).to_have_text("No baseline was measured.")
    sentences(offline.locator("[data-detail]").inner_text(), measured=True)
    expect(offline.locator("[data-run]")).to_contain_text("vLLM 0.32.0, watched")
    for hidden in ("[data-lane=baseline]", "[data-explain]", "[data-panel-open=why]"):
        expect(offline.locator(hidden).first).to_be_hidden()
    offline.locator("[data-lane=speculative] .t.rejected .w").first.click()
    expect(offline.locator("#sv-card")).to_be_visible()
    sentences(offline.locator(".sv-card-reason").inner_text())


def test_tables_and_pictures_of_the_shown_run(visitor: Visitor, tmp_path: Path) -> None:
    visitor.set("number input for Length", 12)
    trace = Trace.from_dict(visitor.run())
    assert taken(visitor, "tokens", tmp_path).read_bytes() == tokens_csv(trace).encode()
    assert taken(visitor, "rounds", tmp_path).read_bytes() == rounds_csv(trace).encode()
    assert not visitor.page.evaluate(HAS_PLOTLY)  # 4 MB, only for those who want a picture
    picture = taken(visitor, "tokens.png", tmp_path).read_bytes()
    assert visitor.page.evaluate(HAS_PLOTLY)
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000
    drawing = taken(visitor, "parts.svg", tmp_path).read_text("utf-8")
    assert drawing.startswith("<svg") and "Where a round" in drawing
    charts = taken(visitor, "charts", tmp_path)
    assert charts.read_text("utf-8") == charts_html(trace)


def test_the_page_of_charts_draws_them_all_from_disk(offline: Page, tmp_path: Path) -> None:
    path = tmp_path / "charts.html"
    path.write_text(charts_html(Trace.load(RECORDINGS / "easy.json.gz")), "utf-8")
    for theme in ("light", "dark"):
        offline.emulate_media(color_scheme=theme)
        offline.goto(path.as_uri())
        expect(offline.locator(".js-plotly-plot .main-svg:first-child")).to_have_count(6)
        page, *plots = offline.evaluate(
            """["body", ...document.querySelectorAll(".main-svg:first-child")].map((node) =>
              getComputedStyle(node === "body" ? document.body : node).backgroundColor)"""
        )
        assert set(plots) == {page}  # the charts are in the reader's theme, as the page is


def test_the_longest_sentences_about_a_run_are_read_without_scrolling(visitor: Visitor) -> None:
    """The test of the page that is taken away checks them there."""
    check_that_nothing_is_cut_off(visitor.page)


def check_that_nothing_is_cut_off(page: Page) -> None:
    """Check the longest sentences about a run in windows of three sizes."""
    for width, height in ((1920, 1080), (1440, 900), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        for is_doubted in (False, True):
            page.evaluate(SAID_AT_LENGTH, is_doubted)
            assert page.evaluate(CUT_OFF) == [], (width, is_doubted)


def test_an_idle_page_asks_for_no_frames_after_a_run(visitor: Visitor) -> None:
    visitor.page.add_init_script(NOTED_FRAMES)
    visitor.page.reload()
    visitor.ready()
    visitor.set("number input for Length", 8)
    visitor.run()
    assert visitor.page.evaluate(FRAMES_UNTIL_REST)[-1] == 0


def test_the_menu_is_closed_by_escape_and_says_what_went_wrong(visitor: Visitor) -> None:
    visitor.set("number input for Length", 4)
    visitor.run()
    page = visitor.page
    menu = page.locator("[data-share]")
    menu.locator("> summary").focus()
    page.keyboard.press("Enter")
    expect(menu.locator("[data-take=html]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(menu.locator("[data-take=html]")).to_be_hidden()

    page.evaluate("window.specviz.trace.rounds[0].clock += 1")
    menu.locator("> summary").click()
    menu.locator("[data-take=html]").click()
    expect(page.locator("[data-notice]")).to_contain_text("clock")
