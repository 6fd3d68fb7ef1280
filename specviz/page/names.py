"""Display names of pairs: the names of their models, never of files or folders."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ..base.environment import BUILTIN
from ..base.errors import PairError
from ..files.gguf.header import read_gguf
from ..files.local_models import is_stored, short_name, stored_model
from ..files.local_paths import local_path
from ..pairs.spec import ModelsSpec, parse_pair
from ..pairs.table import NamedPair, named_pair, wheel_file
from ..sides.heads.configs import OWN_LAYERS


class ShownPair(NamedTuple):
    """A pair's display names. target, draft: the models' names in the header of a run; draft is
    None without a draft model, or if it is unknown. title: the name of the pair. bytes: the size of
    the weight files on this machine, None if unknown."""

    title: str
    target: str
    draft: str | None = None
    bytes: int | None = None


@lru_cache(maxsize=64)
def shown_pair(pair: str) -> ShownPair:
    """The display names of a pair: of its row, or of the models in its name. Only headers of files
    are read."""
    row = named_pair(pair)
    if row is not None:
        return _shown_row(row)
    try:
        spec = parse_pair(pair)
    except PairError:
        return ShownPair(pair, pair)
    if not isinstance(spec, ModelsSpec):
        return ShownPair(pair, pair)
    target_row = None if local_path(spec.target) else named_pair(spec.target)
    target = target_row.target.name.rpartition("/")[2] if target_row else _model(spec.target)
    if spec.draft is None:
        return ShownPair(f"{target}, no draft model", target, None, _bytes(spec.target))
    if spec.draft == OWN_LAYERS:
        return ShownPair(f"{target}, its own layers", target, None, _bytes(spec.target))
    draft = _model(spec.draft)
    title = f"{target} + {draft}"
    if is_stored(spec.target) and is_stored(spec.draft):  # as their owner knows them
        title = f"{short_name(spec.target)} + {short_name(spec.draft)}"
    sizes = [_bytes(spec.target), _bytes(spec.draft)]
    known_sizes = [size for size in sizes if size is not None]
    total = sum(known_sizes) if len(known_sizes) == len(sizes) else None
    return ShownPair(title, target, draft, total)


def _shown_row(row: NamedPair) -> ShownPair:
    target = row.target.name.rpartition("/")[2]
    draft = None if row.draft is None else row.draft.name.rpartition("/")[2]
    packed = wheel_file(row)
    size = packed.stat().st_size if packed else None
    if row.files:
        size = sum(file.bytes for file in row.files)
    return ShownPair(title_of(row), target, draft, size)


def title_of(pair: NamedPair) -> str:
    """The title of a row of the table."""
    if pair.name == BUILTIN:
        return "Built-in pair"
    beside = () if pair.head is not None and pair.head.shipped else pair.parts[:1]
    names = [model.name.rpartition("/")[2] for model in (pair.target, *beside)]
    if pair.files:  # each says how many bits it has
        names = [name for name in (pair.target_name, pair.draft_name) if name is not None]
    return f"{' + '.join(names)}{'' if pair.head is None else ', a head'}"


def _model(name: str) -> str:
    """A model's display name: the name in a file's header, a folder's own name, or a hub id without
    its owner."""
    stored = stored_model(name)
    if stored is not None and stored.id is not None:
        return stored.id.rpartition("/")[2]
    path = local_path(name)
    if path is None:
        return name.rpartition("/")[2]
    if path.is_dir():
        return path.resolve().name
    try:
        return read_gguf(path).name
    except PairError:
        return path.stem


def _bytes(name: str) -> int | None:
    """The size of a model's weights on this machine; None if they are not here."""
    path = local_path(name)
    if path is None:
        return None
    files = [path] if path.is_file() else list(Path(path).glob("*.safetensors"))
    return sum(file.stat().st_size for file in files) or None
