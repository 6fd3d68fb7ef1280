"""The locations of a pair's models, as another engine's command line names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...base.environment import ASSETS
from ...base.errors import PairError
from ...files.local_models import GGUF, stored_model
from ...files.local_paths import local_file, local_path
from ...files.model_files import ModelFile
from ...pairs.spec import ModelsSpec, NamedSpec, PairSpec, parse_pair
from ...pairs.table import Facts, NamedPair, named_pair, wheel_file
from .types import ModelLocation


def locate_models(
    pair: Any, target: str, draft: str | None
) -> tuple[ModelLocation, ModelLocation | None]:
    """Locate the target and the draft model. target, draft: their names in a header; the draft's is
    None if the pair has none."""
    spec: PairSpec | None
    try:
        spec = parse_pair(pair.name)
    except PairError:  # a pair of models that were loaded elsewhere
        spec = None
    target_location = _target_location(pair, spec, target)
    if draft is None:
        return target_location, None
    return target_location, _draft_location(pair, spec, draft)


def _target_location(pair: Any, spec: PairSpec | None, name: str) -> ModelLocation:
    if spec is None:
        return ModelLocation(name)
    if isinstance(spec, ModelsSpec):
        return _typed(spec.target, name)
    row = _row_of(spec)
    if row is not None and row.wheel is not None:
        return _in_a_wheel(row, row.wheel)
    if row is not None and row.target_file is not None:
        return _of_the_hub(row.target, row.target_file)
    return ModelLocation(_builtin_folder(pair.target) or name)


def _draft_location(pair: Any, spec: PairSpec | None, name: str) -> ModelLocation:
    if spec is None:
        return ModelLocation(name)
    if isinstance(spec, ModelsSpec):
        if spec.draft is None:
            return ModelLocation(name)
        return _typed(spec.draft, name)
    row = _row_of(spec)
    if row is None or (row.wheel is None and row.target_file is None):
        return ModelLocation(_builtin_folder(pair.draft) or name)
    if row.wheel is None and row.draft is not None and row.draft_file is not None:
        return _of_the_hub(row.draft, row.draft_file)
    return ModelLocation(name)


def _row_of(spec: PairSpec) -> NamedPair | None:
    """The row of the table that a pair's name is in, if it is in any."""
    if isinstance(spec, NamedSpec):
        return named_pair(spec.name)
    return None


def _in_a_wheel(row: NamedPair, wheel: str) -> ModelLocation:
    """The location of a target whose file comes with a package."""
    file = wheel_file(row)
    if file is None:
        return ModelLocation(row.target.name, package=wheel)
    return ModelLocation(row.target.name, file.name, package=wheel)


def _of_the_hub(model: Facts, file: ModelFile) -> ModelLocation:
    """The location of a model of the table that runs from a published file."""
    return ModelLocation(model.name, file.name, repository=file.repository)


def _typed(typed: str, name: str) -> ModelLocation:
    """The location of a typed model: its folder or file as typed, or its name in the header. The
    folders of other programs are left out: results are passed on."""
    stored = stored_model(typed)
    if stored is not None:
        file_name = None
        if stored.path.suffix.lower() == GGUF:
            file_name = stored.path.name
        return ModelLocation(stored.id or name, gguf=file_name)
    if local_file(typed) is not None:
        return ModelLocation(typed, typed)
    if local_path(typed) is not None:
        return ModelLocation(typed)
    return ModelLocation(name or typed)


def _builtin_folder(model: Any) -> str | None:
    """The folder of a model of the built-in pair, from the repository's own; None of others."""
    path = Path(str(getattr(model, "name_or_path", "")))
    if not path.is_relative_to(ASSETS):
        return None
    return f"assets/{path.relative_to(ASSETS).as_posix()}"
