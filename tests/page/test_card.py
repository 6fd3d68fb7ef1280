"""The preview of a link to the page: it shows the page's own address, never a forged one."""

from __future__ import annotations

import pytest
from page_server import NOWHERE

from specviz.page.document import DESCRIPTION, TITLE, address_of, index_html
from specviz.page.offer import offer_of, presets_of
from specviz.page.public import PICTURE

OFFER = offer_of(
    "builtin", presets=presets_of("builtin"), recordings=NOWHERE, machine=None, is_loading=False
)


def test_the_card_is_ours() -> None:
    page = index_html(OFFER, "https://race.example")
    assert "radio.app" not in page and "<title>specviz" in page
    assert f'<meta property="og:title" content="{TITLE}">' in page
    assert f'<meta property="og:description" content="{DESCRIPTION}">' in page
    picture = '<meta property="og:image" content="https://race.example/page/race.png">'
    assert (picture in page) == PICTURE.is_file()
    assert "og:image" not in index_html(OFFER, None)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("race.example:7860", "http://race.example:7860/below"),
        ("[::1]:7860", "http://[::1]:7860/below"),
        ('x"><script>', None),
        ("", None),
    ],
)
def test_an_address_is_a_host_and_nothing_else(host: str, address: str | None) -> None:
    headers = [(b"host", host.encode())]
    scope = {"type": "http", "scheme": "http", "headers": headers, "root_path": "/below"}
    assert address_of(scope) == address


def test_module_names_stand_before_all_modules() -> None:
    page = index_html(OFFER, None)
    places = [page.index(part) for part in ('"importmap"', "modulepreload", 'type="module"')]
    assert places == sorted(places)


def test_no_text_of_the_offer_can_end_its_element() -> None:
    presets = presets_of("builtin")
    hostile = "</script><script>alert(1)</script>@tools@card"
    page = index_html({**OFFER, "pairs": {hostile: {}}}, None)
    assert "alert(1)</script>" not in page and page.count("sv-tools") == 1
    assert presets[0].prompt.replace('"', "&quot;").replace("'", "&#x27;") in page
