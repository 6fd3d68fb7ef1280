"""The options of a request to load a pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    from ..files.progress import Watcher
    from ..files.weights import LoadOptions


class LoadRequest(NamedTuple):
    """The options for loading a pair. options: of the target and of the draft. device: None is the
    best one.
    """

    options: Sequence[LoadOptions]
    device: torch.device | None
    on_progress: Watcher | None
