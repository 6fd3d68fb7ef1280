"""Drafters and verdicts of other packages: how they come into the tables of `specviz.kinds`."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from importlib import import_module, metadata
from typing import Any, TypeAlias

from . import kinds
from .core.kinds import DrafterKind, VerdictKind, resolved
from .errors import SettingsError
from .variables import PLUGINS

Kind: TypeAlias = DrafterKind | VerdictKind

GROUPS = {"specviz.drafters": DrafterKind, "specviz.verdicts": VerdictKind}
"""The groups of entry points, each of which names a record (or a function that returns one)."""

_loaded: list[bool] = []


def register(kind: Kind) -> None:
    """Add a drafter or a verdict of your own, which then has everything that ours have.

    Raises `SettingsError` if it is no record, or if its name is taken or is not lower-case letters,
    digits and hyphens. Registering the same name of the same package again replaces it.
    """
    if not isinstance(kind, (DrafterKind, VerdictKind)):
        raise SettingsError(
            f"{kind!r:.60} cannot be registered: use a DrafterKind or a VerdictKind."
        )
    if not isinstance(kind.name, str) or not kinds.NAME.fullmatch(kind.name):
        raise SettingsError(
            f"a kind is named {kind.name!r:.60}: use up to 40 lower-case letters, digits and "
            "hyphens, with a letter first."
        )
    table = kinds.known[DrafterKind if isinstance(kind, DrafterKind) else VerdictKind]
    own = kind if kind.package else replace(kind, package=_package_of(kind))
    taken = resolved(table.get(kind.name, own))
    if taken.package != own.package:
        raise SettingsError(
            f"the name {kind.name!r} is taken by {taken.package or 'specviz itself'}: choose "
            "another one."
        )
    table[kind.name] = own


def refusing(sort: type[Any], name: str, sentence: str, package: str | None = None) -> Any:
    """A record of which only the name is known; its code says why, in a `SettingsError`."""
    code = "make" if sort is DrafterKind else "decide"
    return sort(name=name, label=name, package=package, **{code: partial(_refused, sentence)})


def load_plugins() -> None:
    """Register what installed packages and the modules of SPECVIZ_PLUGINS bring, once.

    What a package brings that cannot be loaded has a place in the table too, and says so when it is
    used. Raises `SettingsError` for a module of SPECVIZ_PLUGINS that cannot be imported.
    """
    if _loaded:
        return
    _loaded.append(True)  # first: a module that is imported here may ask for the tables
    for group, kind in GROUPS.items():
        for entry in metadata.entry_points(group=group):
            _register_entry(entry, kind)
    for module in PLUGINS.read():
        try:
            import_module(module)
        except Exception as error:
            _loaded.clear()
            raise SettingsError(
                f"{PLUGINS.name} names {module}, which cannot be imported "
                f"({type(error).__name__}: {error}): mend it or leave it out."
            ) from error


def _register_entry(entry: metadata.EntryPoint, kind: type[Kind]) -> None:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module
    try:
        found = entry.load()
        found = found if isinstance(found, kind) else found()
        register(replace(found, package=package))
    except Exception as error:
        sentence = (
            f"{entry.name!r} of the package {package} cannot be loaded "
            f"({type(error).__name__}: {error}): mend or uninstall it."
        )
        kinds.known[kind].setdefault(entry.name, refusing(kind, entry.name, sentence, package))


def _refused(sentence: str, *_: Any, **__: Any) -> Any:
    raise SettingsError(sentence)


def _package_of(kind: Kind) -> str:
    """Name and version of the package that a registered kind's code comes from."""
    code = kind.make if isinstance(kind, DrafterKind) else kind.decide
    module = code if isinstance(code, str) else str(getattr(code, "__module__", "unknown"))
    name = re.split("[.:]", module)[0]
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return name
