"""Register drafters and verdicts of other packages in the core's registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module, metadata
from typing import Any, TypeAlias

from ..base.errors import SettingsError
from ..base.variables import PLUGINS
from . import registry
from .records import NAME, DrafterKind, VerdictKind

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
    if not isinstance(kind.name, str) or not NAME.fullmatch(kind.name):
        raise SettingsError(
            f"a kind is named {kind.name!r:.60}: use up to 40 lower-case letters, digits and "
            "hyphens, starting with a letter."
        )
    code = kind.make if isinstance(kind, DrafterKind) else kind.decide
    if not callable(code):
        raise SettingsError(
            f"the code of the kind {kind.name!r} is {code!r:.60}: pass the function or the class "
            "itself."
        )
    if not kind.package:
        kind = replace(kind, package=_package_of(code))
    if isinstance(kind, DrafterKind):
        _check_free(kind, registry.known_drafters.get(kind.name))
        registry.known_drafters[kind.name] = kind
    else:
        _check_free(kind, registry.known_verdicts.get(kind.name))
        registry.known_verdicts[kind.name] = kind


def _check_free(kind: Kind, known: Kind | None) -> None:
    """Raise `SettingsError` if another package has registered this name."""
    if known is not None and known.package != kind.package:
        raise SettingsError(
            f"the name {kind.name!r} is taken by {known.package or 'specviz itself'}: choose "
            "another one."
        )


def load_plugins() -> None:
    """Register the kinds of installed packages and of the modules in SPECVIZ_PLUGINS, once.

    A package's kind that cannot be loaded is registered too, and says so when it is used. Raises
    `SettingsError` for a module of SPECVIZ_PLUGINS that cannot be imported.
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
                f"({type(error).__name__}: {error}): fix it or leave it out."
            ) from error


def _register_entry(entry: metadata.EntryPoint, kind: type[Kind]) -> None:
    """Register an entry point's kind, or one that says why it cannot be loaded."""
    package = entry.module
    if entry.dist:
        package = f"{entry.dist.name} {entry.dist.version}"
    try:
        record = entry.load()
        if not isinstance(record, kind):
            record = record()
        register(replace(record, package=package))
    except Exception as error:
        sentence = (
            f"{entry.name!r} of the package {package} cannot be loaded ({type(error).__name__}: "
            f"{error}): fix it or uninstall it."
        )
        if kind is DrafterKind:
            drafter = registry.unusable_drafter(entry.name, sentence, package)
            registry.known_drafters.setdefault(entry.name, drafter)
        else:
            verdict = registry.unusable_verdict(entry.name, sentence, package)
            registry.known_verdicts.setdefault(entry.name, verdict)


def _package_of(code: Callable[..., Any]) -> str:
    """Name and version of the package that the code of a kind comes from."""
    name = str(getattr(code, "__module__", "unknown")).partition(".")[0]
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return name
