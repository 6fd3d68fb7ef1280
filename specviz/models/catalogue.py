"""The table of named pairs in `assets/pairs.json`; no model library is needed to read it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..environment import ASSETS, BUILTIN
from .sizes import QUANTIZED, TYPICAL_CONTEXT, number_bytes, weight_bytes

FITS, FITS_SMALLER, TOO_LARGE = "fits", "fits with smaller weights", "too large"
GROUPS = (FITS, FITS_SMALLER, TOO_LARGE)
"""What a pair is to a machine; smaller weights have 8 or 4 bits, or 16 on a processor."""


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model without asking the hub.

    name: the hub id. parameters: tied ones once. shrinkable: those that 8-bit and 4-bit weights
    concern. cache: numbers that the caches keep per token. context: tokens. dtype: of the
    checkpoint. gated: whether its licence must be accepted first; None if that has changed
    before. chat: whether it was tuned for chat. safetensors: whether the hub has it in that form.
    """

    name: str
    parameters: int
    shrinkable: int
    cache: int
    context: int
    dtype: str
    licence: str
    gated: bool | None
    chat: bool
    safetensors: bool

    def bytes(self, precision: str, tokens: int = TYPICAL_CONTEXT, *, copies: int = 1) -> int:
        """Bytes of the weights, and of so many caches of a text of so many tokens."""
        cached = copies * self.cache * min(tokens, self.context) * number_bytes(precision)
        return weight_bytes(self.parameters, self.shrinkable, precision) + cached


@dataclass(frozen=True)
class NamedPair:
    """A pair of the table. shows: one sentence on what there is to see."""

    name: str
    target: ModelFacts
    draft: ModelFacts
    shows: str

    @property
    def spelling(self) -> str:
        """The pair as `load_pair` takes it."""
        return BUILTIN if self.name == BUILTIN else f"{self.target.name}+{self.draft.name}"

    @property
    def ratio(self) -> float:
        """The target's parameters for each of the draft's."""
        return self.target.parameters / self.draft.parameters

    def precision(self, *, cpu: bool) -> str:
        """The precision that it is loaded in, unless another is asked for."""
        return "float32" if cpu else self.target.dtype

    def bytes(self, precision: str, tokens: int = TYPICAL_CONTEXT) -> int:
        """Bytes of both models with the caches of both lanes; the target runs in each lane."""
        target = self.target.bytes(precision, tokens, copies=2)
        return target + self.draft.bytes(precision, tokens)

    def memory(self, tokens: int = TYPICAL_CONTEXT) -> dict[str, int]:
        """Bytes of both models with caches, by precision."""
        names = ("float32", "bfloat16", *QUANTIZED)
        return {name: self.bytes(name, tokens) for name in names}


@cache
def named_pairs() -> tuple[NamedPair, ...]:
    """Every pair of the table, the built-in one first."""
    table = _table()
    models = {name: ModelFacts(name=name, **facts) for name, facts in table["models"].items()}
    return tuple(
        NamedPair(row["name"], models[row["target"]], models[row["draft"]], row["shows"])
        for row in table["pairs"]
    )


def named_pair(name: str) -> NamedPair | None:
    """The pair of that name, or None."""
    return next((pair for pair in named_pairs() if pair.name == name), None)


def known_model(name: str) -> ModelFacts | None:
    """What the table knows of a hub id, or None."""
    facts = _table()["models"].get(name)
    return ModelFacts(name=name, **facts) if facts else None


def suggested_draft(target: str) -> str | None:
    """The hub id of a draft that shares the tokenizer of this hub id, if one is known.

    A name without an owner, as of a folder, may be anyone's.
    """
    for row in _table()["drafts"]:
        wanted, draft = row["target"], str(row["draft"])
        if "/" not in target:
            wanted, draft = wanted.partition("/")[2], draft.partition("/")[2]
        if re.fullmatch(wanted, target) and draft != target:
            return str(row["draft"])
    return None


def pairs_by_fit(
    free: int, *, cpu: bool, dtype: str | None = None, tokens: int = TYPICAL_CONTEXT
) -> dict[str, list[NamedPair]]:
    """The table by what fits: for each of `GROUPS`, the pairs in it.

    free: bytes that the device, or all GPUs together, can still take. cpu: a processor runs
    fp32 unless `dtype` says otherwise, and knows no weights of 8 or 4 bits.
    """
    groups: dict[str, list[NamedPair]] = {name: [] for name in GROUPS}
    for pair in named_pairs():
        groups[_group(pair, free, cpu, dtype, tokens)].append(pair)
    return groups


def _group(pair: NamedPair, free: int, cpu: bool, dtype: str | None, tokens: int) -> str:
    if pair.bytes(dtype or pair.precision(cpu=cpu), tokens) <= free:
        return FITS
    ways = ("bfloat16",) if cpu else QUANTIZED
    return FITS_SMALLER if any(pair.bytes(n, tokens) <= free for n in ways) else TOO_LARGE


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads((ASSETS / "pairs.json").read_text("utf-8"))
    return table
