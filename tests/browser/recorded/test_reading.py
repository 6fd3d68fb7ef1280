"""The text of a lane: code is shown as code, and the text can be shown without its marks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from toy_recordings import SAMPLED, recorded, saved
from visitor import Visitor, wait_for

from specviz import Round, Token, Trace
from specviz.core.events import End, Outcome
from specviz.core.lanes import BASELINE, SPECULATIVE

CODE = (
    ("+Here", "+ it is", "*:\n\n"),
    ("-def", "~ f", ">``"),  # a fence in two tokens, after a rejected guess
    ("+`python", "+\n", "+def f(s):\n", "*    "),
    ("- raise s", "~;\n", ">return s"),
    ("-;\n", "~}", ">\n\n"),
    ("+    # end", "+\n", "+```", "*\n"),
    ("+\n", "+Done", "-!", "~\n\n", ">."),
)
WRAPPED = (
    ("+```python", "+\n", "*def f(first, second):\n"),
    ("-        ", "~else", ">    "),  # this rejected indentation moves no line
    ("+return", "+ first + second" * 12, "*\n"),
    ("+\t\t", "+print(first, second)" * 8, "*\n"),
)
LINES = ["``` python", "def f(s):", "    return s", "", "    # end", "```"]
# The rows of a block of code: their accepted text, position and font.
ROWS = """(lane) => {
  const rows = [...document.querySelectorAll(`[data-lane=${lane}] [data-block]`)];
  return rows.map((row) => {
    const { left, top, right, bottom } = row.getBoundingClientRect();
    const kept = [...row.querySelectorAll(".t:not(.rejected, .ignored)")];
    const words = [...row.querySelectorAll(".w:not(.blank, .nl)")];
    return {
      left, top, right, bottom,
      text: kept.map((one) => one.textContent).join("").replaceAll("\\n", ""),
      indent: words.map((one) => one.getBoundingClientRect().left)[0],
      face: getComputedStyle(row.querySelector(".w") ?? row).fontFamily,
    };
  });
}"""
# The left edges of each row of code and of its continuation lines.
BEGINNINGS = """(lane) => {
  const rows = [...document.querySelectorAll(`[data-lane=${lane}] [data-block]`)];
  return rows.map((row) => {
    const lines = {};
    for (const word of row.querySelectorAll(".t:not(.rejected, .ignored) .w:not(.blank, .nl)")) {
      for (const { left, top } of word.getClientRects()) {
        lines[Math.round(top)] ??= Math.round(left);
      }
    }
    return Object.values(lines);
  });
}"""
# Both lanes with the playhead at each of these positions, except for which marks are full. They are
# returned as one text, because Playwright transfers many long strings slowly.
DRAWN_AT = """async (places) => {
  const drawn = () => [...document.querySelectorAll("[data-lane] .sv-stream > div")].map((text) => {
    const copy = text.cloneNode(true);
    for (const one of copy.querySelectorAll("*")) {
      one.classList.remove("is-marked", "is-in-sight");
      one.removeAttribute("tabindex");
    }
    return copy.innerHTML;
  });
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const scrub = document.querySelector("[data-scrub]");
  const found = [];
  for (const place of places) {
    scrub.value = place;
    scrub.dispatchEvent(new Event("input"));
    await frame(); // the page asked for it first
    found.push([window.specviz.position, drawn()]);
  }
  return JSON.stringify(found);
}"""
# The copied text of a lane.
COPIED = """(lane) => {
  getSelection().selectAllChildren(document.querySelector(`[data-lane=${lane}] .sv-stream > div`));
  const text = String(getSelection());
  getSelection().removeAllRanges();
  const lines = text.replaceAll("\\u00a0", " ").split("\\n");
  return lines.map((line) => line.trimEnd()).join("\\n").trim();
}"""


@pytest.fixture
def opened(visitor: Visitor, tmp_path: Path) -> Trace:
    """Open the scripted run with code, and go to its end."""
    return shown(visitor, scripted("Write f.", CODE), tmp_path)


OUTCOMES: dict[str, Outcome] = {
    "+": "accepted",
    "-": "rejected",
    "~": "ignored",
    ">": "corrected",
    "*": "bonus",
}
"""The outcome of a scripted token, by its first character."""

PASS = 0.01  # seconds of a target pass


def scripted(question: str, rounds: Sequence[Sequence[str]]) -> Trace:
    """Make the run in which a target answered `question` in these rounds. Each token is the sign of
    its outcome and its text, such as "+the"; the last of a round is the target's own. The target
    alone writes the same, a token per pass."""
    drafted: list[Round] = []
    alone: list[Round] = []
    for index, texts in enumerate(rounds):
        tokens = [_token(text) for text in texts]
        clock = PASS * (index + 1)
        drafted.append(Round(SPECULATIVE, index, tokens[:-1], tokens[-1], 0.0, PASS, 0.0, clock))
        for emitted in drafted[-1].emitted:
            own = replace(emitted, outcome="bonus")
            clock = PASS * (len(alone) + 1)
            alone.append(Round(BASELINE, len(alone), [], own, 0.0, PASS, 0.0, clock))
    settings = replace(SAMPLED, max_new_tokens=len(alone))
    toy = recorded(settings).header
    header = replace(toy, prompt=f"user: {question}", question=question)
    ordered = sorted([*drafted, *alone], key=lambda one: one.clock)
    return Trace(header, ordered, End({SPECULATIVE: "length", BASELINE: "length"}))


def _token(text: str) -> Token:
    outcome = OUTCOMES[text[0]]
    judged = None if outcome == "ignored" else 0.3
    return Token(1, text[1:], outcome, p=judged, q=0.6, u=0.75 if outcome == "rejected" else 0.25)


def shown(visitor: Visitor, trace: Trace, tmp_path: Path) -> Trace:
    """Open a run from a file, and go to its end."""
    raw = saved(trace, tmp_path)
    file: Any = {"name": "run.json.gz", "mimeType": "application/octet-stream", "buffer": raw}
    wait_for(visitor.page, "Boolean(window.specviz.trace)")
    visitor.page.evaluate("window.specviz.trace.isOld = true")
    visitor.page.locator("[data-open]").set_input_files(file)
    wait_for(
        visitor.page,
        "window.specviz.trace.header.question === 'Write f.' && !window.specviz.trace.isOld",
    )
    seek(visitor, 10_000)
    return trace


def seek(visitor: Visitor, place: int) -> None:
    most = int(visitor.page.locator("[data-scrub]").get_attribute("max") or 0)
    visitor.page.locator("[data-scrub]").fill(str(min(place, most)))
    visitor.drawn()


def read(visitor: Visitor, mode: str) -> None:
    visitor.button(mode).click()
    expect(visitor.button(mode)).to_have_attribute("aria-pressed", "true")
    visitor.drawn()


@pytest.mark.parametrize("lane", ["speculative", "baseline"])
def test_code_in_a_lane_reads_as_code(visitor: Visitor, opened: Trace, lane: str) -> None:
    rows = visitor.page.evaluate(ROWS, lane)
    assert [row["text"] for row in rows] == [line.replace("``` ", "```") for line in LINES]
    assert len({(row["left"], row["right"]) for row in rows}) == 1, "one sheet under all of it"
    heights = [row["bottom"] - row["top"] for row in rows]
    assert min(heights) == pytest.approx(max(heights), abs=1), "a blank line is a line"
    assert all(one["bottom"] == pytest.approx(two["top"]) for one, two in pairwise(rows))
    assert all("Mono" in row["face"] for row in rows if row["text"])
    assert rows[2]["indent"] > rows[1]["indent"] + 20, "indentation is kept"
    marks = visitor.lane(lane).locator("[data-block] [data-outcome]")
    tokens = [token for r in opened.rounds if r.lane == lane for token in r.tokens]
    prose = 5 if lane == "baseline" else 7
    assert marks.count() == len(tokens) - prose, "marks stay on all tokens"


@pytest.mark.parametrize("lane", ["speculative", "baseline"])
def test_a_line_of_code_that_wraps_goes_on_further_in(
    visitor: Visitor, tmp_path: Path, lane: str
) -> None:
    shown(visitor, scripted("Write f.", WRAPPED), tmp_path)
    begun: dict[str, list[list[int]]] = {}
    for mode in ("text", "marks"):
        read(visitor, mode)
        lines = visitor.page.evaluate(BEGINNINGS, lane)
        begun[mode] = [line for line in lines if len(line) > 1]
    assert len(begun["text"]) == 2
    for first, *others in begun["text"]:
        assert len(set(others)) == 1, "they stand below one another"
        assert first + 10 < others[0] < first + 40
    assert [max(line[1:]) for line in begun["marks"]] == [line[1] for line in begun["text"]]


def test_a_lane_stands_alike_however_the_playhead_came_there(
    visitor: Visitor, opened: Trace
) -> None:
    """The playhead adds and removes rows, blocks of code and marks."""
    most = int(visitor.page.locator("[data-scrub]").get_attribute("max") or 0)
    forward = range(1, most + 1)
    places = [*forward, *reversed(forward), most, 3, most // 2, most - 1]
    drawn = json.loads(visitor.page.evaluate(DRAWN_AT, places))
    assert [place for place, _ in drawn] == places
    for place, lanes in drawn[most:]:
        assert lanes == drawn[place - 1][1], place


def test_the_text_alone_is_what_was_emitted(visitor: Visitor, opened: Trace) -> None:
    lane = visitor.lane("speculative")
    expect(lane.locator(".t.rejected .w").first).to_be_visible()
    read(visitor, "text")
    expected = "Here it is:\npython\ndef f(s):\n    return s\n\n    # end\n\nDone."
    for name in ("speculative", "baseline"):
        seen = visitor.page.evaluate(COPIED, name)
        assert [line for line in seen.split("\n") if line] == [
            line for line in expected.split("\n") if line
        ]
    lines = lane.locator(".t.accepted .w, .t.corrected .w, .t.bonus .w").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).borderBottomStyle)"
    )
    assert set(lines) == {"solid", "double", "dashed"}, "outcomes are told without their colours"
    read(visitor, "marks")
    expect(lane.locator(".t.rejected .w").first).to_be_visible()
    expect(lane.locator(".t.ignored .w").first).to_be_visible()


def test_a_thin_mark_tells_what_was_rejected(visitor: Visitor, opened: Trace) -> None:
    read(visitor, "text")
    page = visitor.page
    card = visitor.page.locator(".sv-card")
    mark = visitor.lane("speculative").locator(".t.rejected").first
    box = mark.bounding_box()
    assert box is not None and box["width"] <= 3
    page.mouse.move(box["x"] + 5, box["y"] + 8)  # next to the mark, which is thin
    expect(card).to_contain_text("def")
    expect(card).to_contain_text("never judged: f")
    page.mouse.move(5, 5)
    expect(card).to_be_hidden()
    mark.focus()
    expect(card).to_contain_text("def")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".t:focus")).to_have_attribute("data-outcome", "corrected")
    page.keyboard.press("Escape")
    mark.click()
    page.mouse.move(5, 5)
    expect(card).to_contain_text("def")
    page.keyboard.press("Escape")
    read(visitor, "marks")


def test_the_switch_is_remembered_in_the_link_and_on_stage_under_a_key(visitor: Visitor) -> None:
    page = visitor.page
    reading = page.locator("[data-player][data-reading]")
    expect(reading).to_have_attribute("data-reading", "marks")
    read(visitor, "text")
    wait_for(page, "location.search.includes('reading=text')")
    page.goto(page.url.split("?")[0])
    visitor.ready()
    expect(reading).to_have_attribute("data-reading", "text")
    page.goto(page.url.split("?")[0] + "?reading=marks")
    visitor.ready()
    expect(reading).to_have_attribute("data-reading", "marks")
    page.keyboard.press("s")
    expect(page.locator("body")).to_have_class("sv-stage")
    page.keyboard.press("m")
    expect(reading).to_have_attribute("data-reading", "text")
    page.keyboard.press("m")
    expect(reading).to_have_attribute("data-reading", "marks")
    wait_for(page, "!location.search.includes('reading')")
    page.keyboard.press("s")


# Whether the tokens of the lane with drafts are filled, by outcome, and the number of signs above
# them.
FILLED = """() => {
  const found = {};
  const lane = document.querySelector("[data-lane=speculative]");
  for (const token of lane.querySelectorAll(".t[data-outcome]")) {
    const word = token.querySelector(".w:not(.nl, .blank)");
    if (!word) continue;
    const { backgroundColor } = getComputedStyle(word);
    const isFilled = !/, 0\\)$|\\/ 0\\)$|transparent/.test(backgroundColor);
    (found[token.dataset.outcome] ??= new Set()).add(isFilled);
  }
  const signs = [...lane.querySelectorAll(".t .w")]
    .filter((word) => !["none", "normal"].includes(getComputedStyle(word, "::after").content));
  const filled = Object.entries(found).filter(([, kinds]) => kinds.has(true)).map(([name]) => name);
  return [filled.sort(), signs.length];
}"""


def test_a_run_that_is_over_is_calm_and_the_legend_fills_its_tokens(
    visitor: Visitor, opened: Trace
) -> None:
    page = visitor.page
    read(visitor, "marks")
    page.mouse.move(0, 0)
    visitor.drawn()
    wait_for(page, f"(({FILLED})())[1] === 0")
    assert page.evaluate(FILLED) == [[], 0]
    underlined = page.locator("[data-lane=speculative] .t.accepted .w").first
    assert underlined.evaluate("node => parseFloat(getComputedStyle(node).borderBottomWidth)") > 0
    for outcome in ("accepted", "rejected", "ignored", "corrected"):
        page.locator(f".sv-legend li:has([data-count={outcome}])").hover()
        assert page.evaluate(FILLED)[0] == [outcome]
    page.mouse.move(0, 0)
    page.locator("[data-lane=speculative] .t.rejected .w").first.hover()
    assert page.evaluate(FILLED)[1] > 0, "a round has its marks under the pointer"
    page.mouse.move(0, 0)
    seek(visitor, 12)  # a run paused midway shows the newest verdicts
    assert page.evaluate(FILLED)[1] > 0


# For each lane, in px: the padding below its text, the height of the foot below the text, and the
# line height.
ROOM = """() => [...document.querySelectorAll("[data-lane]")].map((lane) => {
  const stream = lane.querySelector(".sv-stream").getBoundingClientRect();
  const foot = lane.querySelector(".sv-foot").getBoundingClientRect();
  const text = lane.querySelector(".sv-stream > div");
  const { lineHeight, paddingBottom } = getComputedStyle(text);
  return [parseFloat(paddingBottom), foot.bottom - stream.bottom, parseFloat(lineHeight)];
})"""


def test_the_lines_of_a_lane_share_its_room(visitor: Visitor, opened: Trace) -> None:
    page = visitor.page
    for width, height in ((1440, 900), (1280, 720), (1920, 1080), (1500, 870)):
        page.set_viewport_size({"width": width, "height": height})
        visitor.drawn()
        for spare, foot, line in page.evaluate(ROOM):
            assert spare < 0.5 * line and foot < 45, (width, height)


def test_the_last_row_reads_code_as_large_as_prose(visitor: Visitor, opened: Trace) -> None:
    page = visitor.page
    page.set_viewport_size({"width": 1280, "height": 720})
    page.evaluate("document.activeElement?.blur()")
    page.keyboard.press("s")
    size = "(nodes) => Math.min(...nodes.map((one) => parseFloat(getComputedStyle(one).fontSize)))"
    for kind in (".w.md-code", ".t:not(.code) .w:not(.md-sign, .md-info)"):
        tokens = page.locator(f"[data-lane] {kind}:not(.nl, .blank)")
        assert tokens.evaluate_all(size) >= 24, kind
    page.keyboard.press("s")
