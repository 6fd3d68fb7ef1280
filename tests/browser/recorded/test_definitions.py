"""Definitions of the page's words: available at every caption by pointing, tapping or a screen
reader."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect
from visitor import Visitor

PHONE: ViewportSize = {"width": 390, "height": 844}
# Captions of the page, and a part of their sentences.
SAID = {
    "[data-line=alpha] figcaption": "share of the judged guesses",
    "[data-line=tau] figcaption": "tokens written per pass",
    "[data-line=speed] figcaption": "the lane’s own clock",
    "[data-line=tokens] figcaption": "Tokens that each lane has written",
    "[data-lane=speculative] h2": "guesses the next tokens",
    "[data-lane=baseline] h2": "large model that decides the text",
    "[data-lane=baseline] .sv-foot": "one run of the target",
    "[data-run] [data-item=gamma]": "guessed before each pass",
    ".sv-legend li:has(.rejected)": "judged and did not keep",
    ".sv-legend li:has(.own)": "a round without guesses",
}


def caption(page: Page, place: str) -> Locator:
    return page.locator(f"{place} [data-define]")


def sentence(page: Page) -> Locator:
    return page.locator("#sv-definition")


def test_a_caption_says_what_it_means_to_the_pointer_and_the_keyboard(visitor: Visitor) -> None:
    page = visitor.page
    for place, said in SAID.items():
        page.mouse.move(0, 0)
        expect(sentence(page)).to_be_hidden()
        caption(page, place).hover()
        expect(sentence(page)).to_contain_text(said)
        expect(sentence(page)).to_be_in_viewport(ratio=1)
    page.mouse.move(0, 0)
    for place, said in SAID.items():
        caption(page, place).focus()
        expect(sentence(page)).to_contain_text(said)
        expect(caption(page, place)).to_have_attribute("aria-describedby", "sv-definition")
        page.keyboard.press("Escape")
        expect(sentence(page)).to_be_hidden()
        expect(caption(page, place)).not_to_have_attribute("aria-describedby", "sv-definition")


def test_a_tap_on_a_phone_says_it_too(visitor: Visitor) -> None:
    page = visitor.page
    page.set_viewport_size(PHONE)
    for place, said in SAID.items():
        # Like a finger: no pointer hovers before.
        caption(page, place).scroll_into_view_if_needed()
        caption(page, place).dispatch_event("click")
        expect(sentence(page)).to_contain_text(said)
        expect(sentence(page)).to_be_in_viewport(ratio=1)
    page.locator("[data-headline]").dispatch_event("click")
    expect(sentence(page)).to_be_hidden()


def test_a_sentence_stays_while_a_lane_scrolls_and_goes_when_its_caption_moves(
    visitor: Visitor,
) -> None:
    page = visitor.page
    page.set_viewport_size(PHONE)
    said = sentence(page)
    caption(page, "[data-lane=speculative] h2").dispatch_event("click")
    expect(said).to_be_visible()
    # A lane scrolls with its text as long as it writes.
    page.locator("[data-lane=speculative] [data-outcome]").first.dispatch_event("scroll")
    visitor.drawn()
    expect(said).to_be_visible()
    page.evaluate("scrollBy(0, 120)")
    expect(said).to_be_hidden()


def test_the_help_opens_with_the_six_words(visitor: Visitor) -> None:
    page = visitor.page
    page.keyboard.press("?")
    glossary = page.locator("[data-help] > :nth-child(2)")
    expect(glossary.locator("dt")).to_have_text(
        ["Target", "Draft", "Pass", "γ, gamma", "α, alpha", "τ, tau"]
    )
    expect(glossary.locator("dd").last).to_contain_text("tokens written per pass")
    page.keyboard.press("Escape")


@pytest.mark.parametrize("outcome", ["accepted", "rejected"])
def test_the_card_of_a_judged_token_says_what_beta_is(visitor: Visitor, outcome: str) -> None:
    page = visitor.page
    page.locator("[data-scrub]").evaluate(
        "(range) => { range.value = range.max; range.dispatchEvent(new Event('input')); }"
    )
    page.locator(f"[data-lane=speculative] [data-outcome={outcome}]").first.focus()
    expect(page.locator(".sv-card")).to_contain_text("β, beta: the probability")
    page.keyboard.press("Escape")
