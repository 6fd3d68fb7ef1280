"""The files that strangers may read: a table that is made at the start, so that no request can name
another one."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from ..base.environment import ASSETS
from ..runs.html import PAGE, PLAYER_SHEETS, PLOTLY, css_variables, styles

RECORDINGS = ASSETS / "recordings"
PICTURE = ASSETS / "pictures" / "race-light.png"
"""A wheel does not contain it; a link to the page then has no preview picture."""

PAGE_AT = "page/"
RECORDINGS_AT = "recordings/"
PLOTLY_NAME = PAGE_AT + "plotly.min.js"
PICTURE_NAME = PAGE_AT + "race.png"
"""Addresses as seen from the page."""

SHEETS = ("page.css", "controls.css", "doctor.css", *PLAYER_SHEETS)
_KINDS = (".js", ".css", ".svg", ".woff2")


def public_files(recordings: Path) -> dict[str, Path]:
    """The public files by their addresses. recordings: their folder, which need not exist.

    Links are left out: they may lead anywhere.
    """
    files = {}
    for path in _plain(PAGE):
        if path.suffix in _KINDS:
            name = PAGE_AT + path.relative_to(PAGE).as_posix()
            files[name] = path
    files[PLOTLY_NAME] = PLOTLY
    if PICTURE.is_file():
        files[PICTURE_NAME] = PICTURE
    for path in _plain(recordings):
        if path.name.endswith(".json.gz"):
            files[RECORDINGS_AT + path.name] = path
    return files


@cache
def kept_at() -> str:
    """The address of the page's files that contains their version: browsers keep what they fetched
    from there and need not ask again, since a new release has a new address."""
    _states_at_start()  # before they are read
    digest = hashlib.sha256()
    # Their contents: tools that install a release may give all files one time.
    for path in sorted(_plain(PAGE)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(PAGE)} {len(content)}\n".encode())
        digest.update(content)
    return f"{PAGE_AT}v-{digest.hexdigest()[:16]}/"


def files_at() -> str:
    """The address of the page's files for a new visit. If a file was changed since the start, it is
    the one without a version."""
    if _file_states() == _states_at_start():
        return kept_at()
    return PAGE_AT


def is_unchanged(path: Path) -> bool:
    """Whether this is one of the page's files, and as it was at the start."""
    return _states_at_start().get(path) == _state(path)


def _state(path: Path) -> tuple[int, int]:
    """Size and time of a file: a visit has no time to read all of them."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _file_states() -> dict[Path, tuple[int, int]]:
    return {path: _state(path) for path in _plain(PAGE)}


@cache
def _states_at_start() -> dict[Path, tuple[int, int]]:
    return _file_states()


def _plain(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if not path.name.startswith(".")]


def style_sheet() -> str:
    """All styles of the page as one sheet, so that it is never shown with a part of them."""
    text = f"{css_variables()}\n{styles(SHEETS)}"
    return text.replace("@fonts", kept_at() + "fonts")
