"""The table of named pairs in `assets/pairs.json`. This module does not import torch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ..environment import ASSETS, BUILTIN, SERVED
from ..errors import PairError, SettingsError
from ..kinds import drafters_for
from ..variables import PAIR, PAIRS, REMOTE
from .memory import (
    DRAFTING_LANES,
    LANES,
    TYPICAL_CONTEXT,
    LayerCache,
    MemoryNeed,
    smaller_precisions,
)

FITS, FITS_SMALLER, TOO_LARGE = "fits", "fits with smaller weights", "too large"
HUB_FILES = ("config.json", "model.safetensors", "tokenizer.json")
"""Of a model on the hub: with them it can be loaded without a network."""


@dataclass(frozen=True)
class Facts:
    """What the table says about a model of the hub, or of a head on one; None where nobody has
    checked it.

    name: the hub id. parameters: their number, tied ones once, and of a head without embeddings,
    which are the target's. cache: numbers that the caches hold per token. context: tokens, of a
    head those of the texts that it was made for. gated: whether its licence must be accepted first;
    None too if the owner has changed that before. safetensors: whether its page on the hub has
    safetensors files; pickles are never read. quantizable: the number of parameters that 8-bit and
    4-bit loading makes smaller. dtype: of a model's checkpoint. chat: whether a model was tuned for
    chat.
    shipped: of one that comes with the program, its folder in `assets`.
    """

    name: str
    parameters: int | None
    cache: int | None
    context: int | None
    licence: str | None
    gated: bool | None
    safetensors: bool | None
    quantizable: int = 0
    dtype: str = ""
    chat: bool = False
    shipped: str = ""

    @property
    def place(self) -> str:
        """Where its files are: a hub id, or a folder of this program."""
        return str(ASSETS / self.shipped) if self.shipped else self.name

    @property
    def sized(self) -> bool:
        """Whether the memory that it needs is known."""
        return self.parameters is not None

    def need(self, copies: int) -> MemoryNeed:
        """The memory that it needs with so many caches, as far as it is known."""
        caches = (LayerCache(self.cache or 0),)
        return MemoryNeed(self.parameters or 0, self.quantizable, caches, copies, self.context)


@dataclass(frozen=True)
class NamedPair:
    """A pair of the table: a target with a draft model, a head, both or neither.

    shows: one sentence on what the pair demonstrates. wheel, file: a package on PyPI, and the GGUF
    file in it that holds the target, which is read instead of the hub's where it is installed.
    drafter: its default, where another than the usual one is known to be faster.
    """

    name: str
    target: Facts
    shows: str
    draft: Facts | None = None
    head: Facts | None = None
    wheel: str | None = None
    file: str | None = None
    drafter: str | None = None

    @property
    def parts(self) -> tuple[Facts, ...]:
        """What drafts beside the target."""
        return tuple(part for part in (self.draft, self.head) if part is not None)

    @property
    def drafters(self) -> tuple[str, ...]:
        """The drafters that it offers, its default first, as `Pair.drafters` has them."""
        held = {"layers": True, "draft": self.draft, "head": self.head}
        return drafters_for([name for name, part in held.items() if part], self.drafter)

    @property
    def sized(self) -> bool:
        """Whether the memory that it needs is known; else `bytes` counts what is."""
        return all(part.sized for part in self.parts)

    def precision(self, *, cpu: bool) -> str:
        """The precision that it is loaded in by default."""
        return "float32" if cpu else self.target.dtype

    def bytes(self, precision: str, tokens: int = TYPICAL_CONTEXT) -> int:
        """Bytes of all models and their caches in each of `LANES` lanes."""
        needs = [self.target.need(LANES), *(one.need(DRAFTING_LANES) for one in self.parts)]
        return sum(need.bytes(precision, tokens) for need in needs)


@cache
def named_pairs() -> tuple[NamedPair, ...]:
    """Every pair of the table, the built-in one first."""
    models, heads = facts("models"), facts("heads")
    return tuple(
        NamedPair(
            **row
            | {"target": models[row["target"]]}
            | {"draft": models.get(row.get("draft")), "head": heads.get(row.get("head"))}
        )
        for row in _table()["pairs"]
    )


def named_pair(name: str) -> NamedPair | None:
    """The pair of that name, or None."""
    return next((pair for pair in named_pairs() if pair.name == name), None)


def operator_pairs() -> tuple[NamedPair, ...]:
    """The pairs that SPECVIZ_PAIRS names. Raises `SettingsError` for a name that is none."""
    for name in PAIRS.read():
        if named_pair(name) is None:
            known = ", ".join(pair.name for pair in named_pairs())
            raise SettingsError(f"{PAIRS.name} names {name!r}: use some of {known}.")
    return tuple(pair for pair in named_pairs() if pair.name in PAIRS.read())


def wheel_file(pair: NamedPair) -> Path | None:
    """A row's GGUF file, if its package is installed. The package's code is not imported."""
    if pair.wheel is None or pair.file is None:
        return None
    try:
        path = Path(str(metadata.distribution(pair.wheel).locate_file(pair.file)))
    except metadata.PackageNotFoundError:
        return None
    return path if path.is_file() else None


def at_hand(pair: NamedPair) -> bool:
    """Whether the target of a row that has a package lies on this machine: in the package, or in
    the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    if wheel_file(pair) is not None:
        return True
    cached = (try_to_load_from_cache(pair.target.name, one) for one in HUB_FILES)
    return all(isinstance(one, str) for one in cached)


def first_pair() -> str:
    """The pair that a page starts with: that of SPECVIZ_PAIR, else the first of the table that
    comes in a package, if it is at hand, else the built-in one. Raises `SettingsError`."""
    from .spec import OperatorSpec, ServedSpec, WatchedSpec, operator_spec, parse_pair

    name = PAIR.read()
    if name is None:
        packed = next(pair for pair in named_pairs() if pair.wheel is not None)
        return packed.name if at_hand(packed) else BUILTIN
    try:
        spec = parse_pair(name)
        if isinstance(spec, OperatorSpec):
            operator_spec()
    except PairError as error:
        raise SettingsError(f"{PAIR.name}: {error}") from None
    if isinstance(spec, ServedSpec | WatchedSpec):
        raise SettingsError(
            f"{PAIR.name} holds an address, which every visitor would see: name the server in "
            f"{REMOTE.name}, and set {PAIR.name} to {SERVED}."
        )
    return str(spec)


def suggested_draft(target: str) -> str | None:
    """The hub id of a draft with the same tokenizer as the target, if one is known.

    target: a hub id, or the name of a folder, which is compared without the owner of hub ids.
    """
    for row in _table()["drafts"]:
        wanted, draft = row["target"], str(row["draft"])
        if "/" not in target:
            wanted, draft = wanted.partition("/")[2], draft.partition("/")[2]
        if re.fullmatch(wanted, target) and draft != target:
            return str(row["draft"])
    return None


def pairs_by_fit(free: int, *, cpu: bool) -> dict[str, list[NamedPair]]:
    """The pairs of the table by whether they fit into memory; smaller weights have 8 or 4 bits, or
    16 bits on a CPU.

    free: free bytes of the device, or of all GPUs together. cpu: whether the device is a CPU, which
    runs fp32 and cannot use weights of 8 or 4 bits.
    """
    groups: dict[str, list[NamedPair]] = {FITS: [], FITS_SMALLER: [], TOO_LARGE: []}
    for pair in named_pairs():
        fits_smaller = any(pair.bytes(name) <= free for name in smaller_precisions(cpu))
        group = FITS_SMALLER if fits_smaller else TOO_LARGE
        groups[FITS if pair.bytes(pair.precision(cpu=cpu)) <= free else group].append(pair)
    return groups


@cache
def facts(part: str) -> dict[str, Facts]:
    """The table's "models" or "heads", by their hub ids."""
    return {name: Facts(name, **values) for name, values in _table()[part].items()}


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads((ASSETS / "pairs.json").read_text("utf-8"))
    return table
