"""The shown run matches the prompt and settings above it, or it is faded and says that it does
not."""

from __future__ import annotations

from playwright.sync_api import expect
from sentences import Sentences
from visitor import Visit, Visitor

# The font size of an element, and that of the sentence about the texts.
LETTERS = """(node) => [node, document.querySelector("[data-identical]")]
  .map((one) => parseFloat(getComputedStyle(one).fontSize))"""
OWN = "A prompt that nobody has recorded"


def check_faded(visitor: Visitor, word: str) -> str:
    """Check that the run is faded, with a sentence that contains `word`; return the sentence."""
    stale = visitor.page.locator("[data-stale]")
    for width in (390, 1440):
        visitor.page.set_viewport_size({"width": width, "height": 844})
        visitor.drawn()
        where = f"at {width} px"
        expect(stale, where).to_contain_text(word)
        expect(stale, where).to_be_in_viewport(ratio=1)
        expect(visitor.player, where).to_have_attribute("data-faded", "")
        large, beside = stale.evaluate(LETTERS)
        assert large >= 24 and large > 1.2 * beside, where
        for part in (".sv-lanes", ".sv-large", ".sv-minis figure"):
            shown = visitor.page.locator(part).first
            expect(shown, where).to_have_css("filter", "grayscale(1)")
    return stale.inner_text()


def test_a_link_with_a_prompt_of_its_own_does_not_pass_a_recording_for_it(
    visit: Visit, sentences: Sentences
) -> None:
    visitor = visit(query=f"?prompt={OWN}&length=12", height=844)
    visitor.state("running")
    sentences(check_faded(visitor, "Recording"))
    visitor.run()
    expect(visitor.player).not_to_have_attribute("data-faded", "")
    expect(visitor.page.locator("[data-stale]")).to_be_hidden()
    visitor.prompt(f"{OWN}, either")
    sentences(check_faded(visitor, "another prompt"))
    visitor.prompt(OWN)
    expect(visitor.player).not_to_have_attribute("data-faded", "")
    visitor.set("number input for γ, guesses per round", 7)
    visitor.page.keyboard.press("Escape")
    sentences(check_faded(visitor, "other settings"))
