"""Texts that have broken pages, through every entrance: all are shown, and none has an effect.

A text that took effect would set `window.__hit`, open a dialog or leave an element marked
`data-hit`.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from filed import settings, tokens
from forked_page import forked_page
from injection_texts import CHARACTERS, CORPUS, LONG, MARKUP, OTHERS, TEMPLATES
from playwright.sync_api import Browser, Page, expect
from serve_injections import hostile_pair
from visitor import PATIENCE, Visit, Visitor, few_draws, wait_for

from specviz import Settings, Trace, race
from specviz.base.errors import TraceError
from specviz.runs.html import standalone_html
from specviz.runs.recording import read_recording

SERVE = Path(__file__).resolve().parent / "serve_injections.py"
TRACES = """() => ({
  hit: window.__hit,
  marked: [document, ...[...document.querySelectorAll("iframe")].map((one) => one.contentDocument)]
    .reduce((sum, one) => sum + (one?.querySelectorAll("[data-hit]").length ?? 0), 0),
  foreign: document.querySelectorAll("[data-player] script, [data-player] iframe,"
    + " [data-player] img, [data-player] form, [data-player] base, [data-player] math").length,
})"""
UNHARMED = {"hit": None, "marked": 0, "foreign": 0}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with forked_page(SERVE) as address:
        yield address


def watched(page: Page) -> Page:
    """Make any dialog on the page a failure."""
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
    return page


def check_unharmed(page: Page) -> None:
    assert page.evaluate(TRACES) == UNHARMED


def visit_watched(visit: Visit, query: str = "") -> Visitor:
    visitor = visit(query=query)
    watched(visitor.page)
    return visitor


def drawn_texts(visitor: Visitor, lane: str) -> set[str]:
    return set(
        visitor.lane(lane)
        .locator("[data-outcome] .w")
        .evaluate_all("(nodes) => nodes.map((node) => node.textContent)")
    )


def look_around(visitor: Visitor) -> None:
    """Open everything that shows a text of the run: cards, panels, the experiment, the stage."""
    page = visitor.page
    tokens = visitor.lane("speculative").locator("[data-outcome]")
    for place in range(0, min(tokens.count(), 40), 3):
        tokens.nth(place).dispatch_event("pointerover")
        tokens.nth(place).focus()
    page.keyboard.press("Escape")
    for panel in ("why", "same"):
        button = page.locator(f"[data-panel-open={panel}]")
        if button.is_visible():
            button.click()
            expect(page.locator(".sv-drawer")).to_be_visible()
            page.keyboard.press("Escape")
    page.evaluate("document.activeElement?.blur()")
    page.keyboard.press("s")
    page.keyboard.press("s")
    check_unharmed(page)


def test_prompts_and_what_models_write(visitor: Visitor) -> None:
    watched(visitor.page)
    visitor.set("number input for Temperature", 2)
    visitor.set("number input for Length", 100)
    prompt = " ".join(text for text in CORPUS if "\x00" not in text)
    visitor.prompt(prompt)
    trace = visitor.run()
    written = {token["text"] for r in trace["rounds"] for token in tokens(r)}
    assert len(written) > len(CORPUS) * 0.8, "the models wrote too little of the corpus"
    shown = drawn_texts(visitor, "speculative") | drawn_texts(visitor, "baseline")
    assert sum(text.strip() in {one.strip() for one in shown} for text in MARKUP) > len(MARKUP) / 2
    look_around(visitor)


def test_prompts_stand_in_both_lanes_as_they_were_typed(visitor: Visitor) -> None:
    watched(visitor.page)
    visitor.set("number input for Length", 1)
    for texts in (MARKUP, TEMPLATES, [CHARACTERS[0], *OTHERS[:-1]]):
        visitor.prompt("\n".join(texts))
        trace = visitor.run()
        prompt = " ".join(texts)  # as the tokenizer writes it
        assert trace["header"]["prompt"] == prompt
        for lane in ("speculative", "baseline"):
            expect(visitor.lane(lane).locator(".sv-given")).to_have_text(prompt)
    check_unharmed(visitor.page)


def test_the_experiment_shows_texts_as_texts(visitor: Visitor) -> None:
    watched(visitor.page)
    visitor.set("number input for Temperature", 1)
    visitor.set("number input for Length", 8)
    visitor.prompt(MARKUP[3])
    visitor.run()
    visitor.page.locator("[data-panel-open=same]").click()
    drawer = visitor.page.get_by_role("dialog", name="the same text")
    visitor.page.route("**/begin_sampling", few_draws)
    drawer.get_by_role("button", name=re.compile("^Draw")).click()
    expect(drawer.locator(".sv-result")).to_contain_text("degrees of freedom", timeout=PATIENCE)
    assert any(text in drawer.text_content() for text in MARKUP)
    check_unharmed(visitor.page)
    visitor.page.unroute_all()
    visitor.page.keyboard.press("Escape")


def spoiled(
    trace: dict[str, Any], of_header: Iterator[str], texts: Iterator[str]
) -> dict[str, Any]:
    """Replace all texts of a trace that its readers accept."""
    found = copy.deepcopy(trace)
    found.pop("digest", None)
    header = found["header"]
    chosen = ("date", "mode", "drafter", "gamma_policy", "chat", "verdict")
    for place in _places(header, skip=chosen):
        name, holder = place
        kept = holder[name]
        holder[name] = next(of_header)[:200]
        if not _reads(found):
            holder[name] = kept
    # No token may contain a stop string, or the run would have ended there.
    settings(header)["stop"] = [f"{next(texts)[:900]} end {number}" for number in range(3)]
    twins: dict[str, str] = {}
    for r in found["rounds"]:
        for token in tokens(r):
            for named in (token, *(c for top in TOPS for c in token.get(top) or [])):
                named["text"] = twins.setdefault(named["text"], next(texts))
    assert _reads(found), "the spoiled trace must be one that the page takes"
    return found


TOPS = ("top_p", "top_q", "top_residual")


def _places(value: dict[str, Any], skip: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _places(inner, skip)
        elif isinstance(inner, str) and name not in skip:
            yield name, value


def _reads(data: dict[str, Any]) -> bool:
    try:
        read_recording(orjson.dumps(data))
    except TraceError:
        return False
    return True


def open_file(visitor: Visitor, name: str, raw: bytes) -> None:
    visitor.page.locator("[data-open]").set_input_files(
        {"name": name, "mimeType": "application/json", "buffer": raw}
    )


@pytest.fixture(scope="module")
def hostile_traces() -> list[dict[str, Any]]:
    """Recordings in which every text is from the corpus; those of one header are all markup."""
    asked = Settings(temperature=1.0, max_new_tokens=40)
    run = Trace.from_events(race(hostile_pair(), "<b>", asked))
    trace = orjson.loads(orjson.dumps(run.to_dict()))
    texts = itertools.cycle([*CORPUS, LONG])
    headers = (itertools.cycle(MARKUP), itertools.cycle([LONG, *CORPUS[len(MARKUP) :]]))
    return [spoiled(trace, of_header, texts) for of_header in headers]


def test_files_their_names_and_every_text_in_them(
    visitor: Visitor, hostile_traces: list[dict[str, Any]]
) -> None:
    watched(visitor.page)
    names = itertools.cycle(text.replace("/", "_").replace("\x00", "") + ".json" for text in CORPUS)
    for trace in hostile_traces:
        open_file(visitor, next(names), orjson.dumps(trace))
        prompt = trace["header"]["prompt"]
        wait_for(visitor.page, "(text) => window.specviz.trace?.header.prompt === text", arg=prompt)
        visitor.page.locator("[data-scrub]").press("End")
        visitor.drawn()
        assert visitor.lane("baseline").locator(".sv-given").text_content() == prompt
        look_around(visitor)
    badge = visitor.page.locator("[data-badge]").inner_text()
    assert "RECORDED" in badge


def test_what_is_wrong_with_a_file_is_said_harmlessly(
    visitor: Visitor, hostile_traces: list[dict[str, Any]]
) -> None:
    watched(visitor.page)
    notice = visitor.page.locator("[data-notice]")
    for text in (MARKUP[3], MARKUP[6], TEMPLATES[0], OTHERS[7]):
        for name, raw in _wrong_files(hostile_traces[0], text):
            visitor.page.evaluate("document.querySelector('[data-notice]').textContent = ''")
            open_file(visitor, name, raw)
            expect(notice).to_contain_text(".", timeout=PATIENCE)
            check_unharmed(visitor.page)


def _wrong_files(trace: dict[str, Any], text: str) -> Iterator[tuple[str, bytes]]:
    name = text.replace("/", "_") + ".json.gz"
    yield name, text.encode()
    yield name, json.dumps({text: text}).encode()
    yield name, json.dumps({**trace, text: 1}).encode()
    broken = copy.deepcopy(trace)
    broken["rounds"][0]["lane"] = text
    yield name, json.dumps(broken).encode()
    broken = copy.deepcopy(trace)
    broken["header"]["lanes"]["speculative"]["drafter"] = text
    yield name, json.dumps(broken).encode()


NAMES = (
    "prompt",
    "preset",
    "recording",
    "theme",
    "stage",
    "gamma",
    "temperature",
    "drafter",
    "pair",
)


TEXTS = (MARKUP[1], MARKUP[4], TEMPLATES[3], "__proto__", OTHERS[10])


@pytest.mark.parametrize("first", [0, 2])
def test_addresses(visit: Visit, first: int) -> None:
    texts = dict(zip(NAMES, itertools.cycle(TEXTS[first:] + TEXTS[:first]), strict=False))
    unknown = {text.replace("=", "")[:40]: text for text in TEXTS}
    asked = {**texts, **unknown}.items()
    visitor = visit_watched(visit, "?" + "&".join(f"{name}={quote(text)}" for name, text in asked))
    check_unharmed(visitor.page)
    expect(visitor.page.locator("[data-notice]")).to_contain_text("not valid here")
    assert visitor.page.evaluate("({}).polluted ?? Object.prototype.__hit") is None


def test_the_whole_corpus_in_an_address(visit: Visit) -> None:
    prompt = " ".join(CORPUS).replace("\x00", "")[:1900]
    visitor = visit_watched(visit, f"?prompt={quote(prompt)}&length=4")
    shown = prompt.replace("\r\n", "\n")  # as in every text field
    expect(visitor.page.get_by_label("Prompt", exact=True)).to_have_value(shown)
    visitor.run()
    check_unharmed(visitor.page)


def test_stand_alone_pages(
    browser: Browser, hostile_traces: list[dict[str, Any]], tmp_path: Path
) -> None:
    context = browser.new_context(offline=True)
    page = watched(context.new_page())
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: said.type == "error" and problems.append(said.text))
    for number, trace in enumerate(hostile_traces):
        path = tmp_path / f"{number}.html"
        path.write_text(standalone_html(Trace.from_dict(trace)), "utf-8")
        page.goto(path.as_uri())
        page.wait_for_selector("[data-player][data-ready]", timeout=PATIENCE)
        page.locator("[data-scrub]").press("End")
        assert page.locator(".sv-prompt").text_content() == trace["header"]["prompt"]
        expect(page.locator("[data-lane=speculative] [data-outcome]")).not_to_have_count(0)
        check_unharmed(page)
    assert problems == []
    page.evaluate(INTRUDE)
    assert page.evaluate("window.__hit") is None
    context.close()


INTRUDE = """async () => {
  document.body.insertAdjacentHTML("beforeend", "<img src=x: onerror='window.__hit=1'>"
    + "<svg onload='window.__hit=1'></svg><button onclick='window.__hit=1'>x</button>");
  document.body.lastElementChild.click();
  const script = document.createElement("script");
  script.textContent = "window.__hit=1";
  document.body.append(script);
  const link = document.createElement("a");
  link.href = "javascript:window.__hit=1";
  document.body.append(link);
  link.click();
  const over = (node) => new Promise((resume) => {
    for (const name of ["load", "error"]) node.addEventListener(name, resume);
  });
  const ends = [over(document.querySelector("img[src='x:']"))];
  const frame = document.createElement("iframe");
  ends.push(over(frame));
  frame.srcdoc = "<script>parent.__hit=1</scr" + "ipt>";
  document.body.append(frame);
  const from = document.createElement("script");
  from.src = "data:text/javascript,window.__hit=1";
  if (location.protocol !== "file:") {
    ends.push(over(from));
    document.body.append(from);
  }
  await Promise.all(ends); // what the browser has to say of them must not come later
  await new Promise((resume) => setTimeout(resume, 300));
}"""


def test_even_markup_that_got_in_would_run_nothing(visit: Visit) -> None:
    visitor = visit_watched(visit)
    visitor.page.evaluate(INTRUDE)
    assert visitor.page.evaluate("window.__hit") is None
    rejected = [problem for problem in visitor.problems if "Content Security Policy" in problem]
    assert len(rejected) >= 4
    visitor.problems.clear()
    visitor.set("number input for Length", 4)
    visitor.prompt("the page still works")
    visitor.run()


def test_the_sign_in_page_works_under_the_policy(browser: Browser) -> None:
    context = browser.new_context()
    with forked_page(SERVE, SPECVIZ_AUTH="somebody:sesame") as address:
        visitor = Visitor(context.new_page())
        visitor.page.goto(address)
        visitor.page.get_by_label("username").fill("somebody")
        visitor.page.get_by_label("password").fill("sesame")
        visitor.page.get_by_role("button", name="Sign in").click()
        visitor.page.wait_for_selector("[data-player][data-ready]")
        assert not [one for one in visitor.problems if "Content Security" in one]
        context.close()
