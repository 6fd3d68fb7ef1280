"""Where the models of a pair are, as another engine's command line names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...environment import ASSETS
from ...errors import PairError
from ...pairs.model_files import ModelFile
from ...pairs.spec import ModelsSpec, NamedSpec, local_file, local_path, parse_pair
from ...pairs.table import Facts, named_pair, wheel_file
from .types import Place


def places_of(pair: Any, target: str, draft: str | None) -> tuple[Place, Place | None]:
    """The places of the target and of the draft model. target, draft: their names in a header; the
    draft's is None if the pair has none."""
    beside = None if draft is None else Place(draft)
    try:
        spec = parse_pair(pair.name)
    except PairError:  # a pair that somebody has put together
        return Place(target), beside
    if isinstance(spec, ModelsSpec):
        is_model = draft is not None and spec.draft is not None
        return _typed(spec.target, target), _typed(str(spec.draft), draft) if is_model else beside
    row = named_pair(spec.name) if isinstance(spec, NamedSpec) else None
    if row is not None and row.wheel is not None:
        file = wheel_file(row)
        return Place(row.target.name, None if file is None else file.name, row.wheel), beside
    if row is not None and row.target_file is not None:
        published = _of_the_hub(row.target, row.target_file)
        if row.draft is None or row.draft_file is None:
            return published, beside
        return published, beside and _of_the_hub(row.draft, row.draft_file)
    return Place(_of_ours(pair.target) or target), beside and Place(
        _of_ours(pair.draft) or beside.name
    )


def _of_the_hub(model: Facts, file: ModelFile) -> Place:
    """The place of a model of the table that is run from a published file."""
    return Place(model.name, file.name, repository=file.repository)


def _typed(name: str, told: str | None) -> Place:
    """The place of a model that somebody named: its folder or file as it was typed, or its id."""
    if local_file(name) is not None:
        return Place(name, name)
    return Place(name if local_path(name) is not None else told or name)


def _of_ours(model: Any) -> str | None:
    """The folder of a model of the built-in pair, from the repository's own."""
    path = Path(str(getattr(model, "name_or_path", "")))
    return f"assets/{path.relative_to(ASSETS).as_posix()}" if path.is_relative_to(ASSETS) else None
