"""What a package offers to others, imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_exports(package: str, modules: dict[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for `package`, whose names come from these modules of it.

    Most of them bring torch, which takes seconds, and a process that only shows traces does
    without.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f".{modules[name]}", package), name)

    return get
