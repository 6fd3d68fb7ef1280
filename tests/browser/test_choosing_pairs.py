"""A pair on the page: chosen, examined before anything is loaded, raced, and left again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_families import saved_family
from playwright.sync_api import Locator, expect
from visitor import PATIENCE, Visit, Visitor

from specviz.bench.browser import served_page
from specviz.environment import ASSETS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (ASSETS / "pair" / "target").is_dir(), reason="no built-in pair here"),
]


@pytest.fixture(scope="module")
def open_page() -> Iterator[str]:
    """The real page, whose operator lets visitors name any model."""
    os.environ["SPECVIZ_ANY_MODEL"] = "1"
    with served_page() as address:
        yield address
    del os.environ["SPECVIZ_ANY_MODEL"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pair of folders in the hub's format, and a draft made for another tokenizer."""
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
    return {"target": target, "draft": draft, "foreign": foreign}


def choose(visitor: Visitor, pair: str) -> None:
    panel = visitor.page.locator("[data-toggle-panel]")
    if panel.get_attribute("aria-expanded") == "false":
        panel.click()
    visitor.page.get_by_label("Pair", exact=True).click()
    visitor.page.get_by_role("option").filter(has_text=pair).first.click()


def name_models(visitor: Visitor, target: Path, draft: Path) -> None:
    visitor.page.get_by_label("Target", exact=True).fill(str(target))
    box = visitor.page.get_by_label("Draft", exact=True)
    box.fill(str(draft))
    box.press("Enter")


def report(visitor: Visitor) -> Locator:
    return visitor.page.locator("#doctor")


def test_a_pair_is_chosen_examined_raced_and_left(
    visit: Visit, open_page: str, folders: dict[str, Path]
) -> None:
    visitor = visit(address=open_page)
    # The recording that a visit begins with
    expect(visitor.player).to_have_attribute("data-source", "recording")
    choose(visitor, "Another pair")
    name_models(visitor, folders["target"], folders["foreign"])
    expect(report(visitor).locator("p.stop")).to_contain_text("cannot race", timeout=PATIENCE)
    expect(report(visitor).locator("li.stop").first).to_contain_text("different tokenizers")
    # The one who races it all the same gets the sentence, and the page lives on.
    visitor.button("Run").click()
    expect(visitor.page.locator("[data-notice]")).to_contain_text("different", timeout=PATIENCE)

    name_models(visitor, folders["target"], folders["draft"])
    expect(report(visitor).locator("p.stop")).to_have_count(0, timeout=PATIENCE)
    expect(report(visitor).locator("li").first).to_be_visible(timeout=PATIENCE)
    visitor.set("number input for Length", 24)
    header = visitor.run()["header"]
    assert header["target"]["name"] == folders["target"].name
    assert header["draft"]["name"] == folders["draft"].name

    visitor.page.get_by_role("radio", name="n-grams").click()
    visitor.page.get_by_role("radio", name="Heuristic").click()
    header = visitor.run()["header"]
    assert header["draft"] is None
    assert (header["settings"]["drafter"], header["settings"]["gamma_policy"]) == (
        "ngram",
        "heuristic",
    )
    expect(visitor.page.locator("[data-guesser]")).to_contain_text("copied from the text")
    expect(visitor.page.locator("[data-toggle-panel]")).to_contain_text("≤")

    choose(visitor, "Built-in pair")
    expect(report(visitor)).to_have_text("")
    visitor.page.get_by_role("radio", name="Draft model").click()
    assert visitor.run()["header"]["target"]["parameters"] > 1_000_000


def test_the_list_says_what_fits_and_no_other_pair_can_be_named(visit: Visit, url: str) -> None:
    visitor = visit()
    visitor.page.locator("[data-toggle-panel]").click()
    visitor.page.get_by_label("Pair", exact=True).click()
    options = visitor.page.get_by_role("option")
    expect(options.filter(has_text="Built-in pair")).to_have_count(1)
    expect(options.filter(has_text="GB")).not_to_have_count(0, timeout=PATIENCE)
    expect(options.filter(has_text="too large here")).not_to_have_count(0)
    expect(options.filter(has_text="Another pair")).to_have_count(0)


def test_a_pair_that_a_link_names_is_examined_like_one_that_is_chosen(visit: Visit) -> None:
    visitor = visit(query="?pair=smollm2-1.7b-135m")
    expect(report(visitor)).not_to_have_text("", timeout=PATIENCE)
    expect(visitor.page.locator("[data-toggle-panel]")).to_have_attribute("aria-expanded", "true")


def test_a_pair_without_network_is_a_sentence(visit: Visit) -> None:
    visitor = visit()
    choose(visitor, "SmolLM2")
    expect(report(visitor).locator("p").first).to_contain_text("SmolLM2", timeout=PATIENCE)
    expect(report(visitor).locator("li").first).to_be_visible()
