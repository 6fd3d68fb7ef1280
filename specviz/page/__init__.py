"""The Gradio page: it draws traces and decodes nothing."""

from .layout import build_page
from .look import launch_options

__all__ = ["build_page", "launch_options"]
