"""One round, slowly: every number is the trace's, and it works without a mouse and without
sight."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Locator, expect
from visitor import Visitor, wait_for
from wording import chance, milliseconds, visible

from specviz import Round, Token, Trace
from specviz.core.events import Choice

DIALOG = ".sv-explain[open]"
ROWS = "all => all.map((row) => [...row.children].map((part) => part.textContent.trim()))"
WIDTHS = """all => all.map((row) => [...row.querySelectorAll("i")]
  .reduce((sum, piece) => sum + parseFloat(piece.style.width) / 100, 0))"""


def rows(part: Locator, selector: str) -> list[list[str]]:
    """The texts of the cells in each row."""
    texts = part.locator(selector).evaluate_all(ROWS)
    return [[text.replace("\u00a0", " ") for text in row if text] for row in texts]


def listed(choices: tuple[Choice, ...], token: Token, own: float | None) -> list[list[str]]:
    """The expected rows of a list of bars, with the token's own row among them or after them."""
    shown = [[visible(c.text), chance(c.probability)] for c in choices]
    if own is not None and all(c.id != token.id for c in choices):
        shown.append([visible(token.text), chance(own)])
    return shown


def seconds_of(r: Round) -> float:
    return r.draft_seconds + r.verify_seconds + r.overhead_seconds


def known_chances(token: Token, own: Token) -> dict[int, tuple[str, float, float]]:
    """The tokens at a judged position whose p and q both follow from the trace."""
    texts: dict[int, str] = {}
    p: dict[int, float] = {}
    q: dict[int, float] = {}
    for choices, chances in ((token.top_p, p), (token.top_q, q)):
        for c in choices:
            texts[c.id] = c.text
            chances[c.id] = c.probability
    for t in (token, own) if own.outcome == "corrected" else (token,):
        assert t.p is not None and t.q is not None
        texts[t.id] = t.text
        p[t.id] = t.p
        q[t.id] = t.q
    assert token.beta is not None
    for c in token.top_residual:
        gap = c.probability * (1 - token.beta)
        texts.setdefault(c.id, c.text)
        if c.id in p:
            q.setdefault(c.id, max(1e-9, p[c.id] - gap))
        elif c.id in q:
            p[c.id] = q[c.id] + gap
    return {i: (texts[i], p[i], q[i]) for i in texts if i in p and i in q}


def check_places(body: Locator, r: Round, *, read: bool) -> None:
    places = body.locator(".sx-places > li")
    assert places.count() == len(r.drafted) + read
    for i, token in enumerate(r.drafted):
        q = rows(places.nth(i), ".is-q li")
        assert q == listed(token.top_q, token, token.soft_q or token.q)
        if read:
            wanted = listed(token.top_p, token, token.soft_p or token.p) if token.top_p else []
            assert rows(places.nth(i), ".is-p li") == wanted
    if read and r.emitted[-1].outcome == "bonus":
        assert rows(places.last, ".is-p li") == listed(r.emitted[-1].top_p, r.emitted[-1], None)


def check_verdict(body: Locator, token: Token, own: Token) -> None:
    """Check the line from 0 to 1 and the two distributions."""
    p = token.p
    q = token.q
    u = token.u
    assert p is not None and q is not None and u is not None
    keep = min(1, p / q)
    fraction = body.locator(".sx-fraction").inner_text().replace("\u00a0", " ").split("\n")
    assert fraction == [f"p {chance(p)}", f"q {chance(q)}"]
    for name, value in (("keep", keep), ("draw", u)):
        pin = body.locator(f".sx-pin.is-{name}")
        at = pin.evaluate("pin => Number(getComputedStyle(pin).getPropertyValue('--at'))")
        assert at == pytest.approx(value, abs=1e-12)
        said = pin.locator("b").inner_text()
        assert float(said) == pytest.approx(value, abs=0.51 * 10.0 ** -len(said.split(".")[1]))
    word = "accepted" if token.outcome == "accepted" else "rejected"
    expect(body.get_by_role("img")).to_have_attribute("aria-label", re.compile(f": {word}\\.$"))
    expect(body.locator(".sx-word-of-verdict")).to_have_text(word)
    check_overlay(body, token, own if token.outcome == "rejected" else token)


def check_overlay(body: Locator, token: Token, own: Token) -> None:
    """Check p over q: the rows are the trace's, and with the rest they add up to p, q and beta."""
    known = known_chances(token, own)
    words = {i: [visible(text), chance(p), chance(q)] for i, (text, p, q) in known.items()}
    *shown, rest = rows(body, ".sx-overlay tr:not(:first-child)")
    assert visible(token.text) in [word for word, *_ in shown]
    ids = []
    for row in shown:
        ids.append(next(i for i, wanted in words.items() if wanted == row and i not in ids))
    both = (token.beta or 0) - sum(min(known[i][1:]) for i in ids)
    left = [1 - sum(known[i][1] for i in ids), 1 - sum(known[i][2] for i in ids)]
    both = max(0, both)
    left = [max(0, one) for one in left]
    parts = f"{chance(both)} in both, {chance(left[1] - both)} only in q, "
    parts += f"{chance(left[0] - both)} only in p"
    assert rest == ["all others", parts, *map(chance, left)]
    heights = [max(known[i][1:]) for i in ids]
    widths = body.locator(".sx-overlay tr:has(.sx-track)").evaluate_all(WIDTHS)
    assert widths == pytest.approx([one / max(heights) for one in heights], abs=2e-3)


def check_balance(said: str, r: Round, trace: Trace) -> None:
    before = sum(len(one.emitted) for one in trace.lane(r.lane)[: r.index])
    passes = trace.lane("baseline")[before : before + len(r.emitted)]
    alone = sum(map(seconds_of, passes))
    assert f"{milliseconds(seconds_of(r))}." in said and f"took {milliseconds(alone)}" in said
    ratio = re.search(r"round was (?:slower, )?([\d.]+) times", said)
    assert ratio and float(ratio[1]) == pytest.approx(alone / seconds_of(r), abs=0.006)


def walk(visitor: Visitor, check: Callable[[str, str, Locator], None]) -> list[str]:
    """Go through the steps of the open round with the arrow key, check each, and return the
    chapters."""
    dialog = visitor.page.locator(DIALOG)
    chapters: list[str] = []
    while True:
        chapter = dialog.locator("[aria-current=step]").inner_text()
        said = dialog.locator(".sx-sentence[aria-live=polite]").inner_text().replace("\u00a0", " ")
        check(chapter, said, dialog.locator(".sx-body"))
        chapters.append(chapter)
        if chapter == "Balance":
            return chapters
        visitor.page.keyboard.press("ArrowRight")


def open_round(visitor: Visitor, r: Round) -> None:
    """Open a round by keyboard: focus on one of its tokens, then E."""
    token = visitor.lane(r.lane).locator(f"[data-round='{r.index}']").first
    token.focus()
    visitor.page.keyboard.press("e")
    name = f"{'Pass' if r.lane == 'baseline' else 'Round'} {r.index + 1} of"
    expect(visitor.page.get_by_role("dialog", name=re.compile(name))).to_be_visible()


def to_the_end(visitor: Visitor, gamma: int = 4) -> Trace:
    """Show the whole recording of the first two presets that has this gamma."""
    visitor.page.keyboard.press("1" if gamma == 4 else "2")
    wait_for(
        visitor.page, "(gamma) => window.specviz.trace?.header.settings.gamma === gamma", gamma
    )
    visitor.page.locator("[data-scrub]").evaluate(
        "(range) => { range.value = range.max; range.dispatchEvent(new Event('input')); }"
    )
    visitor.drawn()
    return Trace.from_dict(visitor.trace())


def test_every_number_of_a_round_is_the_traces(visitor: Visitor) -> None:
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    trace = to_the_end(visitor)
    ours = trace.lane("speculative")
    rejected = next(r for r in ours if {"rejected", "ignored"} <= {t.outcome for t in r.drafted})
    kept = next(r for r in ours if r.drafted and r.emitted[-1].outcome == "bonus")
    for r in (rejected, kept):
        own = r.emitted[-1]
        places = iter(r.drafted)

        def check(chapter: str, said: str, body: Locator, r=r, own=own, places=places) -> None:  # type: ignore[no-untyped-def]
            if chapter == "Guess":
                check_places(body, r, read=False)
            elif chapter == "Check":
                check_places(body, r, read=True)
                took = [milliseconds(r.draft_seconds), milliseconds(r.verify_seconds)]
                assert f"{took[0]}, this pass {took[1]}" in said
            elif chapter == "Judge":
                token = next(places)
                assert visible(token.text) in said and chance(token.p) in said
                check_verdict(body, token, own)
            elif chapter == "Correct" and body.locator(".sx-texts").count() == 0:
                token = r.drafted[len(r.emitted) - 1]
                share = (own.p - own.q) / (1 - token.beta)
                assert rows(body, ".is-left li") == listed(own.top_residual, own, share)
                check_overlay(body, token, own)
            elif chapter == "Bonus":
                assert rows(body, ".is-p li") == listed(own.top_p, own, own.p)
            elif chapter == "Balance":
                check_balance(said, r, trace)

        open_round(visitor, r)
        chapters = walk(visitor, check)
        judged = sum(t.p is not None for t in r.drafted)
        last = ["Correct", "Correct"] if r is rejected else ["Bonus"]
        assert chapters == ["Guess", "Check", *["Judge"] * judged, *last, "Balance"]
        visitor.page.keyboard.press("Escape")


def test_greedy_and_baseline_rounds_are_told_more_simply(visitor: Visitor) -> None:
    trace = to_the_end(visitor, gamma=3)
    page = visitor.page
    page.keyboard.press("s")
    r = next(r for r in trace.lane("speculative") if any(t.p == 0 for t in r.drafted))
    places = iter(r.drafted)

    def check(chapter: str, said: str, body: Locator) -> None:
        assert body.locator(".sx-verdict").count() == 0
        if chapter == "Judge":
            token = next(places)
            first = token.top_p[0]
            kept = token.id == first.id  # a character may be split over two tokens
            assert f"“{visible(token.text if kept else first.text)}”" in said
            assert kept == ("so it is accepted" in said)
            assert rows(body, ".is-p li") == listed(token.top_p, token, token.soft_p)

    open_round(visitor, r)
    assert "Correct" in walk(visitor, check)
    page.get_by_role("button", name="target alone", exact=True).click()
    before = sum(len(one.emitted) for one in trace.lane("speculative")[: r.index])
    alone = trace.lane("baseline")[before]
    dialog = page.get_by_role("dialog", name=re.compile(f"Pass {before + 1} of"))
    assert rows(dialog, ".is-p li") == listed(alone.emitted[0].top_p, alone.emitted[0], None)
    expect(dialog.locator(".sx-sentence")).to_contain_text("One pass")
    page.keyboard.press("Escape")
    expect(page.locator("#topbar")).to_be_hidden()  # the stage is still shown
    page.keyboard.press("s")
    expect(page.locator("#topbar")).to_be_visible()


def test_a_round_is_read_by_keyboard_and_by_ear(visitor: Visitor) -> None:
    trace = to_the_end(visitor)
    page = visitor.page
    page.locator("[data-lane=speculative] .t").last.focus()
    page.keyboard.press("e")
    last = len(trace.lane("speculative"))
    dialog = page.get_by_role("dialog", name=f"Round {last} of {last}")
    expect(dialog.get_by_role("button", name="Next", exact=True)).to_be_focused()
    sentence = dialog.locator(".sx-sentence")
    first = sentence.inner_text()
    page.keyboard.press("Enter")
    expect(sentence).not_to_have_text(first)  # the same element, so it is read aloud
    page.keyboard.press("ArrowLeft")
    expect(sentence).to_have_text(first)
    page.keyboard.press("Shift+ArrowLeft")
    dialog = page.get_by_role("dialog", name=f"Round {last - 1} of {last}")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Save as SVG").click()
    figure = ElementTree.parse(download.value.path())
    texts = [node.text for node in figure.iter("{http://www.w3.org/2000/svg}text")]
    told = trace.lane("speculative")[last - 2]
    kept = sum(token.outcome == "accepted" for token in told.drafted)
    sums = f"{len(told.drafted)} tokens drafted, {kept} accepted, {len(told.emitted)} written"
    assert texts[0] == sums
    words = {re.sub(r"[\x00-\x1f]", "\ufffd", visible(token.text)) for token in told.drafted}
    assert words <= set(texts)
    draws = [f"{token.u:.4f}"[:3] for token in told.drafted if token.u is not None]
    assert draws and all(any(text.startswith(draw) for text in texts if text) for draw in draws)
    for _ in range(14):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.sv-explain, body').tagName") in (
            "DIALOG",
            "BODY",
        )
    assert page.evaluate("window.specviz.position") == page.evaluate("window.specviz.events")
    page.keyboard.press("Escape")
    expect(page.locator(DIALOG)).to_have_count(0)
    assert page.evaluate("document.activeElement.dataset.round") == str(last - 1)

    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("r")
    visitor.state("running")
    page.get_by_role("button", name="Step by step").click()
    visitor.state("paused")  # the race is paused meanwhile
    dialog = page.get_by_role("dialog", name=re.compile("^Round"))
    dialog.get_by_role("button", name="Play").press("Enter")
    expect(dialog.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "true")
    dialog.get_by_role("button", name="Close").click()
    visitor.state("running")


def test_one_round_is_played_slowly_and_pauses_at_its_end(visitor: Visitor) -> None:
    trace = to_the_end(visitor)
    page = visitor.page
    visitor.button("Slow down one round").click()
    for phase in ("guess", "check", "verdict"):
        expect(visitor.player).to_have_attribute("data-slow-phase", phase)
        if phase == "check":  # all guesses are visible, and none is judged
            tokens = page.locator("[data-lane=speculative] .t.pending")
            guesses = tokens.all_text_contents()
    visitor.state("paused")
    expect(visitor.player).not_to_have_attribute("data-slow-phase", re.compile("."))
    done = page.evaluate("window.specviz.finished('speculative')")
    told = trace.lane("speculative")[done - 1]
    assert guesses == [token.text for token in told.drafted]
    shown = page.locator(f"[data-lane=speculative] [data-round='{told.index}']")
    own = [token for token in told.emitted if token.outcome != "accepted"]
    assert shown.evaluate_all("all => all.map((one) => one.dataset.outcome)") == [
        token.outcome for token in (*told.drafted, *own)
    ]


def test_who_wants_no_motion_goes_through_the_round_step_by_step(visitor: Visitor) -> None:
    visitor.page.emulate_media(reduced_motion="reduce")
    visitor.button("Slow down one round").click()
    expect(visitor.page.locator(DIALOG)).to_be_visible()
    visitor.page.keyboard.press("Escape")
    visitor.page.emulate_media(reduced_motion="no-preference")


def test_step_by_step_begins_at_a_round_with_a_rejection(visitor: Visitor) -> None:
    trace = to_the_end(visitor)
    page = visitor.page
    page.evaluate("document.activeElement?.blur()")
    page.locator("[data-explain]").first.click()
    title = page.locator(f"{DIALOG} h2").inner_text()
    place = int(title.split()[1]) - 1
    outcomes = {token.outcome for token in trace.lane("speculative")[place].drafted}
    assert "rejected" in outcomes
    page.keyboard.press("Escape")

    # With the playhead held at a round, the key opens that round.
    page.keyboard.press("Home")
    page.locator("[data-scrub]").fill("0")
    page.evaluate("document.activeElement?.blur()")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("e")
    expect(page.locator(f"{DIALOG} h2")).to_contain_text("Round 1 of")
    page.keyboard.press("Escape")


def test_the_figure_of_a_round_cuts_no_line(visitor: Visitor) -> None:
    """This holds for other fonts too, whose lines may be a quarter wider."""
    to_the_end(visitor)
    widths = visitor.page.evaluate(
        """async () => {
          const { figureOfRound } = await import("specviz/explain/round-figure.js");
          const { trace } = window.specviz;
          const long = "a model with a very long name ".repeat(6).trim();
          const { target } = trace.header;
          const { name } = target;
          target.name = long;
          const round = trace.rounds.find(({ drafted }) => drafted.length);
          const text = figureOfRound(round, trace);
          target.name = name;
          const box = document.createElement("div");
          box.innerHTML = text.replaceAll(/font-family="[^"]*"/g, 'font-family="DejaVu Sans"');
          document.body.append(box);
          const svg = box.querySelector("svg");
          const right = svg.getBoundingClientRect().right;
          const texts = [...svg.querySelectorAll("text")];
          const ends = texts.map((one) => one.getBoundingClientRect().right);
          const lines = texts.map((one) => one.textContent).join(" ");
          box.remove();
          return [Math.max(...ends) - right, lines.includes(long)];
        }"""
    )
    assert widths[0] <= 0 and widths[1]
