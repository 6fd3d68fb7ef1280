"""The tables of kinds: every drafter, verdict and engine that this program knows.

Page, sweep, doctor, command line, benchmark and JavaScript read these tables; only the sides know
more of a kind than its record says. `register` adds a kind of your own, and so does an entry point
of an installed package in the group "specviz.drafters" or "specviz.verdicts" (`specviz.plugins`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from .core.kinds import DrafterKind, EngineKind, PairSource, VerdictKind, resolved

DRAFTERS: dict[str, DrafterKind | str] = {
    "model": DrafterKind(
        name="model",
        beside=1,
        make=".sides.model:ModelDrafter",
        translated=".sides.other_tokenizer:translated_drafter",
        label="draft model",
        deployed=".measure.sweep.deploy:draft_model",
        clause="a small model guesses ahead",
        who="The draft guesses",
        needs="draft",
        predicted="place",
        cost="draft",
        has_model=True,
    ),
    "ngram": ".more_kinds:NGRAM",
    "suffix": ".more_kinds:SUFFIX",
    "early-exit": ".more_kinds:EARLY_EXIT",
    "head": ".more_kinds:HEAD",
    "ngram-head": ".more_kinds:NGRAM_HEAD",
    "none": DrafterKind(
        name="none",
        make=".core.drafting:NoDrafter",
        label="no drafts",
        choice="None",
        clause="no guesses: it does what the other lane does",
    ),
}
"""By name: the record of one that most runs take, or where that of another is."""

VERDICTS: dict[str, VerdictKind | str] = {
    "token": VerdictKind(
        name="token",
        decide=".core.verdicts:decide",
        label="token by token",
        clause="drafts are judged one after another by p / q",
        law="Exact does not mean the same words, it means the same chances. A guess is accepted "
        "with probability min(1, p/q); after a rejection the token is drawn from max(0, p − q). "
        "Together they give every token exactly the probability p that the target alone gives it "
        "(Leviathan et al. 2022, theorem 1).",
        left="left: max(0, p − q)",
    ),
    "block": ".more_kinds:BLOCK",
    "exact-match": ".more_kinds:EXACT_MATCH",
    "typical": ".more_kinds:TYPICAL",
}
"""As `DRAFTERS`."""

ENGINES = (
    EngineKind(
        name="static",
        label="CUDA graphs over caches of a fixed length",
        make=".sides.fast_gpu.engine:static_engine",
        asked=True,
    ),
    EngineKind(
        name="compiled",
        label="compiled passes on a processor",
        make=".sides.fast_cpu.support:compiled_engine",
        make_head=".sides.fast_cpu.support:compiled_head",
        threads=".sides.fast_cpu.fastest_threads:fastest_threads",
        package="numba",
        states=True,
        call_on_cpu=2**15,
        extra_token=0.25,
    ),
    EngineKind(
        name="eager",
        label="transformers' own modules",
        make=".core.eager:EagerEngine",
        states=True,
        anywhere=True,
        call_on_cpu=2**18,
        call_elsewhere=2**26,
    ),
    EngineKind(name="server", label="on a server"),
)
"""The forms in which a model may run, the one to try first first. The last needs no maker: a target
on a server brings its own engine."""

PAIR_SOURCES = (
    PairSource("builtin", ".pairs.load:load_builtin", ".pairs.doctor:examine"),
    PairSource("table", ".pairs.fetch:load_fetched", ".pairs.doctor:examine"),
    PairSource("models", ".pairs.fetch:load_fetched", ".pairs.doctor:examine"),
    PairSource("served", ".pairs.served:load_served", ".pairs.served:examine"),
    PairSource("watched", ".sides.watched.watching:load_watched", ".pairs.served:examine"),
)
"""What each form of a pair's name leads to."""

TOKEN = "token"
"""The verdict that judges greedy runs, where all keep the same drafts."""

NONE = "none"
"""The drafter that drafts nothing."""

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")

known: dict[type, dict[str, Any]] = {DrafterKind: dict(DRAFTERS), VerdictKind: dict(VERDICTS)}
"""The same with what was registered."""


def drafters() -> tuple[DrafterKind, ...]:
    """Every drafter, those of this package first, "none" the last of them."""
    return tuple(map(drafter_kind, drafter_names()))


def verdicts() -> tuple[VerdictKind, ...]:
    """Every verdict, those of this package first."""
    return tuple(map(verdict_kind, verdict_names()))


def drafter_names() -> tuple[str, ...]:
    """The names of all drafters, "none" the last."""
    return (*(name for name in _names(DrafterKind) if name != NONE), NONE)


def verdict_names() -> tuple[str, ...]:
    """The names of all verdicts."""
    return _names(VerdictKind)


def swept_drafters() -> tuple[str, ...]:
    """The names of all drafters that draft anything, which is what is worth comparing."""
    return drafter_names()[:-1]


def drafters_for(parts: Collection[str], first: str | None = None) -> tuple[str, ...]:
    """The names of the drafters that a pair with these parts can use, the one that it drafts with
    by default first: `first` if it can, else one that needs a part which the pair has only in order
    to draft, if there is any.

    parts: of "draft", "head" and "layers" (the target's first layers can draft).
    """
    possible = [kind for kind in drafters() if kind.needs is None or kind.needs in parts]
    possible.sort(key=lambda k: (k.name != first, k.name == NONE, k.needs not in ("draft", "head")))
    return tuple(kind.name for kind in possible)


def drafter_kind(name: str) -> DrafterKind:
    """The drafter of this name. A recording may name one that is not installed here: of such a one
    only the name is known."""
    found: DrafterKind = _kind(DrafterKind, name)
    return found


def verdict_kind(name: str) -> VerdictKind:
    """The verdict of this name, as `drafter_kind` has it."""
    found: VerdictKind = _kind(VerdictKind, name)
    return found


def engine_kind(name: str) -> EngineKind:
    """The engine with this form; one that is not listed costs what a static one does."""
    return next((kind for kind in ENGINES if kind.name == name), EngineKind(name=name, label=name))


def _names(sort: type) -> tuple[str, ...]:
    from .plugins import load_plugins  # whoever names one of ours needs no others

    load_plugins()
    return tuple(known[sort])


def _kind(sort: type, name: str) -> Any:
    if name in known[sort] or name in _names(sort):
        return resolved(known[sort][name])
    from .plugins import refusing

    return refusing(
        sort, name, f"{name!r} is not installed here: install the package that brings it."
    )
