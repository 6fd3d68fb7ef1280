"""The program's surroundings: data files, machine, and environment variables.

The variables here are those that decoding reads; `specviz.base.variables` lists all.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Generic, TypeVar

from .errors import SettingsError

_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = _PACKAGE / "assets"
# A wheel holds the data files inside the package; in the repository they are next to it.
ASSETS = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "assets"
BUILTIN = "builtin"
"""The name of the pair in `assets/pair`."""

SERVED = "served"
"""The name of the pair whose target is on the server of SPECVIZ_REMOTE."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
N = TypeVar("N", int, float)


def has_numba() -> bool:
    """Whether compiled passes are available on a processor."""
    return find_spec("numba") is not None


def on_zerogpu() -> bool:
    """Whether this is a Space that gets a GPU for one call at a time."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def may_have_gpu() -> bool:
    """Whether there is a GPU driver that torch can use. Without one torch need not be asked for
    its devices, which takes seconds where it is not imported yet."""
    if on_zerogpu() or Path("/dev/kfd").exists():  # ZeroGPU, or AMD's driver
        return True
    driver = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(driver)
    except OSError:
        return False
    return True


MANY_OBJECTS = 10_000
"""Searching fewer objects takes about a millisecond."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's search for garbage cycles inside the block.

    Objects made by imports and loading stay alive, and repeated searches through them take one of
    the eight seconds in which a large pair loads. After the block, many new objects all count as
    old. Otherwise the next two searches, one of them in a race, would go through them, for a
    quarter of a second each.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    before = gc.get_count()[0]
    try:
        yield
    finally:
        if was_enabled:
            made_many = gc.get_count()[0] - before > MANY_OBJECTS
            if made_many and not gc.get_freeze_count():  # nobody else keeps objects out of searches
                gc.freeze()
                gc.unfreeze()  # they now count as old
            gc.enable()


@dataclass(frozen=True)
class ValueType(Generic[T_co]):
    """The type of a variable's value.

    parse: makes a value of a text that is not empty; raises `ValueError` if it is not allowed.
    allowed: the allowed values, as the end of a sentence that begins with "use".
    """

    parse: Callable[[str], T_co]
    allowed: str


@dataclass(frozen=True)
class Variable(Generic[T]):
    """An environment variable that configures the program.

    meaning: one sentence.
    default: the value if the variable is empty or not set.
    unset: the default in words, where its text does not say it.
    secret: whether messages must not show the value.
    """

    name: str
    meaning: str
    type: ValueType[T]
    default: T
    unset: str = ""
    secret: bool = False

    def read(self, environment: Mapping[str, str] = os.environ) -> T:
        """The value. Raises `SettingsError` with one sentence if it is not allowed."""
        text = environment.get(self.name)
        if not text:
            return self.default
        try:
            return self.type.parse(text)
        except ValueError:
            raise SettingsError(self._refusal(text)) from None

    def _refusal(self, text: str) -> str:
        if self.secret:
            return f"{self.name} must be {self.type.allowed}."
        return f"{self.name} is {text!r}: use {self.type.allowed}."


def number(kind: Callable[[str], N], minimum: N, maximum: float = 1e15) -> ValueType[N]:
    """A finite number from `minimum` to `maximum`. kind: `int` or `float`."""

    def parse(text: str) -> N:
        value = kind(text)
        if not minimum <= value <= maximum:  # NaN is in no range
            raise ValueError
        return value

    what = "a whole number" if kind is int else "a number"
    if maximum >= 1e15:
        return ValueType(parse, f"{what}, {minimum:g} or more")
    return ValueType(parse, f"{what} from {minimum:g} to {maximum:g}")


def one_of(*words: str) -> ValueType[str]:
    """One of these words."""
    return ValueType(lambda text: words[words.index(text)], f"one of {', '.join(words)}")


THREADS: Variable[int | None] = Variable(
    "SPECVIZ_THREADS",
    "The number of threads that share a pass.",
    number(int, 1),
    default=None,
    unset=(
        "the number that makes rounds fastest; half of the processors where torch runs the models"
    ),
)
PLAINEST = "eager"
FORM = Variable(
    "SPECVIZ_FORM",
    "How models run: fastest is CUDA graphs on a GPU and compiled passes on a processor, where a "
    "model supports them; eager is transformers' own modules, always used on ZeroGPU; static is "
    "the form that CUDA graphs capture, on any device.",
    one_of("fastest", PLAINEST, "static"),
    "fastest",
)
KERNELS = Variable(
    "SPECVIZ_KERNELS",
    "The kernels of short passes of the Llama family on a GPU: triton, where its kernels can be "
    "compiled and are not slower, or torch.",
    one_of("triton", "torch"),
    "triton",
)
