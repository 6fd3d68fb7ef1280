"""The page, served by Gradio in server mode: it draws traces and decodes nothing."""

from .delivery import drain
from .server import Page, build_page

__all__ = ["Page", "build_page", "drain"]
