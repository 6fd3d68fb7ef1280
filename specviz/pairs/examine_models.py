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
from ..files.metadata import HeadMetadata, ModelMetadata, read_metadata
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
    model_names = names
    if has_head:
        model_names = names[:1]
    models = _read_models(model_names, reads, findings)
    are_all_read = len(models) == len(model_names)
    shown = [named_source(name).shown for name in names]
    if are_all_read and not has_head:
        shown = [metadata.source.shown for metadata in models]
    head: HeadMetadata | None = None
    if has_head:
        target: ModelMetadata | None = None
        if models:
            target = models[0]
        head = examined_head(names[1], target, findings)
        are_all_read = are_all_read and head is not None
    options: Sequence[LoadOptions] = (LoadOptions(), LoadOptions())
    with stopping("precision", findings):
        options = checked_options(**precision)
        if on_cpu and row is not None:
            options = _with_defaults(options, row, names)
    if not are_all_read:
        return Examined(shown, findings, [], None)
    if not on_cpu:
        headers = [metadata.packed for metadata in models]
        options = unpacked_on_a_gpu(options, headers)
    loads: list[PlannedLoad] = []
    with stopping("precision", findings):
        loads = planned_loads(models, head, options, device)
    findings += pair_findings(models, suggested_draft(shown[0]))
    if head is not None:
        findings += head_findings(head, models[0])
    return Examined(shown, findings, loads, _parts(models, head))


def _parts(models: list[ModelMetadata], head: HeadMetadata | None) -> list[str]:
    """The parts of a pair that can draft, as `Pair.parts` has them."""
    parts_of_target = meta_pair(models[:1]).parts
    if head is not None:
        return ["head", *parts_of_target]
    if len(models) == 2:
        return ["draft", *parts_of_target]
    return [*parts_of_target]


def _with_defaults(
    options: Sequence[LoadOptions], row: NamedPair, names: Sequence[str]
) -> Sequence[LoadOptions]:
    """The options of a target and a draft, with the row's defaults for a processor where nothing
    else is asked for: the dtype to which the target's file is unpacked, and the draft's bits."""
    target, draft = options
    has_own_precision = target.dtype is not None or target.quantize is not None
    if row.target_dtype is not None and not has_own_precision:
        target = replace(target, dtype=DTYPES[row.target_dtype])
    if len(names) == 1:
        return (target, draft)
    return with_draft_bits((target, draft), row.draft_bits(names[1]))


def _read_models(names: Sequence[str], reads: bool, findings: list[Finding]) -> list[ModelMetadata]:
    """Read the metadata of models, as `_read` does, without those that cannot be read."""
    models = []
    for name in names:
        metadata = _read(name, reads, findings)
        if metadata is not None:
            models.append(metadata)
    return models


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
    stays_packed = reads and can_stay_packed(header)
    if stays_packed:
        metadata = packed_metadata(header)
    else:
        metadata = header_metadata(header)
    findings += packed_findings(header, metadata.parameters, stays_packed)
    return metadata
