"""The address describes the shown state, in both directions, and nothing else."""

from __future__ import annotations

from urllib.parse import parse_qs, quote

import pytest
from filed import settings
from playwright.sync_api import Page, expect
from sentences import Sentences
from visitor import Visit, wait_for

HOSTILE = "<img src=x onerror=alert(1)>{{7*7}}${7*7}<script>alert(2)</script>"


def query_of(page: Page) -> dict[str, str]:
    query = page.evaluate("location.search.slice(1)")  # page.url may be updated later
    return {name: found[0] for name, found in parse_qs(query).items()}


def test_what_an_address_asks_is_shown_and_written_back(visit: Visit, names: list[str]) -> None:
    asked = {
        "preset": names[2],
        "recording": names[1],
        "gamma": "3",
        "temperature": "0.35",
        "top_k": "40",
        "top_p": "0.9",
        "length": "20",
        "seed": "11",
        "drafter": "none",
        "theme": "dark",
    }
    visitor = visit(query="?" + "&".join(f"{name}={value}" for name, value in asked.items()))
    visitor.state("running")
    page = visitor.page
    # It is written a moment after the last change, with the settings before the shown run.
    wait_for(
        page,
        "[...new URLSearchParams(location.search).keys()].join().endsWith('seed,recording,theme')",
    )
    assert query_of(page) == asked
    assert page.evaluate("document.body.classList.contains('dark')")
    assert settings(visitor.trace()["header"])["gamma"] == 3  # as the recording happens to have
    expect(page.locator("[data-toggle-panel]")).to_have_attribute(
        "title", "γ 3 · T 0.35 · 20 tokens"
    )
    asked = settings(visitor.run()["header"])
    wanted = {"gamma": 3, "temperature": 0.35, "top_k": 40, "top_p": 0.9, "max_new_tokens": 20}
    assert {name: asked[name] for name in wanted} == wanted
    assert (asked["seed"], asked["drafter"]) == (11, "none")

    wait_for(page, "!location.search.includes('recording')")  # a live run is shown
    page.locator("[data-toggle-theme]").click()
    visitor.prompt("a text of my own & more")
    wait_for(page, "location.search.includes('prompt')")
    query = query_of(page)
    assert query["prompt"] == "a text of my own & more"
    assert "preset" not in query and query["theme"] == "light"
    page.reload()
    visitor.ready()
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("a text of my own & more")
    page.locator("#presets .preset").nth(0).click()
    wait_for(page, "!location.search.includes('prompt')")


def test_what_makes_no_sense_is_left_out_with_a_notice(visit: Visit, sentences: Sentences) -> None:
    bad = {
        "preset": HOSTILE,
        "recording": "../../secret",
        "gamma": "65",
        "temperature": "NaN",
        "top_k": "1e9",
        "top_p": "0",
        "length": "-5",
        "seed": "2.5",
        "drafter": HOSTILE,
        "theme": "blue",
        "stage": "yes",
        "prompt": " ",
    }
    query = "&".join(f"{name}={quote(value)}" for name, value in bad.items())
    visitor = visit(query=f"?{query}&unknown={quote(HOSTILE)}")
    visitor.page.on("dialog", lambda dialog: pytest.fail("an address was run as a script"))
    notice = visitor.page.locator("[data-notice]")
    expect(notice).to_contain_text("were ignored")
    sentences(notice.inner_text())
    expect(visitor.page.locator("[data-toggle-panel]")).to_have_attribute(
        "title", "γ 5 · greedy · 128 tokens"
    )
    expect(visitor.page.locator("#topbar")).to_be_visible()
    wait_for(visitor.page, """() => {
      const names = [...new URLSearchParams(location.search).keys()];
      return names.every((name) => name === "unknown");
    }""")  # fmt: skip
