"""Sources of models, and the names shown for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .local_models import stored_model
from .local_paths import local_path

MAX_SHOWN = 100  # characters of a model's name in a sentence


@dataclass(frozen=True)
class ModelSource:
    """The source of a model. name: its hub id, the path of its local folder, or the name of the
    model in a GGUF file. folder: its local folder or its GGUF file, or None."""

    name: str
    folder: Path | None

    @property
    def shown(self) -> str:
        """The name without a path: users of the page must not see paths of this machine."""
        if self.folder is None or self.folder.is_file():
            return shown_name(self.name)
        return self.folder.name


class CachedSource(ModelSource):
    """A model of the hub that is on this machine. folder: its folder in the hub's cache."""

    @property
    def shown(self) -> str:
        return shown_name(self.name)


def named_source(name: str) -> ModelSource:
    """The source with this name, whether the model exists or not."""
    stored = stored_model(name)
    if stored is not None and stored.id is not None:
        return CachedSource(stored.id, stored.path)
    return ModelSource(name, local_path(name))


def shown_name(name: str) -> str:
    """A model's name without the folders above it, cut off if it is very long."""
    path = Path(name)
    is_path = path.is_absolute() or name.startswith((".", "~"))
    shown = name
    if is_path:
        shown = path.name
    if len(shown) > MAX_SHOWN:
        return shown[:MAX_SHOWN] + "…"
    return shown
