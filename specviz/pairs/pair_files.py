"""The files of a pair."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import PairError
from .closed import closed_sentence
from .gguf import GgufHeader
from .gguf_keys import checked_gguf
from .gguf_layout import can_stay_packed
from .spec import ModelsSpec, NamedSpec, local_file
from .table import Facts, NamedPair, named_files


class PairFile(NamedTuple):
    """One model of a pair.

    name: a hub id, a folder or a file. table_name: how the table names it. dtype: in which the
    table has a GGUF file unpacked. bits: those that it gives to a file's weights on a processor.
    header: of a GGUF file that is read here, and not by transformers.
    """

    name: str
    table_name: str | None
    dtype: str | None
    bits: str | None
    header: GgufHeader | None


class PairFiles(NamedTuple):
    """The target, and perhaps the draft, of a pair, and the row of the table that has it."""

    models: list[PairFile]
    row: NamedPair | None


def pair_files(spec: NamedSpec | ModelsSpec, *, reads: bool) -> PairFiles:
    """The files of a pair. reads: whether GGUF files of known kinds are read here
    (`models.reads_files`). Raises `PairError`."""
    target, draft, row = named_files(spec)
    if closed := closed_sentence([name for name in (target, draft) if name]):
        raise PairError(closed)

    def header(name: str) -> GgufHeader | None:
        path = local_file(name)
        if path is None or not reads:
            return None
        header = checked_gguf(path)
        return header if can_stay_packed(header) else None

    if row is None:
        names = [name for name in (target, draft) if name is not None]
        return PairFiles([PairFile(name, None, None, None, header(name)) for name in names], None)
    models = [PairFile(target, _own_name(row.target), row.target_dtype, None, header(target))]
    if draft is not None:
        name = _own_name(row.draft)
        models.append(PairFile(draft, name, None, row.draft_bits(draft), header(draft)))
    return PairFiles(models, row)


def _own_name(model: Facts | None) -> str | None:
    """How the table names a model, without its owner."""
    return None if model is None else model.name.rpartition("/")[2]
