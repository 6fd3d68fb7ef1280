"""Display names of pairs: the names of their models, never of files or folders."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..base.environment import BUILTIN
from ..base.errors import PairError
from ..files.gguf.header import read_gguf
from ..files.local_models import is_stored, short_name, stored_model
from ..files.local_paths import local_path
from ..pairs.spec import ModelsSpec, parse_pair
from ..pairs.table import Facts, NamedPair, named_pair, wheel_file
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
        return ShownPair(title=pair, target=pair)
    if not isinstance(spec, ModelsSpec):
        return ShownPair(title=pair, target=pair)
    if spec.draft is None or spec.draft == OWN_LAYERS:
        return _shown_target(spec)
    return _shown_models(spec.target, spec.draft)


def without_owner(name: str) -> str:
    """The name of a hub model without its owner."""
    return name.rpartition("/")[2]


def _shown_row(row: NamedPair) -> ShownPair:
    draft = None
    if row.draft is not None:
        draft = without_owner(row.draft.name)
    return ShownPair(
        title=title_of(row),
        target=without_owner(row.target.name),
        draft=draft,
        bytes=_row_bytes(row),
    )


def _row_bytes(row: NamedPair) -> int | None:
    if row.files:
        return sum(file.bytes for file in row.files)
    packed = wheel_file(row)
    if packed is None:
        return None
    return packed.stat().st_size


def _shown_target(spec: ModelsSpec) -> ShownPair:
    """The display names of a target without a draft model."""
    target = _target_name(spec.target)
    drafts = "no draft model"
    if spec.draft == OWN_LAYERS:
        drafts = "its own layers"
    return ShownPair(
        title=f"{target}, {drafts}",
        target=target,
        bytes=_weight_bytes(spec.target),
    )


def _shown_models(target: str, draft: str) -> ShownPair:
    """The display names of a target and its draft model."""
    target_name = _target_name(target)
    draft_name = _model_name(draft)
    title = f"{target_name} + {draft_name}"
    if is_stored(target) and is_stored(draft):  # as their owner knows them
        title = f"{short_name(target)} + {short_name(draft)}"
    target_bytes = _weight_bytes(target)
    draft_bytes = _weight_bytes(draft)
    total = None
    if target_bytes is not None and draft_bytes is not None:
        total = target_bytes + draft_bytes
    return ShownPair(title=title, target=target_name, draft=draft_name, bytes=total)


def title_of(pair: NamedPair) -> str:
    """The title of a row of the table."""
    if pair.name == BUILTIN:
        return "Built-in pair"
    if pair.files:  # their names say how many bits the weights have
        file_names = (pair.target_name, pair.draft_name)
        names = [name for name in file_names if name is not None]
    else:
        names = [without_owner(model.name) for model in _titled_models(pair)]
    title = " + ".join(names)
    if pair.head is None:
        return title
    return f"{title}, a head"


def _titled_models(pair: NamedPair) -> list[Facts]:
    """The models that a title names: the target, and its draft unless that is a shipped head."""
    if pair.head is not None and pair.head.shipped:
        return [pair.target]
    return [pair.target, *pair.parts[:1]]


def _target_name(name: str) -> str:
    """A target's display name: that of its row if the table has one, else `_model_name`."""
    row = None
    if not local_path(name):
        row = named_pair(name)
    if row is None:
        return _model_name(name)
    return without_owner(row.target.name)


def _model_name(name: str) -> str:
    """A model's display name: the name in a file's header, a folder's own name, or a hub id without
    its owner."""
    stored = stored_model(name)
    if stored is not None and stored.id is not None:
        return without_owner(stored.id)
    path = local_path(name)
    if path is None:
        return without_owner(name)
    if path.is_dir():
        return path.resolve().name
    try:
        return read_gguf(path).name
    except PairError:
        return path.stem


def _weight_bytes(name: str) -> int | None:
    """The size of a model's weights on this machine; None if they are not here."""
    path = local_path(name)
    if path is None:
        return None
    files = [path]
    if not path.is_file():
        files = list(path.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    return size or None
