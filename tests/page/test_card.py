"""What a link to the page shows: ours, never the template's, and never a forged address."""

from __future__ import annotations

import pytest

from specviz.page.security.answers import DESCRIPTION, PICTURE, TITLE, address_of, our_page

TEMPLATE = b"""<html><head><meta property="og:title" content="Gradio" />
<meta
  property="og:image"
  content="https://example.org/header.jpg"
/><meta name="twitter:creator" content="@Gradio" /><title>specviz</title></head></html>"""


def test_the_card_is_ours() -> None:
    page = our_page(TEMPLATE, "https://race.example", "x").decode()
    assert "Gradio" not in page and "header.jpg" not in page and "<title>specviz" in page
    assert f'<meta property="og:title" content="{TITLE}">' in page
    assert f'<meta property="og:description" content="{DESCRIPTION}">' in page
    picture = f"https://race.example/gradio_api/file={PICTURE}"
    assert (f'<meta property="og:image" content="{picture}">' in page) == PICTURE.is_file()
    assert "og:image" not in our_page(TEMPLATE, None, "x").decode()


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


def test_module_names_stand_before_all_scripts_and_behind_the_base() -> None:
    template = (
        b'<html><head>\n<meta charset="utf-8" />\n<base href="./" />\n<script>1</script></head>'
    )
    page = our_page(template, None, "x").decode()
    places = [page.index(part) for part in ("<base", "importmap", "isTimer", ">1</script>")]
    assert places == sorted(places)
