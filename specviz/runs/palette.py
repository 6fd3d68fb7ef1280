"""The colours and the font of everything that is drawn: the page, its charts and exported files."""

from __future__ import annotations

_COLOURS = {  # on light, on dark
    "page": ("#ffffff", "#0f1217"),
    "panel": ("#f8f9fa", "#151920"),
    "ink": ("#16181d", "#eef0f4"),
    "soft": ("#5b6270", "#9aa3b2"),
    "line": ("#e3e6ea", "#272d37"),
    "track": ("#e9ecf0", "#242a34"),
    "draft": ("#838c9a", "#8a94a5"),
    "accepted": ("#0072B2", "#3d9bdc"),
    "rejected": ("#D55E00", "#f0803c"),
    "corrected": ("#C8709F", "#e8a8cc"),
    "bonus": ("#009E73", "#45d6a0"),
}
PALETTE: dict[str, dict[str, str]] = {
    "light": {name: light for name, (light, _) in _COLOURS.items()},
    "dark": {name: dark for name, (_, dark) in _COLOURS.items()},
}
"""The colours of outcomes follow Okabe and Ito, whose palette is safe for colour blindness. The
pink is darker here, for a contrast of 3:1 on the lanes; the dark theme has lighter colours."""

FONT = "Source Sans Pro, system-ui, sans-serif"
