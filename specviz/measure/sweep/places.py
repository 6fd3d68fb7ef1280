"""The locations of a pair's models, as another engine's command line names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...base.environment import ASSETS
from ...base.errors import PairError
from ...files.local_models import GGUF, stored_model
from ...files.local_paths import local_file, local_path
from ...files.model_files import ModelFile
from ...pairs.spec import ModelsSpec, NamedSpec, parse_pair
from ...pairs.table import Facts, named_pair, wheel_file
from .types import Place


def places_of(pair: Any, target: str, draft: str | None) -> tuple[Place, Place | None]:
    """Locate the target and the draft model. target, draft: their names in a header; the draft's is
    None if the pair has none."""
    draft_place = None if draft is None else Place(draft)
    try:
        spec = parse_pair(pair.name)
    except PairError:  # a pair of models that were loaded elsewhere
        return Place(target), draft_place
    if isinstance(spec, ModelsSpec):
        if draft is not None and spec.draft is not None:
            draft_place = _typed(spec.draft, draft)
        return _typed(spec.target, target), draft_place
    row = named_pair(spec.name) if isinstance(spec, NamedSpec) else None
    if row is not None and row.wheel is not None:
        file = wheel_file(row)
        gguf = None if file is None else file.name
        return Place(row.target.name, gguf, row.wheel), draft_place
    if row is not None and row.target_file is not None:
        if draft is not None and row.draft is not None and row.draft_file is not None:
            draft_place = _of_the_hub(row.draft, row.draft_file)
        return _of_the_hub(row.target, row.target_file), draft_place
    if draft is not None:
        draft_place = Place(_builtin_folder(pair.draft) or draft)
    return Place(_builtin_folder(pair.target) or target), draft_place


def _of_the_hub(model: Facts, file: ModelFile) -> Place:
    """The location of a model of the table that runs from a published file."""
    return Place(model.name, file.name, repository=file.repository)


def _typed(typed: str, name: str) -> Place:
    """The location of a typed model: its folder or file as typed, or its name in the header. The
    folders of other programs are left out: results are passed on."""
    stored = stored_model(typed)
    if stored is not None:
        is_named = stored.path.suffix.lower() == GGUF
        return Place(stored.id or name, stored.path.name if is_named else None)
    if local_file(typed) is not None:
        return Place(typed, typed)
    if local_path(typed) is not None:
        return Place(typed)
    return Place(name or typed)


def _builtin_folder(model: Any) -> str | None:
    """The folder of a model of the built-in pair, from the repository's own; None of others."""
    path = Path(str(getattr(model, "name_or_path", "")))
    if not path.is_relative_to(ASSETS):
        return None
    return f"assets/{path.relative_to(ASSETS).as_posix()}"
