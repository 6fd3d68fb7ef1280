"""The files of a pair, and their weights, whose reading begins before torch is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..environment import may_have_gpu
from ..errors import PairError
from .closed import closed_sentence
from .gguf_layout import can_stay_packed
from .memory import DTYPES, Processor, device_memory
from .packed_weights import ReadAhead, Reading
from .spec import ModelsSpec, NamedSpec, local_file
from .table import Facts, NamedPair, named_files

if TYPE_CHECKING:
    from .gguf import GgufHeader
    from .progress import Watcher


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

    @property
    def shown(self) -> str:
        """What the model of a GGUF file is called."""
        assert self.header is not None, "other files are called by those who load them"
        return self.table_name or self.header.name


class PairFiles(NamedTuple):
    """The target, and perhaps the draft, of a pair, and the row of the table that has it."""

    models: list[PairFile]
    row: NamedPair | None


def pair_files(spec: NamedSpec | ModelsSpec, ahead: ReadAhead, *, reads: bool) -> PairFiles:
    """The files of a pair. ahead: what reads their headers. reads: whether GGUF files of known
    kinds are read here (`models.reads_files`). Raises `PairError`."""
    target, draft, row = named_files(spec)
    if closed := closed_sentence([name for name in (target, draft) if name]):
        raise PairError(closed)

    def header(name: str) -> GgufHeader | None:
        path = local_file(name)
        if path is None or not reads:
            return None
        header = ahead.header(path)
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


@contextmanager
def reading_ahead(
    spec: NamedSpec | ModelsSpec,
    precision: Mapping[str, Any],
    device: Any,
    on_progress: Watcher | None,
) -> Iterator[ReadAhead]:
    """Within, the weights of a pair are read in a thread, if they are in GGUF files that are here
    and run on a processor as they are. Whatever is wrong with the names, files or options is told
    by those who load the pair.

    precision: dtype, quantize and draft_quantize, as for `load_pair`, and so is `device`.
    """
    is_processor = str(device) == "cpu" or (device is None and not may_have_gpu())
    with ReadAhead(device_memory(Processor())[0].free) as ahead:
        if is_processor:
            with suppress(PairError):
                files = pair_files(spec, ahead, reads=True)
                _begin(files, ahead, precision, on_progress)
        yield ahead


def _begin(
    files: PairFiles, ahead: ReadAhead, precision: Mapping[str, Any], on_progress: Watcher | None
) -> None:
    quantized = (precision.get("quantize"), precision.get("draft_quantize"))
    asked = precision.get("dtype")
    for file, asked_bits in zip(files.models, quantized, strict=False):
        bits = asked_bits or file.bits
        dtype = file.dtype
        if asked not in (None, "auto"):
            dtype = str(asked).removeprefix("torch.")
            bits = asked_bits
        if bits is not None:
            dtype = None
        if file.header is not None and dtype in (None, *DTYPES):
            ahead.begin(Reading(file.header, file.shown, dtype, bits, on_progress))
