"""A run is identified wherever it is shown, with its doubt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from delayed_runs import costly, slow_middle, slower_later, steady, timed, too_fast
from playwright.sync_api import Page, expect
from sentences import Sentences
from toy_recordings import SAMPLED, recorded, saved
from visitor import PATIENCE, Visit, Visitor, wait_for

from specviz import Trace, compute_metrics
from specviz.base.environment import ASSETS
from specviz.runs.recording import read_recording
from specviz.runs.uncertainty import uncertainty

STRIP = """() => Object.fromEntries([...document.querySelectorAll("[data-item]")]
  .map((node) => [node.dataset.item, node.textContent]))"""
LONG = replace(SAMPLED, max_new_tokens=64)


def wanted(header: dict[str, Any]) -> dict[str, str]:
    """The expected items of the strip for a run with a draft model."""
    settings = header["lanes"]["speculative"]
    models = {"target": header["target"], "draft": header["drafts"]["speculative"]}
    size = {role: f"{model['parameters'] / 1e6:.1f} M" for role, model in models.items()}
    temperature = settings["temperature"]
    prompt = " ".join(header["prompt"].split())
    items = {
        "prompt": prompt if prompt.startswith('"') else f"“{prompt}”",
        "target": f"{header['target']['name']} {size['target']}",
        "draft": f"+ {models['draft']['name']} {size['draft']}",
        "gamma": f"γ {settings['gamma']}",
        "temperature": f"T {temperature:g}" if temperature else "greedy",
        "seed": f"seed {settings['seed']}",
        "max_new_tokens": f"{settings['max_new_tokens']} tokens",
    }
    if settings["gamma_policy"] != "fixed":
        items["gamma_policy"] = f"{settings['gamma_policy']} γ"
    if settings["top_k"]:
        items["top_k"] = f"top-k {settings['top_k']}"
    if settings["top_p"] < 1:
        items["top_p"] = f"top-p {settings['top_p']:g}"
    return items


def check(page: Page) -> dict[str, Any]:
    """Check that the strip agrees with the header of the shown trace, and return that header."""
    header: dict[str, Any] = page.evaluate("window.specviz.trace.header")
    assert page.evaluate(STRIP) == wanted(header)
    threads = (header.get("lane_threads") or {}).get("baseline", header["threads"])
    machine = f"{header['device']} · {header['processor']} · {threads} thread"
    expect(page.locator("[data-badge]")).to_contain_text(machine)
    expect(page.locator("[data-badge]")).to_contain_text(header["dtype"])
    return header


def test_the_strip_is_the_run_however_it_came(
    visit: Visit, tmp_path: Path, sentences: Sentences
) -> None:
    visitor = visit(query="?gamma=9&temperature=0")
    page = visitor.page
    differs = visitor.page.locator("[data-differs]")
    visitor.state("running")
    assert check(page)["lanes"]["speculative"]["gamma"] == 4  # the preset's recording
    expect(differs).to_contain_text("γ 9 · greedy")
    differs.click()
    expect(page.locator("[data-toggle-panel]")).to_have_attribute("title", "γ 4 · T 1 · 64 tokens")
    expect(differs).not_to_contain_text("γ")
    page.locator("#presets .preset").nth(1).click()
    wait_for(page, "window.specviz.trace.header.settings.gamma === 3")
    check(page)

    for label, value in (("Length", 12), ("Temperature", 0.35), ("Top-k", 7), ("Top-p", 0.9)):
        visitor.set(f"number input for {label}", value)
    visitor.unfold()
    page.get_by_role("radio", name="Heuristic").click()
    visitor.run()
    settings = check(page)["lanes"]["speculative"]
    assert (settings["top_k"], settings["gamma_policy"]) == (7, "heuristic")
    expect(differs).to_be_hidden()
    visitor.set("number input for Length", 13)
    expect(differs).to_contain_text("13 tokens")
    sentences(differs.inner_text())
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("s")  # the stage names the prompt too
    expect(page.locator("[data-item=prompt]")).to_be_visible()
    expect(page.locator("[data-item=gamma]")).to_be_visible()
    page.keyboard.press("s")

    menu = page.locator("[data-share]")
    menu.locator("> summary").click()
    with page.expect_download(timeout=PATIENCE) as download:
        menu.locator("[data-take=html]").click()
    download.value.save_as(tmp_path / "run.html")
    taken = page.context.new_page()
    taken.goto((tmp_path / "run.html").as_uri())
    taken.wait_for_selector("[data-player][data-ready]")
    assert check(taken)["lanes"]["speculative"] == settings
    expect(taken.locator("[data-differs]")).to_be_hidden()
    taken.close()

    run = {"name": "run.json.gz", "mimeType": "application/gzip"}
    page.locator("[data-open]").set_input_files(
        {**run, "buffer": saved(recorded(SAMPLED), tmp_path)}  # type: ignore[arg-type]
    )
    wait_for(page, "window.specviz.trace.header.prompt_ids.length === 3")
    check(page)
    page.reload()
    visitor.ready()
    visitor.state("running")
    check(page)


def test_the_pair_is_part_of_the_address_and_a_link_shows_its_recording(
    visit: Visit, names: list[str]
) -> None:
    visitor = visit(query=f"?recording={names[1]}&pair=smollm2-1.7b-135m&weights=bfloat16")
    visitor.state("running")
    page = visitor.page
    assert check(page)["lanes"]["speculative"]["gamma"] == 3
    expect(page.locator("[data-differs]")).to_contain_text("pair SmolLM2-1.7B-Instruct + SmolLM2")
    wait_for(page, "location.search.includes('pair=smollm2-1.7b-135m')")
    assert page.evaluate("location.search.includes('weights=bfloat16')")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("[data-share] > summary").click()
    page.locator("[data-take=link]").click()
    wait_for(page, "navigator.clipboard.readText().then((text) => text === location.href)")


def test_a_planted_slow_lane_is_named(
    visitor: Visitor, tmp_path: Path, sentences: Sentences
) -> None:
    wait_for(visitor.page, "Boolean(window.specviz.trace)")
    page = visitor.page
    doubt = visitor.page.locator("[data-doubt]")
    top = "() => document.querySelector('.sv-large').getBoundingClientRect().top"
    tops = set()
    for factor, words in (
        (slow_middle, "The target alone took"),
        (slower_later, "Parts of the run"),
        (too_fast, "less than the one"),
        (steady, None),
        (costly, None),
    ):
        run = timed(recorded(replace(LONG, temperature=0.0)), factor)
        found = uncertainty(run)
        assert found is not None
        raw = saved(run, tmp_path)
        page.evaluate("window.specviz.trace.isOld = true")
        page.locator("[data-open]").set_input_files(
            {"name": "run.json.gz", "mimeType": "application/gzip", "buffer": raw}
        )
        wait_for(page, "!window.specviz.trace.isOld")
        assert Trace.from_dict(visitor.trace()) == run
        page.locator("[data-scrub]").fill("9999")
        headline = page.locator("[data-headline]")
        visitor.drawn()
        tops.add(page.evaluate(top))
        if words is None:
            expect(doubt).to_have_text("")
            heading = page.get_by_role("heading", level=1)
            shown = f"{compute_metrics(run).speedup:.2f}"
            expect(heading).to_contain_text(f"{shown} times the speed")
            sentences(heading.inner_text(), measured=True)
            continue
        expect(doubt).to_contain_text(words)
        sentences(doubt.inner_text(), measured=True)
        expect(headline).to_have_text(
            "?" if found.doubt == "price" else f"{compute_metrics(run).speedup:.2f}"
        )
    assert len(tops) == 1, "what is said moves what is below"


def test_a_run_that_is_opened_again_sets_prompt_preset_and_settings(
    visitor: Visitor,
) -> None:
    page = visitor.page
    raw = (ASSETS / "recordings" / "repetitive.json.gz").read_bytes()
    file: Any = {"name": "run.json.gz", "mimeType": "application/gzip", "buffer": raw}
    page.locator("[data-open]").set_input_files(file)
    prompt = read_recording(raw).header.prompt
    expect(page.get_by_label("Prompt", exact=True)).to_have_value(prompt)
    preset = page.locator("button.preset", has_text="repetitive")
    expect(preset).to_have_attribute("aria-pressed", "true")
    expect(page.locator("[data-differs]")).to_be_hidden()
    wait_for(page, "location.search.includes('preset=repetitive')")
