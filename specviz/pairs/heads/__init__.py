"""What may stand in the place of a draft and reads the target's states: all kinds of heads."""

from __future__ import annotations

from typing import TypeAlias

from ..metadata import ModelMetadata
from ..spec import OWN_LAYERS
from .eagle_files import HeadMetadata, head_values, read_head
from .library import AssistantMetadata, MtpMetadata, is_assistant, read_assistant, read_mtp

AnyMetadata: TypeAlias = HeadMetadata | MtpMetadata | AssistantMetadata


def is_head(name: str) -> bool:
    """Whether a pair's second name is that of a head, and not of a draft model."""
    return name == OWN_LAYERS or is_assistant(name) or head_values(name) is not None


def read_any_head(name: str, target: ModelMetadata) -> AnyMetadata | None:
    """The metadata of the head with this hub id or folder, or of the target's own layers if the
    name is "mtp"; None if it is a draft model.

    Raises `PairError` if it is damaged, of a kind that is not known, or made for another target.
    """
    if name == OWN_LAYERS:
        return read_mtp(target)
    return read_assistant(name, target.model) or read_head(name, target.model)
