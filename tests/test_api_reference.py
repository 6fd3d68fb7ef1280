"""Public names have docstrings, and the API reference contains them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import specviz
from scripts.write_api import write_api

NAMES = sorted(set(specviz.__all__) - {"__version__"})


def documented(name: str) -> list[tuple[str, Any]]:
    """A public name, with the public members of a class."""
    value = getattr(specviz, name)
    members = vars(value).items() if inspect.isclass(value) else ()
    inner = [
        (f"{name}.{key}", getattr(member, "__func__", member))
        for key, member in members
        if not key.startswith("_")
    ]
    return [(name, value), *((key, one) for key, one in inner if speaks(one))]


def speaks(member: Any) -> bool:
    return inspect.isroutine(member) or isinstance(member, property)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_a_docstring(name: str):
    for path, value in documented(name):
        said = value.__doc__ or ""
        # Python gives a dataclass without a docstring its signature.
        assert said.strip() and not said.startswith(f"{name}("), path


def test_the_reference_holds_every_public_name(tmp_path: Path):
    page = write_api(tmp_path).read_text("utf-8")
    assert "the same target helped by a draft" in page
    for name in NAMES:
        for path, _ in documented(name):
            assert f'id="{path}"' in page, path
    assert [path.name for path in tmp_path.glob("specviz*")] == ["specviz.html"], "nothing private"
