"""The page's look and files: theme, style sheet, and what the browser loads from this server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gradio as gr

from ..environment import ASSETS
from ..runs.html import PAGE, PLAYER_SHEETS, PLOTLY, css_variables, styles
from ..runs.palette import PALETTE
from .security.answers import DESCRIPTION, PICTURE
from .security.guard import guarded_options

FONTS = PAGE / "fonts"
RECORDINGS = ASSETS / "recordings"
SHEETS = ("page.css", "doctor.css", *PLAYER_SHEETS)
SANS = gr.themes.LocalFont("Source Sans Pro", weights=(400, 700))  # served by Gradio itself

COLOURS = {
    "body_background_fill": "page",
    "body_text_color": "ink",
    "body_text_color_subdued": "soft",
    "block_label_text_color": "ink",
    "block_info_text_color": "soft",
    "border_color_primary": "line",
    "input_background_fill": "page",
    "input_border_color": "line",
    "slider_color": "accepted",
    "button_primary_background_fill": "ink",
    "button_primary_background_fill_hover": "soft",
    "button_primary_text_color": "page",
    "button_secondary_background_fill": "page",
    "button_secondary_text_color": "ink",
}
"""Parts of Gradio's theme, and the colour of the palette that each has, in light and dark."""

VISITORS = 24  # at a time; each holds a thread of the server while its run waits or races
THREADS = 64  # more than that, so that some are left for all other requests
SESSIONS = 200  # visitors whose components Gradio remembers, at 85 kB each; runs are not among them

PRIVATE: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
"""For events of the page that programs cannot call."""

IN_BROWSER: dict[str, Any] = {**PRIVATE, "queue": False}
"""For events that only run JavaScript."""


def launch_options() -> dict[str, Any]:
    """The options of `launch()` for this page. Raises `SettingsError`."""
    return {
        "theme": _theme(),
        "head": _head(),
        "footer_links": [],
        "ssr_mode": False,
        "run_history": False,
        "max_threads": THREADS,
        "state_session_capacity": SESSIONS,
        "favicon_path": str(PAGE / "favicon.svg"),
        **guarded_options(),
    }


def keep_no_statistics() -> None:
    """Make Gradio forget past events: otherwise it reads thousands of them after each event. To be
    called before the page is built."""
    os.environ["GRADIO_ANALYTICS_MAX_EVENTS"] = "1"
    os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = str(10**9)


def static_url(path: Path) -> str:
    """The address of a file that `serve_static_files` made public."""
    return f"gradio_api/file={path}"


def serve_static_files(recordings: Path) -> None:
    """Let the server send recordings, Plotly and the page's own files, so that the browser loads
    nothing from other hosts."""
    also = [path for path in (recordings, PICTURE) if path.exists()]
    gr.set_static_paths([PAGE, PLOTLY, *also])


def _theme() -> gr.themes.Base:
    theme = gr.themes.Base(
        primary_hue=gr.themes.colors.slate,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_md,
        font=[SANS, "system-ui", "sans-serif"],
        font_mono=["ui-monospace", "Consolas", "monospace"],
    )
    colours: dict[str, str] = {}
    for mode, suffix in (("light", ""), ("dark", "_dark")):
        colours |= {name + suffix: PALETTE[mode][colour] for name, colour in COLOURS.items()}
        colours |= {"block_background_fill" + suffix: "transparent"}
        colours |= {"block_border_width" + suffix: "0px"}
    return theme.set(**{**colours, "button_primary_background_fill_hover_dark": "#ffffff"})


def _head() -> str:
    """The page's styles, so that it is never shown without them."""
    style = f"{css_variables()}\n{styles(SHEETS)}".replace("@fonts", static_url(FONTS))
    about = f'<meta name="description" content="{DESCRIPTION}">'
    return f"{about}<style>{style}</style>"
