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
    """One model of a pair."""

    name: str  # a hub id, a folder or a file
    table_name: str | None  # its name in the table, without the owner
    dtype: str | None  # the dtype to which the table unpacks its GGUF file
    bits: str | None  # the table's bits for its weights on a processor
    header: GgufHeader | None  # of a GGUF file which specviz reads, not transformers


class PairFiles(NamedTuple):
    """The target, and perhaps the draft, of a pair, and the pair's row of the table."""

    models: list[PairFile]
    row: NamedPair | None


def pair_files(spec: NamedSpec | ModelsSpec, *, reads: bool) -> PairFiles:
    """Find the files of a pair. reads: whether GGUF files of known kinds can be read
    (`models.reads_files`). Raises `PairError`."""
    target, draft, row = named_files(spec)
    names = [target]
    if draft:
        names.append(draft)
    if closed := closed_sentence(names):
        raise PairError(closed)
    models = []
    for name in names:
        header: GgufHeader | None = None
        if reads:
            header = _readable_header(name)
        models.append(PairFile(name, table_name=None, dtype=None, bits=None, header=header))
    if row is not None:
        target_name = _name_without_owner(row.target)
        models[0] = models[0]._replace(table_name=target_name, dtype=row.target_dtype)
        if draft:
            draft_name: str | None = None
            if row.draft is not None:
                draft_name = _name_without_owner(row.draft)
            models[1] = models[1]._replace(table_name=draft_name, bits=row.draft_bits(draft))
    return PairFiles(models, row)


def _readable_header(name: str) -> GgufHeader | None:
    """The header of a GGUF file of known kinds; None for anything else. Raises `PairError`."""
    path = local_file(name)
    if path is None:
        return None
    header = checked_gguf(path)
    if not can_stay_packed(header):
        return None
    return header


def _name_without_owner(model: Facts) -> str:
    return model.name.rpartition("/")[2]


def named_files(spec: NamedSpec | ModelsSpec) -> tuple[str, str | None, NamedPair | None]:
    """The target and the draft, or None, of a pair of local models, and the table's row for the
    target. The row's files may be fetched or belong to an installed package. A row's name may also
    come before a plus, unless a local folder has that name. Raises `PairError` if a file of the
    row is missing.
    """
    if isinstance(spec, ModelsSpec):
        row = None
        if local_path(spec.target) is None:
            row = named_pair(spec.target)
        target = spec.target
        draft = spec.draft
    else:
        row = named_pair(spec.name)
        assert row is not None, "the parser has seen it"
        draft = None
        if row.draft_file is not None:
            draft = checked_file(row, row.draft_file)
        elif row.parts:
            draft = row.parts[0].name_or_path
    if row is not None and row.target_file is not None:
        target = checked_file(row, row.target_file)
    elif row is not None:
        target = str(wheel_file(row) or row.target.name_or_path)
    return target, draft, row
