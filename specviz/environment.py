"""What the program finds around it: its data files, where it runs, and what an operator may set.

Here are the variables that decoding reads; `specviz.variables` has the others, and lists all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Generic, TypeVar

from .errors import SettingsError

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "assets"
# A wheel holds the data files inside the package; in the repository they are beside it.
ASSETS = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "assets"
BUILTIN = "builtin"
"""The name of the pair in `assets/pair`."""

SERVED = "served"
"""The name of the pair whose target is on the server of SPECVIZ_REMOTE."""

T = TypeVar("T")


def has_numba() -> bool:
    """Whether compiled passes are available on a processor."""
    return find_spec("numba") is not None


def on_zerogpu() -> bool:
    """Whether this is a Space that is lent a GPU for one call at a time."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """An environment variable that whoever runs the program may set.

    parse: from a text that is not empty to the value; raises `ValueError` if it is not allowed.
    default: the value if the variable is empty or not set; unset: the same in words. meaning: one
    sentence. allowed: how a sentence that begins with "use" ends. secret: no message may show the
    value.
    """

    name: str
    parse: Callable[[str], T]
    default: T
    unset: str
    allowed: str
    meaning: str
    secret: bool = False

    def read(self, environment: Mapping[str, str] = os.environ) -> T:
        """The value. Raises `SettingsError` with one sentence if it is not allowed."""
        text = environment.get(self.name)
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError:
            wrong = "must be" if self.secret else f"is {text!r}: use"
            raise SettingsError(f"{self.name} {wrong} {self.allowed}.") from None


def whole_number(text: str, least: int = 0) -> int:
    """A whole number from `least` on. Raises `ValueError`."""
    value = int(text)
    if value < least:
        raise ValueError
    return value


def from_one(text: str) -> int:
    """A whole number from 1 on. Raises `ValueError`."""
    return whole_number(text, least=1)


def one_of(*words: str) -> Callable[[str], str]:
    """What takes one of these words, and raises `ValueError` for another."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return parse


THREADS: Variable[int | None] = Variable(
    "SPECVIZ_THREADS",
    from_one,
    None,
    "what makes rounds fastest; half of the processors where torch runs the models",
    "a whole number from 1 on",
    "The number of threads that share a pass.",
)
FORM = Variable(
    "SPECVIZ_FORM",
    one_of("fastest", "static"),
    "fastest",
    "fastest",
    "one of fastest, static",
    "How models run: static is caches of a fixed length and CUDA graphs, for models that support "
    "them; no effect on ZeroGPU.",
)
