"""The view "Choose" in a real browser: a whole sweep, a stopped one, and the user's own prompts."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import expect
from visitor import PATIENCE, Visit, Visitor, wait_for

RUNNING = "dialog[data-state=running]"
OVER = "dialog[data-state=over]"

# For every entry of the charts' legends: the width of its sign, the sign's colour, and the chart's
# colour.
KEYS = """() => [...document.querySelectorAll(".sc-figures .sv-chart-key")].map((key) => {
  const sign = getComputedStyle(key, "::before");
  const isFilled = ["bar", "point"].includes(key.dataset.dash);
  const probe = document.createElement("i");
  probe.style.color = key.style.getPropertyValue("--key");
  key.append(probe);
  const wanted = getComputedStyle(probe).color;
  probe.remove();
  return [parseFloat(sign.width), isFilled ? sign.backgroundColor : sign.borderTopColor, wanted];
})"""


MEASURED = "(cells) => cells.map((cell) => cell.querySelector('b') !== null)"

# The columns whose heading is not aligned with the right edge of its figures.
HEADINGS = """() => [...document.querySelectorAll("thead th[data-column]")].filter((head) => {
  const { column } = head.dataset;
  const cell = document.querySelector(`.sc-table tbody td[data-column="${column}"]`);
  if (!cell || head.matches("[aria-sort]")) return false;
  const endOf = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getBoundingClientRect().right;
  };
  return Math.abs(endOf(head.querySelector("button")) - endOf(cell)) > 1;
}).map((head) => head.dataset.column)"""


def opened(visit: Visit, **size: int) -> Visitor:
    visitor = visit(query="?view=choose", **size)
    expect(visitor.page.locator("dialog.sv-choose")).to_be_visible()
    return visitor


def only(visitor: Visitor, name: str, *values: str) -> None:
    """Select exactly these chips of a list."""
    for box in visitor.page.locator(f"dialog input[name={name}]:enabled").all():
        box.set_checked(box.get_attribute("value") in values, force=True)


def small(visitor: Visitor, seconds: int) -> None:
    only(visitor, "drafters", "model", "ngram")
    only(visitor, "gammas", "1", "3")
    only(visitor, "kinds", "prose")
    visitor.page.get_by_label("Tokens per run").select_option("16")
    visitor.page.get_by_label("Time budget").select_option(str(seconds))


def saved(visitor: Visitor, name: str) -> str:
    with visitor.page.expect_download() as download:
        visitor.page.locator(f"[data-export={name}]").click()
    return Path(str(download.value.path())).read_text("utf-8")


def test_only_drafters_of_the_pair_are_offered(visit: Visit) -> None:
    visitor = visit(query="?view=choose&pair=qwen3-4b-eagle3")
    page = visitor.page
    expect(page.locator("dialog.sv-choose .sc-pair")).to_contain_text("Qwen3-4B")
    chips = page.locator("dialog label:has([name=drafters])")
    for offered in ("n-grams", "Head on the target"):
        expect(chips.filter(has_text=offered)).to_be_visible()
    expect(chips.filter(has_text="Draft model")).to_be_hidden()
    expect(page.locator(".sc-start p")).to_contain_text("28 rows")
    # Its target was tuned for chat, so it gets questions, even on the page of another pair.
    expect(page.locator("dialog label:has([name=kinds])").first).to_have_text("code 3")
    expect(page.locator(".sc-start p")).to_contain_text("24 prompts")


def test_a_whole_sweep_ends_with_an_answer_that_a_reload_keeps(visit: Visit) -> None:
    visitor = opened(visit)
    page = visitor.page
    head = page.locator(".sc-head").bounding_box()  # over the whole width, with the rest below it
    assert head and head["width"] == page.evaluate("document.documentElement.clientWidth")
    small(visitor, 5)
    expect(page.locator(".sc-start p")).to_have_text("5 rows, 3 prompts")
    visitor.button("Start").click()
    page.wait_for_selector(OVER, timeout=PATIENCE)
    expect(page.locator("tbody [data-mark=best]")).to_have_count(1)
    assert page.locator(".sc-advice h2").inner_text()
    expect(page.locator(".sc-figures .main-svg").first).to_be_attached()
    expect(page.locator(".sc-figures figure")).to_have_count(4)
    keys = page.evaluate(KEYS)
    assert len(keys) >= 6  # lines by drafter, and parts of a round's time
    assert all(width > 5 and drawn == wanted for width, drawn, wanted in keys), keys

    found: dict[str, Any] = json.loads(saved(visitor, "json"))
    measured = [row for row in found["rows"] if row["measured"] and row["measured"]["speedup"]]
    assert found["schema"] == 1 and len(found["rows"]) == 5 and measured
    assert any(row["predicted"] for row in found["rows"])
    for row in measured:
        key = "{drafter} g{gamma} {policy} t{temperature:g}".format(**row["configuration"])
        shown = page.locator(f"tr[data-key='{key}'] [data-column=speedup] b")
        expect(shown).to_have_text(f"{row['measured']['speedup']['value']:.2f}×")
    table = list(csv.DictReader(saved(visitor, "csv").splitlines()))
    fixed = [row for row in table if row["policy"] == "fixed"]
    assert [row["gamma"] for row in fixed] == ["1", "3", "1", "3"]
    assert [row["drafter"] for row in table if row["policy"] == "confidence"] == ["model"]

    # Predictions, in italics, are below all measured rows.
    cells = page.locator("tbody [data-column=speedup]").evaluate_all(MEASURED)
    assert cells == sorted(cells, reverse=True)
    given_up = page.locator("tbody [data-status=eliminated]")
    texts = page.locator("tbody tr:not([data-status=eliminated]) [data-column=speedup] b")
    speeds = [float(text.split("×")[0]) for text in texts.all_inner_texts() if "×" in text]
    assert speeds and speeds == sorted(speeds, reverse=True), "the fastest come first"
    assert len(speeds) + given_up.count() == sum(cells)
    reasons = page.locator("tbody .sc-why").all_inner_texts()
    assert len(reasons) == len(cells) - sum(cells) and all(
        text.startswith("predicted: ") for text in reasons
    )
    assert page.evaluate(HEADINGS) == [], "each heading stands over its figures"
    expect(page.locator("th[data-column=speedup]")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Speed-up").click()
    gammas = page.locator("tbody tr").evaluate_all("rows => rows.map((row) => row.dataset.key)")
    assert gammas == ["{drafter} g{gamma} {policy} t0".format(**row) for row in table]
    page.reload()
    page.wait_for_selector(OVER)
    expect(page.locator("tbody tr")).to_have_count(5)
    page.keyboard.press("Escape")
    wait_for(page, "!location.search.includes('view=choose')")
    page.keyboard.press("d")
    expect(page.locator(OVER)).to_be_visible()


def test_race_with_these_settings_races(visit: Visit) -> None:
    """The answer comes from a sweep that this tab has kept."""
    best = {"drafter": "ngram", "gamma": 3, "policy": "fixed", "temperature": 0}
    advice = {
        "temperature": 0,
        "answer": "speculate",
        "headline": "Use ngram, gamma 3: 1.50 times as fast as the target alone.",
        "reasons": [],
        "doubt": "",
        "best": best,
        "settings": [],
        "prompt": "A prompt of the sweep, once",
    }
    naming = {"pair": "builtin", "target": "", "draft": "", "weights": "usual"}
    lists = {"drafters": ["ngram"], "gammas": [3], "policies": ["fixed"], "temperatures": [0]}
    wish = {**lists, "kinds": [], "prompts": None, "length": 64, "seconds": 5, "naming": naming}
    row = {
        "key": "ngram g3 fixed t0",
        "configuration": best,
        "status": "measured",
        "mark": "best",
        "predicted": None,
        "measured": None,
        "memory": None,
        "note": "",
    }
    state = {"over": True, "rows": [row], "wish": wish, "recommendations": [advice]}
    visitor = visit()
    page = visitor.page
    key = page.evaluate("async () => (await import('specviz/dom/kept.js')).SWEEP")
    page.evaluate("([key, text]) => sessionStorage.setItem(key, text)", [key, json.dumps(state)])
    page.reload()
    visitor.ready()
    visitor.set("number input for Length", 8)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("d")
    visitor.button("Race with these settings").click()
    expect(page.locator("dialog.sv-choose")).to_be_hidden()
    wait_for(page, "Boolean(window.specviz.trace?.header)")
    visitor.state("ended")
    settings = page.evaluate("window.specviz.trace.header.settings")
    assert (settings["drafter"], settings["gamma"], settings["temperature"]) == ("ngram", 3, 0)
    assert page.evaluate("window.specviz.trace.header.prompt").endswith(
        "A prompt of the sweep, once"
    )


def test_a_stopped_sweep_of_own_prompts_keeps_its_table(visit: Visit) -> None:
    visitor = opened(visit, width=390, height=844)
    page = visitor.page
    small(visitor, 60)
    page.get_by_label("My own", exact=True).check(force=True)
    own = page.get_by_label("My own prompts")
    own.fill('{"prompt": 3}')
    expect(page.locator(".sc-found")).to_contain_text("has no text")
    expect(visitor.button("Start")).to_be_disabled()
    own.fill("The first prompt\nThe second prompt")
    expect(page.locator(".sc-start p")).to_have_text("5 rows, 2 prompts")
    visitor.button("Start").click()
    expect(page.locator(".sc-progress b")).to_have_text(re.compile("Getting ready, [0-2] s"))
    expect(page.locator(".sc-progress span")).to_have_text(re.compile(r"\w{3}"))
    page.wait_for_selector(f"{RUNNING} [data-status=measured]")
    visitor.button("Stop").click()
    page.wait_for_selector(OVER)
    assert page.locator("tbody [data-status=measured]").count()
    expect(page.locator(".sc-advice")).to_contain_text("It was stopped")
    kinds = {one["kind"] for one in json.loads(saved(visitor, "json"))["request"]["prompts"]}
    assert kinds == {"prompts"}
    assert page.evaluate("document.querySelector('.sc-body').scrollWidth") <= 390
