"""The Gradio page: it draws traces and decodes nothing."""

from unittest.mock import patch

# Else Gradio would write anew the type stubs that it brings, which is half of its import.
with patch("inspect.getfile", side_effect=OSError):
    import gradio  # noqa: F401

from .delivery import close_page, drain
from .layout import build_page
from .look import launch_options

__all__ = ["build_page", "close_page", "drain", "launch_options"]
