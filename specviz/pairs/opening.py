"""The pair with which a page opens."""

from __future__ import annotations

from ..base.environment import BUILTIN, SERVED
from ..base.errors import PairError, SettingsError
from ..base.variables import PAIR, REMOTE
from ..files.memory import free_ram
from .spec import OperatorSpec, ServedSpec, WatchedSpec, operator_spec, parse_pair
from .table import NamedPair, at_hand, named_pairs, operator_pairs


def first_pair() -> str:
    """The pair that a page starts with: that of SPECVIZ_PAIR, else the first of the table that
    comes as files, is at hand and fits into the free memory, else the built-in one. Raises
    `SettingsError`."""
    name = PAIR.read()
    if name is None:
        packed = (pair for pair in named_pairs() if pair.is_packed and at_hand(pair))
        free = free_ram()
        fitting = (pair for pair in packed if pair.bytes(pair.precision(cpu=True)) <= free)
        return next((pair.name for pair in fitting), BUILTIN)
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


def awaited_pair() -> NamedPair | None:
    """The row with which a page would open if its files were at hand; None if nothing is missing,
    if SPECVIZ_PAIR names a pair, or if SPECVIZ_PAIRS leaves it out."""
    if PAIR.read() is not None:
        return None
    offered = operator_pairs() or named_pairs()
    free = free_ram()
    for row in named_pairs():
        fits = row.is_packed and row.bytes(row.precision(cpu=True)) <= free
        if not fits:
            continue
        if at_hand(row):
            return None
        if row.files and row in offered:
            return row
    return None
