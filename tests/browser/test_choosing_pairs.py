"""A pair on the page: chosen, examined before anything is loaded, raced, and replaced."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from filed import emitted, legend_counts, settings
from forked_page import forked_page
from model_families import saved_family
from model_stores import keep_in_ollama
from playwright.sync_api import Locator, expect
from sentences import Sentences
from tiny_files import tiny_file
from toy_heads import ToyHead
from transformers import AutoModelForCausalLM
from visitor import PATIENCE, Visit, Visitor, headline_of, two_places

from specviz import Token, Trace, compute_metrics
from specviz.base.environment import ASSETS
from specviz.page.controls import OFFERED
from specviz.runs.recording import read_file
from specviz.runs.series import series

SERVE = Path(__file__).resolve().parent / "serve_builtin.py"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (ASSETS / "pair" / "target").is_dir(), reason="no built-in pair here"),
]


@pytest.fixture(scope="module")
def open_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real page. Its operator lets visitors name any model and see those of Ollama on this
    machine."""
    home = tmp_path_factory.mktemp("home")
    for name, layers in (("tiny:7b", 9), ("tiny:0.5b", 1)):
        file = tiny_file(home, "Q8_0", "qwen2", name="model", num_hidden_layers=layers)
        keep_in_ollama(home, file.path, name)
    ollama = str(home / ".ollama/models")
    with forked_page(
        SERVE, SPECVIZ_ANY_MODEL="1", SPECVIZ_LOCAL_MODELS="1", OLLAMA_MODELS=ollama
    ) as address:
        yield address


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders in the hub's format: a pair, a head on its target, and a draft with another
    tokenizer."""
    home = tmp_path_factory.mktemp("models")
    target, draft = saved_family(home, "llama", noise=0.02)
    foreign = home / "foreign"
    shutil.copytree(draft, foreign)
    path = foreign / "tokenizer.json"
    data = json.loads(path.read_text())
    vocab = data["model"]["vocab"]
    one, other = sorted(vocab, key=vocab.get)[20:22]
    vocab[one], vocab[other] = vocab[other], vocab[one]
    path.write_text(json.dumps(data))
    model = AutoModelForCausalLM.from_pretrained(target)
    head = ToyHead(model, (1, 2), range(model.config.vocab_size)).save_speculators(home / "head")
    return {"target": target, "draft": draft, "foreign": foreign, "head": head}


def opened(visit: Visit, address: str, query: str = "") -> Visitor:
    """Open the page as a new visitor and skip its first recording, which would be drawn until the
    first run."""
    visitor = visit(address=address, query=query)
    visitor.page.locator("[data-scrub]").press("End")
    return visitor


def choose(visitor: Visitor, pair: str) -> None:
    visitor.settings()
    pairs = visitor.page.get_by_label("Pair", exact=True)
    label = pairs.locator("option").filter(has_text=pair).first.text_content()
    pairs.select_option(label=label)


def name_models(visitor: Visitor, target: Path, draft: Path) -> None:
    visitor.page.get_by_label("Target", exact=True).fill(str(target))
    box = visitor.page.get_by_label("Draft", exact=True)
    box.fill(str(draft))
    box.press("Enter")


def report(visitor: Visitor) -> Locator:
    return visitor.page.locator("#doctor")


def test_a_pair_is_chosen_examined_raced_and_left(
    visit: Visit, open_page: str, folders: dict[str, Path], sentences: Sentences
) -> None:
    visitor = opened(visit, open_page)
    expect(visitor.player).to_have_attribute("data-source", "recording")
    own_model = visitor.page.get_by_role("radio", name="Draft model", exact=True)
    own_head = visitor.page.get_by_role("radio", name="Head on the target", exact=True)
    choose(visitor, "Qwen3-4B_eagle3")  # a row of the table with a head but no draft model
    expect(own_model).to_have_count(0)
    expect(own_head).to_be_checked()
    choose(visitor, "Another pair")
    expect(own_model).to_be_visible()  # nothing is known of it yet
    name_models(visitor, folders["target"], folders["head"])
    expect(own_model).to_have_count(0, timeout=PATIENCE)
    expect(own_head).to_be_checked(timeout=PATIENCE)  # maybe after an answer on the target alone
    visitor.set("number input for Length", 12)
    header = visitor.run()["header"]
    assert settings(header)["drafter"] == header["drafts"]["speculative"]["name"] == "head"
    name_models(visitor, folders["target"], folders["target"].parent / "nowhere")
    stop = report(visitor).locator("p.stop")
    expect(stop).to_contain_text("nowhere", timeout=PATIENCE)
    sentences(stop.inner_text())
    # A run with this pair anyway gives the sentence, and the page keeps working.
    visitor.button("Run").click()
    expect(visitor.page.locator("[data-notice]")).to_contain_text("nowhere", timeout=PATIENCE)

    name_models(visitor, folders["target"], folders["foreign"])
    common = report(visitor).filter(has_text="tokens in common")
    expect(common).to_be_visible(timeout=PATIENCE)
    expect(own_head).to_have_count(0)
    expect(own_model).to_be_checked()
    visitor.set("number input for Length", 12)
    assert visitor.run()["header"]["drafts"]["speculative"]["shared"] > 100
    expect(visitor.page.locator("[data-item=shared]")).to_contain_text("shared tokens")

    name_models(visitor, folders["target"], folders["draft"])
    expect(report(visitor).locator("p.stop")).to_have_count(0, timeout=PATIENCE)
    expect(report(visitor).locator("li").first).to_be_visible(timeout=PATIENCE)
    visitor.set("number input for Length", 24)
    header = visitor.run()["header"]
    assert header["target"]["name"] == folders["target"].name
    assert header["drafts"]["speculative"]["name"] == folders["draft"].name

    # Counts come from this text alone, because the page keeps no earlier runs. A long greedy text
    # repeats itself.
    visitor.prompt('"My dear Watson," said Holmes,')
    visitor.set("number input for Temperature", 0)
    visitor.set("number input for Length", 96)
    visitor.page.get_by_role("radio", name="Counts").click()
    assert visitor.run()["header"]["memory"] is None
    drafted = visitor.page.locator("[data-lane=speculative] .t.accepted").first
    visitor.page.keyboard.press("Escape")  # so that the browser treats the focus as a keyboard's
    drafted.focus()
    expect(visitor.page.locator(".sv-card-reason")).to_contain_text("occurred")

    visitor.unfold()  # Escape has closed the settings
    visitor.set("number input for Length", 16)
    visitor.page.get_by_role("radio", name="n-grams").click()
    visitor.page.get_by_role("radio", name="Heuristic").click()
    header = visitor.run()["header"]
    assert header["drafts"]["speculative"] is None
    assert (settings(header)["drafter"], settings(header)["gamma_policy"]) == (
        "ngram",
        "heuristic",
    )
    expect(visitor.page.locator("[data-guesser=speculative]")).to_contain_text("n-grams + target")
    expect(visitor.page.locator("[data-toggle-panel]")).to_have_attribute("title", re.compile("≤"))

    choose(visitor, "Built-in pair")
    expect(report(visitor)).to_have_text("")
    visitor.page.get_by_role("radio", name="Draft model").click()
    trace = visitor.run()
    assert trace["header"]["target"]["parameters"] > 1_000_000
    assert trace["header"]["drafts"]["speculative"] is not None
    assert sum(len(emitted(r)) for r in trace["rounds"]) == 2 * 16


def test_a_pair_that_a_link_names_is_examined_and_told_of_if_it_cannot_race(
    visit: Visit, open_page: str, folders: dict[str, Path]
) -> None:
    """There is no network: a pair of folders can race, and one of the hub cannot."""
    visitor = visit(address=open_page, query="?pair=smollm2-1.7b-135m")
    expect(report(visitor).locator("p").first).to_contain_text("SmolLM2-1.7B", timeout=PATIENCE)
    expect(report(visitor).locator("li").first).to_be_visible()
    expect(visitor.page.locator("[data-toggle-panel]")).to_have_attribute("aria-expanded", "true")
    visitor.page.close()  # the next visitor takes its place
    visitor = visit(address=open_page, query=f"?pair={folders['target']}%2Bnone")
    expect(report(visitor).locator("p.good")).to_be_attached(timeout=PATIENCE)
    visitor.drawn()
    expect(visitor.page.locator("[data-toggle-panel]")).to_have_attribute("aria-expanded", "false")


def test_models_of_this_machine_stand_in_a_group_race_and_make_an_address(
    visit: Visit, open_page: str, sentences: Sentences
) -> None:
    visitor = opened(visit, open_page, "?length=8")
    visitor.settings()
    group = visitor.page.locator("optgroup[label='On this machine'] option")
    named = group.filter(has_text="tiny:7b + tiny:0.5b")
    expect(named).to_have_count(1)
    sentences(str(named.text_content()), measured=True)
    expect(visitor.page.locator("#panel select option").last).to_have_text("Another pair…")
    choose(visitor, "tiny:7b + tiny:0.5b")
    expect(report(visitor).locator("p").first).to_contain_text("tiny:7b", timeout=PATIENCE)
    header = visitor.run()["header"]
    assert header["target"]["name"] == "tiny:7b"
    assert header["drafts"]["speculative"]["name"] == "tiny:0.5b"
    named = "pair=ollama%3Atiny%3A7b%2Bollama%3Atiny%3A0.5b"
    visitor.page.wait_for_url(re.compile(re.escape(named)))
    visitor.page.close()  # the next visitor takes its place
    again = visit(address=open_page, query=f"?{named}")
    again.settings()
    expect(again.page.get_by_label("Pair", exact=True)).to_have_value(
        "ollama:tiny:7b+ollama:tiny:0.5b"
    )


def test_four_lanes_race_on_one_page_and_their_recording_opens_again(
    visit: Visit, open_page: str, tmp_path: Path, sentences: Sentences
) -> None:
    """The lanes are the draft model, n-grams, early exit and the target alone, with one prompt."""
    visitor = opened(visit, open_page, "?lanes=drafters&length=32")
    trace = Trace.from_dict(visitor.run())
    assert trace.header.settings.temperature == 0  # the default, so that all write the same text
    page = visitor.page
    names = ("draft model", "n-gram", "early exit")
    assert trace.lanes == (*names, "baseline") and trace.end is not None
    assert all(len(lane_tokens(trace, lane)) == 32 for lane in trace.lanes)
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")

    ratios = {lane: compute_metrics(trace, lane).speedup or 0.0 for lane in names}
    best = max(names, key=ratios.__getitem__)
    ratio = headline_of(trace, best)
    said = "No fair ratio" if ratio == "?" else f"{best}, γ 5: {ratio} times"
    expect(page.locator("[data-verdict]")).to_contain_text(said)
    expect(page.locator("[data-identical]")).to_contain_text("Every lane: 32/32")
    sentences(page.locator("[data-identical]").inner_text())
    for lane in names:
        page.get_by_role("button", name=lane, exact=True).click()
        m = compute_metrics(trace, lane)
        for outcome, count in legend_counts(visitor.trace()["rounds"], lane).items():
            expect(page.locator(f"[data-count={outcome}]")).to_have_text(str(count))
        article = page.locator(f"[data-lane='{lane}']")
        expect(article.locator("[data-sums]")).to_contain_text(f": {m.drafted} drafted")
        drawn = article.locator("[data-outcome]").evaluate_all("all => all.map(t => t.dataset)")
        assert len(drawn) == sum(m.counts.values())
        expect(page.locator(f"[data-ratio='{lane}']")).to_have_text(f"{two_places(ratios[lane])}×")
        shown = page.evaluate("lane => specviz.metricsOf(lane)", lane)
        assert shown["counts"] == m.counts and shown["speedup"] == pytest.approx(m.speedup)
    points = series(trace.rounds, trace.lanes)
    assert page.evaluate("specviz.series.tau.length") == len(points["tau"]) == 3
    assert page.evaluate("specviz.series.parts") == [
        {"x": pytest.approx(one["x"]), "y": one["y"]} for one in points["parts"]
    ]
    assert "lanes=drafters" in page.url

    page.locator("[data-share] > summary").click()
    with page.expect_download(timeout=PATIENCE) as download:
        page.locator("[data-save=packed]").click()
    file = tmp_path / "four.json.gz"
    download.value.save_as(file)
    assert read_file(file)[0] == trace
    page.locator("#presets .preset").first.click()
    expect(page.locator("[data-lane=speculative]")).to_be_visible()
    expect(page.locator("[data-lane]")).to_have_count(2)
    page.locator("[data-open]").set_input_files(file)
    expect(page.locator("[data-badge]")).to_contain_text("opened from a file")
    assert Trace.from_dict(visitor.trace()) == trace
    expect(page.locator("[data-lane]")).to_have_count(4)


def test_lanes_that_are_chosen_by_hand_begin_greedy_unless_somebody_chose_otherwise(
    visit: Visit, open_page: str
) -> None:
    visitor = visit(address=open_page, query="?prompt=The+cat")
    visitor.unfold()
    lanes = visitor.page.locator("#advanced")
    temperature = visitor.page.get_by_label("number input for Temperature")
    for name, begins in (("Drafters", "0"), ("γ", "0"), ("Verdicts", "0.7"), ("One", "0.7")):
        lanes.get_by_role("radio", name=name, exact=True).click()
        expect(temperature).to_have_value(begins)
    visitor.set("number input for Temperature", 1)
    lanes.get_by_role("radio", name="Drafters", exact=True).click()
    visitor.drawn()
    expect(temperature).to_have_value("1")


def lane_tokens(trace: Trace, lane: str) -> list[Token]:
    return [token for r in trace.lane(lane) for token in r.emitted]


def test_every_drafter_and_every_verdict_races_on_the_built_in_pair(
    visit: Visit, open_page: str, sentences: Sentences
) -> None:
    visitor = opened(visit, open_page, "?temperature=0.7&prompt=The+cat+and+the+cat+and")
    visitor.set("number input for Length", 16)
    differs = visitor.page.locator("[data-differs]")
    labels = OFFERED["drafter"].choices or {}
    for label, drafter in labels.items():
        visitor.page.get_by_role("radio", name=label, exact=True).first.click()
        trace = visitor.run()
        assert settings(trace["header"])["drafter"] == drafter
        drafted = sum(len(r["drafted"]) for r in trace["rounds"] if r["lane"] == "speculative")
        assert (drafted > 0) == (drafter != "none"), drafter
        expect(differs).to_be_hidden()  # the page knows the pair of each run
    visitor.page.get_by_role("radio", name="Draft model", exact=True).click()
    visitor.unfold()
    for label, verdict in (OFFERED["verdict"].choices or {}).items():
        visitor.page.get_by_role("radio", name=label, exact=True).click()
        trace = visitor.run()
        assert settings(trace["header"])["verdict"] == verdict
        expect(visitor.player).to_have_attribute("data-rule", verdict)
        changed = visitor.page.locator("[data-run] .sv-inexact")
        expect(changed).to_have_count(int(verdict == "typical"))

    # The last verdict stays chosen; it races next to lanes whose text is the target's.
    visitor.page.get_by_role("radio", name="Verdicts", exact=True).click()
    lanes = visitor.run()["header"]["lanes"]
    assert list(lanes) == ["typical", "token", "block"]
    expect(changed).to_contain_text("changes the text")
    sentences(changed.inner_text())
    expect(visitor.page.locator("[data-lane] header .sv-inexact")).to_have_count(1)
    expect(visitor.lane("typical").locator("header .sv-inexact")).to_have_text("changes the text")
    said = visitor.page.locator("[data-identical]")
    for lane in lanes:
        visitor.lane(lane).locator("h2 button").click()
        expect(visitor.player).to_have_attribute("data-rule", lane)
        expect(said).to_contain_text("the verdict typical changes")
