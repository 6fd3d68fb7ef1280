"""The tables of kinds: every drafter, verdict and engine that this program knows.

Page, sweep, doctor, command line, benchmark and JavaScript read these tables; only the sides know
more of a kind than its record says. `register` adds a kind of your own, and so does an entry point
of an installed package in the group "specviz.drafters" or "specviz.verdicts".
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from importlib import import_module, metadata
from typing import Any, TypeAlias

from .core.kinds import DrafterKind, EngineKind, PairSource, VerdictKind
from .environment import PLUGINS
from .errors import SettingsError

DRAFTERS = (
    DrafterKind(
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
        own_context=True,
        fewer="never",
    ),
    DrafterKind(
        name="ngram",
        beside=2,
        make=".sides.lookup.ngram:NgramDrafter",
        label="n-grams",
        deployed=".measure.sweep.deploy:ngram",
        choice="n-grams",
        lane="n-gram",
        clause="guesses are copied from the text so far",
        guessed="The end of the text stood in it before: the {count} that followed there are "
        "copied as guesses. No model is asked, so q is 1 for each.",
        unguessed="The end of the text has not stood in it before, so there was nothing to copy.",
        predicted="copied",
        certain=True,
        fewer="none",
    ),
    DrafterKind(
        name="suffix",
        beside=4,
        make=".sides.lookup.suffix:SuffixDrafter",
        label="counts",
        deployed=".measure.sweep.deploy:suffix",
        lane="suffix",
        clause="guesses are what followed such text before",
        guessed="The longest end of the text that was seen before is looked up, and what followed "
        "it each time is counted: q is each token’s share, and one is drawn from it. So come "
        "{count}, one after the other; how many was settled before.",
        guessed_greedy="The longest end of the text that was seen before is looked up, and what "
        "followed it each time is counted: the most frequent token is the guess. So come {count}, "
        "one after the other; how many was settled before.",
        unguessed="Nothing that was seen before was likely enough to hold.",
        reads_memory=True,
        predicted="copied",
        counted=True,
        fewer="any",
    ),
    DrafterKind(
        name="early-exit",
        beside=3,
        make=".sides.early_exit:EarlyExitDrafter",
        described=".sides.early_exit:described_exit",
        label="early exit",
        deployed=".measure.sweep.deploy:early_exit",
        clause="the target’s own first layers guess ahead",
        who="The target’s own first layers guess",
        needs="layers",
        predicted="place",
        cost="target",
        has_model=True,
        fewer="never",
    ),
    DrafterKind(
        name="head",
        beside=5,
        make=".sides.heads.drafter:HeadDrafter",
        described=".sides.heads.drafter:described_head",
        label="head on the target",
        deployed=".measure.sweep.deploy:head",
        lane="head",
        clause="a layer that reads the target’s hidden states guesses ahead",
        who="The head, a layer that begins at the target’s hidden states, guesses",
        needs="head",
        reads_states=True,
        predicted="chained",
        cost="target",
        has_model=True,
        fewer="unread",
    ),
    DrafterKind(
        name="none",
        make=".core.drafting:NoDrafter",
        label="no drafts",
        choice="None",
        clause="no guesses: it does what the other lane does",
        fewer="any",
    ),
)

VERDICTS = (
    VerdictKind(
        name="token",
        decide=".core.verdict:decide",
        label="token by token",
        clause="drafts are judged one after another by p / q",
        law="Exact does not mean the same words, it means the same chances. A guess is kept with "
        "probability min(1, p/q); after a refusal the token is drawn from max(0, p − q). Together "
        "they give every token exactly the probability p that the target alone gives it (Leviathan "
        "et al. 2022, theorem 1).",
        left="left: max(0, p − q)",
    ),
    VerdictKind(
        name="block",
        decide=".core.verdicts:decide_block",
        label="block",
        clause="all drafts of a round are judged together",
        law="Exact does not mean the same words, it means the same chances. Block verification "
        "judges the guesses of a round together: it keeps more of them than one test after the "
        "other would, and makes up for exactly what it refuses, so every text keeps the "
        "probability that the target alone gives it (Sun et al. 2024).",
        note="The guesses are judged together, but shown one after the other: kept are all up to "
        "the last one whose draw is below its threshold. So the text follows p, and never fewer "
        "are kept on average than one by one.",
        left="left: max(0, w p − q)",
        beta="mean overlap of the two distributions, as the token rule has it",
        threshold="u",
        weighted=True,
        together=True,
        numbers=".core.verdicts:block_shown",
        after=".core.verdicts:left_of_block",
    ),
    VerdictKind(
        name="exact-match",
        decide=".core.verdicts:decide_exact_match",
        label="exact match",
        clause="drafts are compared with the target's own draws",
        law="Exact does not mean the same words, it means the same chances. Here the target draws "
        "each token itself, from p, and a guess is kept only if it is that token: what is written "
        "are always the target’s own draws.",
        note="The target’s own draws are what is written, so the text follows p. Fewer guesses "
        "hold than with the ratio p / q, which may keep a guess that the target would not have "
        "drawn this time.",
        left="p without the refused one",
        beta="mean probability that the rule keeps a draft",
        chance=True,
        numbers=".core.verdicts:exact_match_shown",
        after=".core.verdicts:left_of_exact_match",
    ),
    VerdictKind(
        name="typical",
        decide=".core.verdicts:decide_typical",
        label="typical",
        exact=False,
        choice="Typical (changes the text)",
        clause="drafts are kept that the target finds likely enough",
        law="This rule is not exact. A guess is kept if the target finds it likely enough, however "
        "often the draft guesses it, and nothing makes up for that: the text follows another "
        "distribution (Cai et al. 2024). The experiment below shows by how much.",
        note="Kept means “likely enough” here: nothing makes up for guesses that the draft makes "
        "too often. The text does not follow the target’s distribution.",
        beta="mean probability that the rule keeps a draft",
        chance=True,
        threshold="p",
        draws=False,
        residual=False,
        numbers=".core.verdicts:typical_shown",
    ),
)

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
        make_head=".sides.fast_cpu.heads:compiled_head",
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
    PairSource(
        name="builtin",
        label="the pair that comes with the program",
        load=".pairs.builtin:load_builtin",
        examine=".pairs.doctor:examine_models",
    ),
    PairSource(
        name="table",
        label="a row of the table of pairs",
        load=".pairs.models:load_models",
        examine=".pairs.doctor:examine_models",
    ),
    PairSource(
        name="models",
        label="models of the hub, folders and GGUF files",
        load=".pairs.models:load_models",
        examine=".pairs.doctor:examine_models",
    ),
    PairSource(
        name="operator",
        label="the server of SPECVIZ_REMOTE",
        load=".pairs.served:load_operator",
        examine=".pairs.served:examine_operator",
    ),
    PairSource(
        name="served",
        label="a target on a server, and a draft here",
        load=".pairs.served:load_served",
        examine=".pairs.served:examine_served",
    ),
    PairSource(
        name="watched",
        label="a server that speculates by itself",
        load=".sides.watched.watching:load_watched",
        examine=".pairs.served:examine_watched",
    ),
)
"""What each form of a pair's name leads to."""

Kind: TypeAlias = DrafterKind | VerdictKind

GROUPS: dict[str, type[Kind]] = {
    "specviz.drafters": DrafterKind,
    "specviz.verdicts": VerdictKind,
}
"""The groups of entry points, each of which names a record (or a function that returns one)."""

TOKEN = "token"
"""The verdict that judges greedy runs, where all keep the same drafts."""

NONE = "none"
"""The drafter that drafts nothing."""

OWN_PARTS = ("draft", "head")
"""Parts of a pair that it has only in order to draft."""

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")

_drafters = {kind.name: kind for kind in DRAFTERS}
_verdicts = {kind.name: kind for kind in VERDICTS}


def drafters() -> tuple[DrafterKind, ...]:
    """Every drafter, those of this package first, "none" the last of them."""
    _load_plugins()
    return (*(kind for kind in _drafters.values() if kind.name != NONE), _drafters[NONE])


def verdicts() -> tuple[VerdictKind, ...]:
    """Every verdict, those of this package first."""
    _load_plugins()
    return tuple(_verdicts.values())


def drafter_names() -> tuple[str, ...]:
    """The names of all drafters, "none" the last."""
    return tuple(kind.name for kind in drafters())


def swept_drafters() -> tuple[str, ...]:
    """The names of all drafters that draft anything, which is what is worth comparing."""
    return drafter_names()[:-1]


def drafters_for(parts: Collection[str]) -> tuple[str, ...]:
    """The names of the drafters that a pair with these parts can use, the one that it drafts with
    by default first: one that needs a part of the pair beside its target, if there is any.

    parts: of "draft", "head" and "layers" (the target's first layers can draft).
    """
    possible = [kind for kind in drafters() if kind.needs is None or kind.needs in parts]
    possible.sort(key=lambda kind: (kind.name == NONE, kind.needs not in OWN_PARTS))
    return tuple(kind.name for kind in possible)


def verdict_names() -> tuple[str, ...]:
    """The names of all verdicts."""
    return tuple(kind.name for kind in verdicts())


def drafter_kind(name: str) -> DrafterKind:
    """The drafter of this name. A recording may name one that is not installed here: of such a one
    only the name is known."""
    if name not in _drafters:
        _load_plugins()
    return _drafters.get(name) or DrafterKind(name=name, make=_absent(name), label=name)


def verdict_kind(name: str) -> VerdictKind:
    """The verdict of this name, as `drafter_kind` has it."""
    if name not in _verdicts:
        _load_plugins()
    return _verdicts.get(name) or VerdictKind(name=name, decide=_absent(name), label=name)


def engine_kind(name: str) -> EngineKind:
    """The engine with this form; one that is not listed costs what a static one does."""
    return next((kind for kind in ENGINES if kind.name == name), EngineKind(name=name, label=name))


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
            "hyphens, with a letter first."
        )
    table: dict[str, Any] = _drafters if isinstance(kind, DrafterKind) else _verdicts
    known = table.get(kind.name)
    own = kind if kind.package else replace(kind, package=_package_of(kind))
    if known is not None and known.package != own.package:
        raise SettingsError(
            f"the name {kind.name!r} is taken by {known.package or 'specviz itself'}: choose "
            "another one."
        )
    table[kind.name] = own


_loaded: list[bool] = []


def _absent(name: str) -> partial[Any]:
    return partial(_refused, f"{name!r} is not installed here: install the package that brings it.")


def _load_plugins() -> None:
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
        table: dict[str, Any] = _drafters if kind is DrafterKind else _verdicts
        code = "make" if kind is DrafterKind else "decide"
        given: dict[str, Any] = {"name": entry.name, "label": entry.name, "package": package}
        given[code] = partial(_refused, sentence)
        table.setdefault(entry.name, kind(**given))


def _refused(sentence: str, *_: Any, **__: Any) -> Any:
    raise SettingsError(sentence)


def _package_of(kind: Kind) -> str:
    """Name and version of the package that a registered kind's code comes from."""
    code = kind.make if isinstance(kind, DrafterKind) else kind.decide
    module = (
        code.partition(":")[0]
        if isinstance(code, str)
        else str(getattr(code, "__module__", "unknown"))
    )
    name = module.split(".")[0]
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return name
