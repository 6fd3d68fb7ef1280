"""What may stand in the place of a draft and reads the target's states: all kinds of heads."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from ..hub import find_source
from ..metadata import ModelMetadata
from ..progress import Watcher
from .assistant import Assistant, AssistantMetadata, is_assistant, load_assistant, read_assistant
from .eagle import Head
from .eagle_files import HeadMetadata, head_values, load_head, read_head
from .mtp import MTP, MtpHead, MtpMetadata, load_mtp, read_mtp

AnyHead: TypeAlias = Head | MtpHead | Assistant
AnyMetadata: TypeAlias = HeadMetadata | MtpMetadata | AssistantMetadata


def is_head(name: str) -> bool:
    """Whether a pair's second name is that of a head, and not of a draft model."""
    return name == MTP or is_assistant(name) or head_values(name) is not None


def read_any_head(name: str, target: ModelMetadata) -> AnyMetadata | None:
    """The metadata of the head with this hub id or folder, or of the target's own layers if the
    name is "mtp"; None if it is a draft model.

    Raises `PairError` if it is damaged, of a kind that is not known, or made for another target.
    """
    if name == MTP:
        return read_mtp(target)
    return read_assistant(name, target.model) or read_head(name, target.model)


def load_any_head(
    name: str, target: Any, device: torch.device, on_progress: Watcher | None = None
) -> AnyHead:
    """The head with this name, for a loaded target, in the target's dtype. Raises `PairError`."""
    if name == MTP:
        return load_mtp(target, find_source(target.name_or_path).shown)
    if is_assistant(name):
        return load_assistant(name, target, device, on_progress)
    return load_head(name, target, device, on_progress)
