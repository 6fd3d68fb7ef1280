"""The doctor: report whether two models can race on this machine, before any download."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.errors import PairError
from ..core.registry import drafter_kind, drafters_for
from ..files.findings import Examined, good, memory_findings, stop
from ..files.memory import (
    QUANTIZED,
    TYPICAL_CONTEXT,
    Device,
    DeviceMemory,
    PlannedLoad,
    Processor,
    device_memory,
)
from .closed import closed_sentence
from .examine_headers import examined_headers
from .pair_files import named_files
from .report import Report, shown_model
from .spec import (
    NO_DRAFT,
    ModelsSpec,
    NamedSpec,
    OperatorSpec,
    PairSpec,
    ServedSpec,
    WatchedSpec,
    operator_spec,
    parse_pair,
)
from .table import NamedPair, suggested_draft

if TYPE_CHECKING:
    import torch


def examine(
    target: str | NamedSpec | ModelsSpec,
    draft: str | None = None,
    *,
    device: str | torch.device | None = None,
    free: int | None = None,
    tokens: int = TYPICAL_CONTEXT,
    **precision: Any,
) -> Report:
    """Examine a target and a draft or head, each a hub id or a local folder.

    Without `draft`, `target` is a pair, by its name as for `load_pair` or parsed, or a target
    alone. Reads configs, tokenizers and headers of weights, and runs no code of a repository.
    dtype, quantize, draft_quantize, products, device: as for `load_pair`. free: free bytes, if not
    the device's own. tokens: the length of the text in the caches.
    """
    names, row = _names(target, draft)
    draft_name: str | None = None
    if closed := closed_sentence(names):
        if len(names) > 1:
            draft_name = shown_model(names[1])
        finding = stop("closed", closed)
        return Report(names[0], draft_name, (finding,))
    devices = device_memory(_device(device))
    if free is not None:
        devices = [DeviceMemory(devices[0].device, free)]
    examined = _examined(names, row, devices[0].device, precision)
    target_name = examined.shown[0]
    if len(examined.shown) > 1:
        draft_name = examined.shown[1]
    findings = [*examined.findings]
    suggested = suggested_draft(target_name)
    if examined.loads:
        findings += memory_findings(examined.loads, devices, tokens)
    if draft_name is None:
        advice = f"{_without_draft()} need none"
        if suggested:
            advice = f"{suggested} is a known draft for this target"
        findings.append(good("draft", f"no draft was named: {advice}."))
    return Report(
        target=target_name,
        draft=draft_name,
        findings=tuple(findings),
        memory=_bytes_by_precision(examined.loads, tokens),
        free=sum(memory.free for memory in devices),
        suggested=suggested,
        drafters=_drafters(examined, row),
    )


def _drafters(examined: Examined, row: NamedPair | None) -> tuple[str, ...]:
    """The drafters that a pair offers; none if that is unknown."""
    if examined.parts is None:
        return ()
    if row is None:
        return drafters_for(examined.parts)
    return drafters_for(examined.parts, row.drafter)


def _without_draft() -> str:
    """The page's labels of drafters that need no model: "n-grams, counts and early exit"."""
    labels = []
    for name in drafters_for(["layers"]):
        kind = drafter_kind(name)
        if kind.drafts and kind.package is None:
            labels.append(kind.label)
    *labels, last = labels
    return f"{', '.join(labels)} and {last}"


def _examined(
    names: list[str], row: NamedPair | None, device: Device, precision: dict[str, Any]
) -> Examined:
    if device.type == "cpu":
        examined = examined_headers(names, row, precision)
        if examined is not None:
            return examined
    from .examine_models import examined_models  # which imports torch and transformers

    return examined_models(names, row, device, precision)


def _device(device: str | torch.device | None) -> Device | None:
    """The device of this name; None is the best one. Raises `PairError`."""
    if device is None:
        return None
    if str(device) == "cpu":
        return Processor()
    from ..files.devices import checked_device

    return checked_device(device)


def _bytes_by_precision(loads: list[PlannedLoad], tokens: int) -> dict[str, int]:
    """Bytes of all models in each precision; empty if nothing is loaded."""
    if not loads:
        return {}
    sizes = {}
    for precision in ("float32", "bfloat16", *QUANTIZED):
        sizes[precision] = sum(load.need.bytes(precision, tokens) for load in loads)
    return sizes


def examine_pair(spec: PairSpec, **options: Any) -> Report:
    """Examine a parsed pair with the options of `examine`."""
    if isinstance(spec, OperatorSpec):
        spec = operator_spec()
    if isinstance(spec, ServedSpec | WatchedSpec):
        from .served import examine_server

        return examine_server(spec)
    return examine(spec, **options)


def _names(
    target: str | NamedSpec | ModelsSpec, draft: str | None
) -> tuple[list[str], NamedPair | None]:
    """The names of the models, and the table's row for their pair."""
    if isinstance(target, str):
        name = target.strip()
        if draft is not None and draft.strip() == NO_DRAFT:
            return [name], None
        if draft is not None:
            return [name, draft.strip()], None
        try:
            spec: PairSpec | None = parse_pair(name)
        except PairError:  # not the name of a pair, so it is the name of a model
            spec = None
        if not isinstance(spec, NamedSpec | ModelsSpec):
            return [name], None
        target = spec
    target_name, draft_name, row = named_files(target)
    if not draft_name:
        return [target_name], row
    return [target_name, draft_name], row
