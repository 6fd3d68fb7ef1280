"""The Gradio page: it draws traces and decodes nothing."""

from .delivery import close_page, drain
from .layout import build_page
from .look import launch_options

__all__ = ["build_page", "close_page", "drain", "launch_options"]
