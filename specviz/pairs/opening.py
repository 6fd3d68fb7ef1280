"""Choose the pair that a page opens with."""

from __future__ import annotations

from ..base.environment import BUILTIN, SERVED
from ..base.errors import PairError, SettingsError
from ..base.variables import PAIR, REMOTE
from ..files.memory import free_ram
from .spec import OperatorSpec, ServedSpec, WatchedSpec, operator_spec, parse_pair
from .table import NamedPair, at_hand, named_pairs, operator_pairs


def first_pair() -> str:
    """Choose the pair that a page starts with: the pair of SPECVIZ_PAIR; else the table's first
    pair of GGUF files that is on this machine and fits into free memory; else the built-in pair.
    Raises `SettingsError`."""
    name = PAIR.read()
    if name is None:
        free = free_ram()
        for row in named_pairs():
            if row.is_packed and at_hand(row) and _fits(row, free):
                return row.name
        return BUILTIN
    try:
        spec = parse_pair(name)
        if isinstance(spec, OperatorSpec):
            operator_spec()
    except PairError as error:
        raise SettingsError(f"{PAIR.name}: {error}") from None
    if isinstance(spec, ServedSpec | WatchedSpec):
        raise SettingsError(
            f"{PAIR.name} contains an address, which every visitor would see: put the address "
            f"into {REMOTE.name}, and set {PAIR.name} to {SERVED}."
        )
    return str(spec)


def awaited_pair() -> NamedPair | None:
    """The row that a page would open with once its files are fetched; None if nothing is missing,
    if SPECVIZ_PAIR names a pair, or if SPECVIZ_PAIRS leaves the row out."""
    if PAIR.read() is not None:
        return None
    offered = operator_pairs() or named_pairs()
    free = free_ram()
    for row in named_pairs():
        if not row.is_packed or not _fits(row, free):
            continue
        if at_hand(row):
            return None
        if row.files and row in offered:
            return row
    return None


def _fits(row: NamedPair, free: int) -> bool:
    """Whether a row's models fit into free bytes of memory, on a processor."""
    return row.bytes(row.precision(cpu=True)) <= free
