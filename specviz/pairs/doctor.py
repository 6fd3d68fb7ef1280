"""The doctor: reports whether two models can race on this machine, before any download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import torch

from ..core.model_facts import parameter_count
from ..core.pair import Pair
from ..core.registry import drafters_for
from ..errors import PairError
from ..sides.heads.loading import examined_head, head_findings, is_head
from .findings import (
    Finding,
    Level,
    file_findings,
    good,
    memory_findings,
    packed_findings,
    pair_findings,
    rollback_findings,
    stop,
    stopping,
)
from .hub import closed_sentence, hub_files
from .memory import QUANTIZED, TYPICAL_CONTEXT, DeviceMemory, PlannedLoad, device_memory
from .metadata import ModelMetadata, read_metadata
from .models import meta_pair, named_files, planned_loads
from .spec import (
    NO_DRAFT,
    ModelsSpec,
    NamedSpec,
    OperatorSpec,
    PairSpec,
    ServedSpec,
    WatchedSpec,
    local_file,
    local_path,
    operator_spec,
    parse_pair,
)
from .table import NamedPair, suggested_draft
from .weights import DTYPES, LoadOptions, ModelSource, checked_device, checked_options

MARKS: dict[Level, str] = {"good": "✓", "warning": "!", "stop": "✗"}
VERDICTS: dict[Level, str] = {
    "good": "ready to race.",
    "warning": "can race; read the warnings first.",
    "stop": "cannot race: see what to do above.",
}


@dataclass(frozen=True)
class Report:
    """All findings about a pair, in the order in which they were made.

    target, draft: names as shown. memory: bytes of both models with caches, by precision; empty
    if the models could not be read. free: free bytes of the device, or of all GPUs together.
    suggested: the hub id of a known draft for the target, or None. drafters: those that the pair
    offers, as `Pair.drafters` has them; empty if the models could not be read.
    """

    target: str
    draft: str | None
    findings: tuple[Finding, ...]
    memory: dict[str, int] = field(default_factory=dict)
    free: int = 0
    suggested: str | None = None
    drafters: tuple[str, ...] = ()

    @property
    def verdict(self) -> Level:
        """The worst level of all findings."""
        order: Sequence[Level] = get_args(Level)
        return max((finding.level for finding in self.findings), key=order.index, default="good")

    @property
    def summary(self) -> str:
        """The verdict as a sentence."""
        beside = f" with {self.draft}" if self.draft else ""
        return f"{self.target}{beside} {VERDICTS[self.verdict]}"

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {
            "target": self.target,
            "draft": self.draft,
            "verdict": self.verdict,
            "summary": self.summary,
            "memory": self.memory,
            "free": self.free,
            "drafters": self.drafters,
            "findings": [vars(finding) for finding in self.findings],
            "suggested_draft": self.suggested,
        }


def examine(
    target: str | NamedSpec | ModelsSpec,
    draft: str | None = None,
    *,
    device: str | torch.device | None = None,
    free: int | None = None,
    tokens: int = TYPICAL_CONTEXT,
    **precision: Any,
) -> Report:
    """Findings about a target and a draft or head, each a hub id or a local folder.

    Without `draft`, `target` is a pair, by its name as for `load_pair` or parsed, or a target
    alone. Reads configs, tokenizers and headers of weights, and runs no code of a repository.
    dtype, quantize, draft_quantize, device: as for `load_pair`. free: free bytes, instead of those
    of the device. tokens: the length of the text in the caches.
    """
    names, row = _names(target, draft)
    shown = [shown_model(name) for name in names]
    beside = shown[1] if len(shown) > 1 else None
    if closed := closed_sentence(names):
        return Report(names[0], beside, (stop("closed", closed),))
    devices = device_memory(checked_device(device))
    if free is not None:
        devices = [DeviceMemory(devices[0].device, free)]
    findings: list[Finding] = []
    has_head = len(names) == 2 and local_file(names[1]) is None and is_head(names[1])
    on_cpu = devices[0].device.type == "cpu"
    models = []
    for name in names[:1] if has_head else names:
        metadata = _read(name, on_cpu, findings)
        if metadata is not None:
            models.append(metadata)
    if len(models) == len(names) and not has_head:
        shown = [metadata.source.shown for metadata in models]
        beside = shown[1] if len(shown) > 1 else None
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
    options = (target_options, draft_options)
    loads: list[PlannedLoad] = []
    suggested = suggested_draft(shown[0])
    drafters: tuple[str, ...] = ()
    if len(models) + (head is not None) == len(names):
        with stopping("precision", findings):
            loads = planned_loads(models, head, options, devices[0].device)
        findings += pair_findings(models, suggested)
        if head is not None:
            findings += head_findings(head, models[0])
        if loads:
            findings += memory_findings(loads, devices, tokens)
        parts = [*meta_pair(models[:1]).parts]
        if len(names) == 2:
            parts = ["head" if head else "draft", *parts]
        drafters = drafters_for(parts, row.drafter if row else None)
    if len(names) == 1:
        advice = "the drafters 'ngram' and 'early-exit' need none"
        if suggested:
            advice = f"{suggested} is a known draft for this target"
        findings.append(good("draft", f"no draft was named: {advice}."))
    return Report(
        target=shown[0],
        draft=beside,
        findings=tuple(findings),
        memory=_bytes_by_precision(loads, tokens),
        free=sum(memory.free for memory in devices),
        suggested=suggested,
        drafters=drafters,
    )


def _bytes_by_precision(loads: list[PlannedLoad], tokens: int) -> dict[str, int]:
    """Bytes of all models in each precision; empty if nothing is loaded."""
    if not loads:
        return {}
    return {
        precision: sum(load.need.bytes(precision, tokens) for load in loads)
        for precision in ("float32", "bfloat16", *QUANTIZED)
    }


def examine_pair(spec: PairSpec, **options: Any) -> Report:
    """The report on what a parsed name stands for, with the options of `examine`."""
    if isinstance(spec, OperatorSpec):
        spec = operator_spec()
    if isinstance(spec, ServedSpec | WatchedSpec):
        from .served import examine_server

        return examine_server(spec)
    return examine(spec, **options)


def _unpacked_as(row: NamedPair, options: LoadOptions) -> LoadOptions:
    """The options of the target of a row, which may unpack its file unless told otherwise."""
    is_told = options.dtype is not None or options.quantize is not None
    if row.target_dtype is None or is_told:
        return options
    return replace(options, dtype=DTYPES[row.target_dtype])


def _names(
    target: str | NamedSpec | ModelsSpec, draft: str | None
) -> tuple[list[str], NamedPair | None]:
    """The models, and the row of the table that has their pair."""
    if isinstance(target, str):
        name = target.strip()
        if draft is not None:
            draft = draft.strip()
            return [name] if draft == NO_DRAFT else [name, draft], None
        try:
            spec: PairSpec | None = parse_pair(name)
        except PairError:  # not the name of a pair, so it is the name of a model
            spec = None
        if not isinstance(spec, NamedSpec | ModelsSpec):
            return [name], None
        target = spec
    target_name, draft_name, row = named_files(target)
    return [target_name, draft_name] if draft_name else [target_name], row


def shown_model(name: str) -> str:
    """A model's name as a report tells it."""
    return ModelSource(name, local_path(name)).shown


def _read(name: str, on_cpu: bool, findings: list[Finding]) -> ModelMetadata | None:
    """The metadata of one model; adds the findings about this model alone to `findings`."""
    path = local_file(name)
    if path is not None:
        with stopping("file", findings):
            return _read_file(path, on_cpu, findings)
        return None
    with stopping("model", findings):
        metadata = read_metadata(name)
        Pair(metadata.model, None, metadata.tokenizer)  # which refuses what cannot race
        findings += file_findings(metadata.source, hub_files(metadata.source))
        findings += rollback_findings(metadata)
        return metadata
    return None


def _read_file(path: Path, on_cpu: bool, findings: list[Finding]) -> ModelMetadata:
    """The same of a GGUF file. Raises `PairError`."""
    from .packed import can_stay_packed, packed_metadata
    from .unpack import checked_gguf, header_metadata

    header = checked_gguf(path)
    stays = on_cpu and can_stay_packed(header)
    metadata = packed_metadata(header) if stays else header_metadata(header)
    findings += packed_findings(header, parameter_count(metadata.model), stays)
    return metadata
