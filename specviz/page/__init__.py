"""The page, served by Gradio in server mode: it draws traces and decodes nothing."""

from unittest.mock import patch

# Else Gradio would write anew the type stubs that it brings, which is half of its import.
with patch("inspect.getfile", side_effect=OSError):
    import gradio  # noqa: F401

from .delivery import drain
from .server import Page, build_page

__all__ = ["Page", "build_page", "drain"]
