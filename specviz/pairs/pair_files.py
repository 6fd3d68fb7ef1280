"""The files of a pair."""

from __future__ import annotations

from typing import NamedTuple

from ..base.errors import PairError
from ..files.gguf.header import GgufHeader
from ..files.gguf.keys import checked_gguf
from ..files.gguf.layout import can_stay_packed
from ..files.local_paths import local_file, local_path
from .closed import closed_sentence
from .spec import ModelsSpec, NamedSpec
from .table import Facts, NamedPair, checked_file, named_pair, wheel_file


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


def named_files(spec: NamedSpec | ModelsSpec) -> tuple[str, str | None, NamedPair | None]:
    """The target and the draft, or None, of a pair that is loaded here, and the row of the table
    that names the target, whose files may be those of an installed package or fetched ones.

    A row's name may stand before a plus as well, where no folder here has it. Raises `PairError` if
    a file of the row is not here.
    """
    if isinstance(spec, ModelsSpec):
        row = None if local_path(spec.target) else named_pair(spec.target)
        target = spec.target
        draft = spec.draft
    else:
        row = named_pair(spec.name)
        assert row is not None, "the parser has seen it"
        draft = row.parts[0].name_or_path if row.parts else None
        if row.draft_file is not None:
            draft = checked_file(row, row.draft_file)
    if row is not None and row.target_file is not None:
        target = checked_file(row, row.target_file)
    elif row is not None:
        target = str(wheel_file(row) or row.target.name_or_path)
    return target, draft, row
