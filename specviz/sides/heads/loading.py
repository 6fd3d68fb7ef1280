"""All kinds of heads by name: their metadata before weights are read, and the doctor's findings
about them."""

from __future__ import annotations

from ...core.model_facts import text_config
from ...files.findings import Finding, Findings, file_findings, good, stopping
from ...files.hub import find_source, safe_files
from ...files.memory import shown_count
from ...files.metadata import HeadMetadata, ModelMetadata
from .assistant import read_assistant
from .configs import ASSISTANTS, OWN_LAYERS, is_eagle, is_head_config
from .eagle import HeadConfig
from .eagle_files import config_values, read_head
from .mtp import read_mtp


def is_head(name: str) -> bool:
    """Whether a pair's second name is a head and not a draft model."""
    if name == OWN_LAYERS:
        return True
    return is_head_config(config_values(name))


def read_any_head(name: str, target: ModelMetadata) -> HeadMetadata | None:
    """The metadata of the head with this hub id or folder, or of the target's own layers for the
    name "mtp"; None for a draft model.

    Raises `PairError` if it is damaged, of an unknown kind, or made for another target.
    """
    if name == OWN_LAYERS:
        return read_mtp(target)
    values = config_values(name)
    if values.get("model_type") in ASSISTANTS:
        return read_assistant(find_source(name), target.model)
    if is_eagle(values):
        return read_head(find_source(name), values, target.model)
    return None


def examined_head(
    name: str, target: ModelMetadata | None, findings: list[Finding]
) -> HeadMetadata | None:
    """The metadata of a head, or None if it cannot be used; adds the findings about it alone.
    target: None if it could not be read."""
    with stopping("head", findings):
        if name != OWN_LAYERS:
            source = find_source(name)
            findings += file_findings(source, safe_files(source))
        if target is not None:
            return read_any_head(name, target)
    return None


def head_findings(head: HeadMetadata, target: ModelMetadata) -> Findings:
    """The states that a head reads, and the tokens that it can draft."""
    structure = head.structure
    parameters = f"{shown_count(head.need.parameters)} parameters"
    if isinstance(structure, HeadConfig):
        layers = ", ".join(map(str, structure.states))
        description = (
            f"is an EAGLE-3 head of {parameters}: it reads the target's hidden states after "
            f"{layers} of its {text_config(target.model).num_hidden_layers} layers, and can draft "
            f"{structure.draft_vocab:,} of the target's {structure.layer.vocab_size:,} tokens"
        )
    elif structure.config.model_type in ASSISTANTS:
        description = (
            f"is an assistant of {parameters}: it reads the target's last hidden state and its "
            "cache"
        )
    else:
        description = (
            f"has multi-token prediction layers ({len(structure.layers)}, with {parameters}): a "
            "longer draft feeds on its own output, so a small gamma may be best"
        )
    yield good("head", f"{head.source.shown} {description}; choose the drafter 'head'.")
