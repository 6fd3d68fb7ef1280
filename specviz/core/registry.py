"""The drafters, verdicts and engines that a run can use, by name.

It begins empty: `specviz.kinds` fills it with those of this package, `core.plugins` with those of
others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NoReturn, TypeVar

from ..base.errors import SettingsError
from .records import DrafterKind, EngineKind, VerdictKind

Kind = TypeVar("Kind", DrafterKind, VerdictKind)

known_drafters: dict[str, DrafterKind] = {}
known_verdicts: dict[str, VerdictKind] = {}
known_engines: list[EngineKind] = []
"""The forms in which a model may run, in the order of trial."""

_finders: list[Callable[[], None]] = []


def find_more(finder: Callable[[], None]) -> None:
    """Let `finder` add more drafters and verdicts. It is called for a list of all of them and for
    an unknown name."""
    _finders.append(finder)


def has_drafter(name: object) -> bool:
    """Whether there is a drafter of this name."""
    if not isinstance(name, str):
        return False
    return name in known_drafters or name in drafter_names()


def has_verdict(name: object) -> bool:
    """Whether there is a verdict of this name."""
    if not isinstance(name, str):
        return False
    return name in known_verdicts or name in verdict_names()


def drafters() -> tuple[DrafterKind, ...]:
    """Every drafter, those of this package first and the one that drafts nothing last."""
    _find()
    return tuple(sorted(known_drafters.values(), key=lambda kind: not kind.drafts))


def verdicts() -> tuple[VerdictKind, ...]:
    """Every verdict, those of this package first."""
    _find()
    return tuple(known_verdicts.values())


def engines() -> tuple[EngineKind, ...]:
    """Every engine, in the order of trial."""
    return tuple(known_engines)


def drafter_names() -> tuple[str, ...]:
    """The names of `drafters`."""
    return tuple(kind.name for kind in drafters())


def verdict_names() -> tuple[str, ...]:
    """The names of `verdicts`."""
    return tuple(kind.name for kind in verdicts())


def swept_drafters() -> tuple[str, ...]:
    """The names of all drafters that draft anything, for comparisons."""
    return tuple(kind.name for kind in drafters() if kind.drafts)


def drafters_for(parts: Collection[str], first: str | None = None) -> tuple[str, ...]:
    """The names of the drafters that a pair with these parts can use, the one that it drafts with
    by default first: `first` if it can, else one that needs a part which the pair has only in order
    to draft, if there is any.

    parts: of "draft", "head" and "layers" (the target's first layers can draft).
    """

    def rank(kind: DrafterKind) -> tuple[bool, ...]:
        needs_own_part = kind.needs in ("draft", "head")
        return (kind.name != first, not kind.drafts, not needs_own_part)

    possible = [kind for kind in drafters() if kind.needs is None or kind.needs in parts]
    return tuple(kind.name for kind in sorted(possible, key=rank))


def drafter_kind(name: str) -> DrafterKind:
    """The drafter of this name. A recording may name one that is not installed here; only its name
    is known then."""
    if has_drafter(name):
        return known_drafters[name]
    return unusable_drafter(name, _absent(name))


def verdict_kind(name: str) -> VerdictKind:
    """The verdict of this name, as `drafter_kind` has it."""
    if has_verdict(name):
        return known_verdicts[name]
    return unusable_verdict(name, _absent(name))


def engine_kind(name: str) -> EngineKind:
    """The engine with this form, named by the part before a comma. An unlisted one gets the costs
    of a static form."""
    form, _, _ = name.partition(",")
    for kind in known_engines:
        if kind.name == form:
            return kind
    return EngineKind(name=name, label=name)


def unusable_drafter(name: str, sentence: str, package: str | None = None) -> DrafterKind:
    """Make a drafter that is known only by name; drafting with it raises a `SettingsError` with
    this sentence."""
    return DrafterKind(name=name, label=name, package=package, make=partial(_refused, sentence))


def unusable_verdict(name: str, sentence: str, package: str | None = None) -> VerdictKind:
    """Make a verdict that is known only by name, as `unusable_drafter` does."""
    return VerdictKind(name=name, label=name, package=package, decide=partial(_refused, sentence))


def _find() -> None:
    for finder in _finders:
        finder()


def _absent(name: str) -> str:
    return f"{name!r} is not installed here: install the package that provides it."


def _refused(sentence: str, *_: Any) -> NoReturn:
    raise SettingsError(sentence)
