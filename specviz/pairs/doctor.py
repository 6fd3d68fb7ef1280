"""The doctor: reports whether two models can race on this machine, before any download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..core.kinds import resolved
from ..errors import PairError
from ..kinds import drafters_for
from .closed import closed_sentence
from .findings import (
    Finding,
    Level,
    access_findings,
    chat_findings,
    context_findings,
    file_findings,
    good,
    memory_findings,
    mixture_findings,
    packed_findings,
    rollback_findings,
    size_findings,
    stop,
    vocabulary_findings,
)
from .heads.findings import examined_head, head_findings, own_layers_findings
from .heads.kinds import AnyMetadata, is_head
from .hub import find_source, gated_sentence, hub_listing
from .load import source_of
from .memory import DeviceMemory, PlannedLoad, device_memory
from .metadata import ModelMetadata, read_metadata
from .models import meta_pair, model_names, planned_loads, row_of
from .pair import Pair
from .precision import checked_device, checked_dtype, checked_quantization
from .sizes import DRAFTING_LANES, LANES, QUANTIZED, TYPICAL_CONTEXT, MemoryNeed
from .spec import NO_DRAFT, ModelsSpec, NamedSpec, PairSpec, local_file, parse_pair
from .table import HeadFacts, known_head, known_model, suggested_draft, wheel_file
from .truncated import has_early_exits
from .weights import LoadOptions

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
    memory: dict[str, int]
    free: int
    suggested: str | None
    drafters: tuple[str, ...] = ()

    @property
    def verdict(self) -> Level:
        """The worst level of all findings."""
        levels = {finding.level for finding in self.findings}
        worst: tuple[Level, ...] = ("stop", "warning")
        return next((level for level in worst if level in levels), "good")

    @property
    def summary(self) -> str:
        """The verdict as a sentence."""
        return (
            f"{self.target} {f'with {self.draft} ' if self.draft else ''}" + VERDICTS[self.verdict]
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {
            "target": self.target,
            "draft": self.draft,
            "verdict": self.verdict,
            "summary": self.summary,
            "findings": [vars(finding) for finding in self.findings],
            "memory": self.memory,
            "free": self.free,
            "suggested_draft": self.suggested,
            "drafters": self.drafters,
        }


def stopped(target: str, draft: str | None, topic: str, sentence: str) -> Report:
    """The report on a pair of which nothing else can be found out."""
    return Report(target, draft, tuple(stop(topic, sentence)), {}, 0, None)


def examine(
    target: str,
    draft: str | None = None,
    *,
    dtype: str | torch.dtype | None = None,
    quantize: str | None = None,
    draft_quantize: str | None = None,
    device: str | torch.device | None = None,
    free: int | None = None,
    tokens: int = TYPICAL_CONTEXT,
) -> Report:
    """Findings about a target and a draft or head, each a hub id or a local folder.

    Without `draft`, `target` is the name of a pair, as for `load_pair`, or a target alone. Reads
    configs, tokenizers and headers of weights, and runs no code of a repository. dtype, quantize,
    draft_quantize, device: as for `load_pair`. free: free bytes, instead of those of the device.
    tokens: the length of the text in the caches.
    """
    names = _names(target, draft)
    if closed := closed_sentence(names):
        return stopped(names[0], names[1] if len(names) > 1 else None, "closed", closed)
    shown = [shown_model(name) for name in names]
    suggested = suggested_draft(shown[0])
    devices = device_memory(checked_device(device))
    if free is not None:
        devices = [DeviceMemory(devices[0].device, free)]
    found: list[Finding] = []
    has_head = len(names) == 2 and (known_head(names[1]) is not None or is_head(names[1]))
    models = [m for name in names[: 1 if has_head else 2] if (m := _read(name, found))]
    head = examined_head(names[1], models[0] if models else None, found) if has_head else None
    options = _options(dtype, (quantize, draft_quantize), found)
    loads: list[PlannedLoad] = []
    drafters: tuple[str, ...] = ()
    if len(models) + (head is not None) == len(names):
        loads = planned_loads(models, head, options, devices[0].device) if options else []
        found += _fit(models, suggested) + head_findings(head, models[0])
        drafters = _drafters(models, head)
    else:
        found += _memory_by_table(names, options, devices, tokens)
    if loads:
        found += memory_findings(loads, devices, tokens)
    if models and not has_head:
        found += own_layers_findings(models[0])
    if len(names) == 1:
        found += _suggestion(suggested)
    return Report(
        shown[0],
        shown[1] if len(shown) > 1 else None,
        tuple(found),
        _memory([load.need for load in loads], tokens),
        sum(memory.free for memory in devices),
        suggested,
        drafters,
    )


def examine_pair(spec: PairSpec, **options: Any) -> Report:
    """The report on what a parsed name stands for, with the options of `examine`."""
    report: Report = resolved(source_of(spec).examine)(spec, **options)
    return report


def examine_models(spec: NamedSpec | ModelsSpec, **options: Any) -> Report:
    """The same for models of the hub or of this machine."""
    return examine(str(spec), **options)


def _options(
    dtype: str | torch.dtype | None, quantize: Sequence[str | None], found: list[Finding]
) -> list[LoadOptions]:
    """How target and draft would be loaded; if that is not possible, adds a finding to `found`."""
    try:
        return [LoadOptions(checked_dtype(dtype), checked_quantization(q)) for q in quantize]
    except PairError as error:
        found += stop("precision", str(error))
        return []


def _memory(needs: list[MemoryNeed], tokens: int) -> dict[str, int]:
    return {
        name: sum(need.bytes(name, tokens) for need in needs)
        for name in ("float32", "bfloat16", *QUANTIZED)
        if needs
    }


def _names(target: str, draft: str | None) -> list[str]:
    if draft is not None:
        return [target.strip()] + ([draft.strip()] if draft.strip() != NO_DRAFT else [])
    try:
        spec = parse_pair(target)
    except PairError:  # not the name of a pair, so it is the name of a model
        return [target.strip()]
    if not isinstance(spec, NamedSpec | ModelsSpec):
        return [target.strip()]
    one, other = model_names(spec)
    row = row_of(spec)
    if row is not None and row.wheel is not None:
        one = str(wheel_file(row) or one)
    return [one, other] if other else [one]


def shown_model(name: str) -> str:
    """A model's name as a report tells it."""
    try:
        return find_source(name).shown
    except PairError:
        return name.rstrip("/").rpartition("/")[2] if name.startswith("/") else name


def _read(name: str, found: list[Finding]) -> ModelMetadata | None:
    """The metadata of one model; adds the findings about this model alone to `found`."""
    if (file := local_file(name)) is not None:
        return _read_packed(file, found)
    try:
        source = find_source(name)
        listing = hub_listing(source)
    except PairError as error:
        found += stop("name", str(error))
        return None
    try:
        metadata = read_metadata(name)
        Pair(metadata.model, None, metadata.tokenizer)
    except PairError as error:
        if str(error) == gated_sentence(source):
            found += stop("access", str(error))
            return None
        found += access_findings(source, listing, readable=False)
        found += stop("model", str(error))
        return None
    found += access_findings(source, listing, readable=True)
    found += file_findings(source, listing)
    found += rollback_findings(metadata)
    return metadata


def _read_packed(file: Path, found: list[Finding]) -> ModelMetadata | None:
    """As `_read`, of a GGUF file: its header, and what transformers makes of it."""
    from .unpack import packed_metadata, unpacked_bytes

    try:
        header, metadata = packed_metadata(file)
    except PairError as error:
        found += stop("file", str(error))
        return None
    found += packed_findings(header, unpacked_bytes(header))
    return metadata


def _fit(models: list[ModelMetadata], suggested: str | None) -> list[Finding]:
    """The findings about the target and the draft together."""
    target = models[0]
    alone = Pair(target.model, None, target.tokenizer)
    found: list[Finding] = []
    draft = None
    if len(models) == 2:
        draft = Pair(models[1].model, None, models[1].tokenizer)
        hint = suggested if suggested != models[1].source.name else None
        try:
            found += vocabulary_findings(meta_pair(models), hint or "")
        except PairError as error:
            better = f" {hint} is a known draft for this target." if hint else ""
            found += stop("tokenizer", str(error) + better)
        found += size_findings(models, hint or "")
    found += mixture_findings(target)
    found += context_findings(models)
    return found + chat_findings(alone, draft)


def _memory_by_table(
    names: list[str], options: list[LoadOptions], devices: list[DeviceMemory], tokens: int
) -> list[Finding]:
    """Memory according to the table of pairs, for models whose files cannot be read yet."""
    facts = [known for name in names if (known := known_model(name) or known_head(name))]
    if len(facts) < len(names) or not all(one.sized for one in facts):
        return []
    target, cpu = facts[0], devices[0].device.type == "cpu"
    usual = "float32" if cpu or isinstance(target, HeadFacts) else target.dtype
    loads = [
        PlannedLoad(
            one.name.rpartition("/")[2],
            one.need(LANES if one is target else DRAFTING_LANES),
            how.quantize or str(how.dtype or usual).removeprefix("torch."),
        )
        for one, how in zip(facts, options or [LoadOptions()] * 2, strict=False)
    ]
    return memory_findings(loads, devices, tokens, "by the table of pairs, ")


def _drafters(models: list[ModelMetadata], head: AnyMetadata | None) -> tuple[str, ...]:
    held = {
        "draft": len(models) > 1,
        "head": head is not None,
        "layers": has_early_exits(models[0].model),
    }
    return drafters_for([name for name, is_there in held.items() if is_there])


def _suggestion(suggested: str | None) -> list[Finding]:
    if suggested:
        how = f"{suggested} is a known draft for this target."
    else:
        how = "the drafters 'ngram' and 'early-exit' need none."
    return good("draft", f"no draft was named: {how}")
