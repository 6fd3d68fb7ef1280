"""Examine a pair by its models on torch's `meta` device, before any weights are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.pair import Pair
from ..files.findings import (
    Examined,
    Finding,
    file_findings,
    packed_findings,
    pair_findings,
    rollback_findings,
    stopping,
)
from ..files.gguf.keys import checked_gguf
from ..files.gguf.layout import can_stay_packed
from ..files.hub import hub_files
from ..files.local_paths import local_file
from ..files.memory import Device, PlannedLoad
from ..files.metadata import ModelMetadata, read_metadata
from ..files.packed import packed_metadata
from ..files.source import named_source
from ..files.unpack import header_metadata
from ..files.weights import DTYPES, LoadOptions, checked_options
from ..sides.heads.loading import examined_head, head_findings, is_head
from .models import meta_pair, planned_loads, reads_files, unpacked_on_a_gpu, with_draft_bits
from .table import NamedPair, suggested_draft


def examined_models(
    names: Sequence[str], row: NamedPair | None, device: Device, precision: Mapping[str, Any]
) -> Examined:
    """Facts about a target, and perhaps a draft or head.

    row: the table's row for the pair. precision: dtype, quantize, draft_quantize and products, as
    for `load_pair`.
    """
    findings: list[Finding] = []
    has_head = len(names) == 2 and local_file(names[1]) is None and is_head(names[1])
    on_cpu = device.type == "cpu"
    asked_bits = [precision.get("quantize"), precision.get("draft_quantize")]
    reads = reads_files(asked_bits, on_cpu=on_cpu)
    models = []
    for name in names[:1] if has_head else names:
        metadata = _read(name, reads, findings)
        if metadata is not None:
            models.append(metadata)
    shown = [named_source(name).shown for name in names]
    if len(models) == len(names) and not has_head:
        shown = [metadata.source.shown for metadata in models]
    head = None
    if has_head:
        target_metadata = models[0] if models else None
        head = examined_head(names[1], target_metadata, findings)
    target_options = LoadOptions()
    draft_options = LoadOptions()
    with stopping("precision", findings):
        target_options, draft_options = checked_options(**precision)
        if on_cpu and row is not None:
            target_options = _unpacked_as(row, target_options)
        if on_cpu and row is not None and len(names) > 1:
            bits = row.draft_bits(names[1])
            target_options, draft_options = with_draft_bits((target_options, draft_options), bits)
    options: Sequence[LoadOptions] = (target_options, draft_options)
    if not on_cpu:
        options = unpacked_on_a_gpu(options, [metadata.packed for metadata in models])
    if len(models) + (head is not None) < len(names):
        return Examined(shown, findings, [], None)
    loads: list[PlannedLoad] = []
    with stopping("precision", findings):
        loads = planned_loads(models, head, options, device)
    findings += pair_findings(models, suggested_draft(shown[0]))
    if head is not None:
        findings += head_findings(head, models[0])
    parts = [*meta_pair(models[:1]).parts]
    if len(names) == 2:
        parts = ["head" if head else "draft", *parts]
    return Examined(shown, findings, loads, parts)


def _unpacked_as(row: NamedPair, options: LoadOptions) -> LoadOptions:
    """The target's options, with the dtype in which its row unpacks its file by default."""
    is_told = options.dtype is not None or options.quantize is not None
    if row.target_dtype is None or is_told:
        return options
    return replace(options, dtype=DTYPES[row.target_dtype])


def _read(name: str, reads: bool, findings: list[Finding]) -> ModelMetadata | None:
    """Read the metadata of one model, and add the findings about it to `findings`. reads: whether
    GGUF files of known kinds can be read (`models.reads_files`)."""
    path = local_file(name)
    if path is not None:
        with stopping("file", findings):
            return _read_file(path, reads, findings)
        return None
    with stopping("model", findings):
        metadata = read_metadata(name)
        Pair(metadata.model, None, metadata.tokenizer)  # which refuses what cannot race
        findings += file_findings(metadata.source, hub_files(metadata.source))
        findings += rollback_findings(metadata)
        return metadata
    return None


def _read_file(path: Path, reads: bool, findings: list[Finding]) -> ModelMetadata:
    """Read the metadata of a GGUF file. Raises `PairError`."""
    header = checked_gguf(path)
    stays = reads and can_stay_packed(header)
    metadata = packed_metadata(header) if stays else header_metadata(header)
    findings += packed_findings(header, metadata.parameters, stays)
    return metadata
