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
    """One model of a pair. name: a hub id, a folder or a file. table_name: its name in the table.
    dtype: the dtype to which the table unpacks its GGUF file. bits: the table's bits for its
    weights on a processor. header: that of a GGUF file which specviz reads, not transformers.
    """

    name: str
    table_name: str | None
    dtype: str | None
    bits: str | None
    header: GgufHeader | None


class PairFiles(NamedTuple):
    """The target, and perhaps the draft, of a pair, and the pair's row of the table."""

    models: list[PairFile]
    row: NamedPair | None


def pair_files(spec: NamedSpec | ModelsSpec, *, reads: bool) -> PairFiles:
    """Find the files of a pair. reads: whether GGUF files of known kinds can be read
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
    """The table's name of a model, without the owner."""
    return None if model is None else model.name.rpartition("/")[2]


def named_files(spec: NamedSpec | ModelsSpec) -> tuple[str, str | None, NamedPair | None]:
    """The target and the draft, or None, of a pair of local models, and the table's row for the
    target. The row's files may be fetched or belong to an installed package. A row's name may also
    stand before a plus, unless a local folder has that name. Raises `PairError` if a file of the
    row is missing.
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
