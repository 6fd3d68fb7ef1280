"""Can these two models race each other here? Answered before any weights are fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import PairError
from .catalogue import known_model, suggested_draft
from .findings import (
    Finding,
    Level,
    access_findings,
    chat_findings,
    context_findings,
    file_findings,
    memory_findings,
    mixture_findings,
    rollback_findings,
    size_findings,
    table_findings,
    vocabulary_findings,
)
from .hub import find_source, gated_sentence, hub_listing
from .load import NO_DRAFT, blueprint_pair, model_names, pair_loads
from .memory import Need, Room, rooms
from .metadata import Blueprint, read_blueprint
from .pair import Pair
from .sizes import QUANTIZED, TYPICAL_CONTEXT
from .weights import Load, Way, checked_dtype, checked_quantization

MARKS: dict[Level, str] = {"good": "✓", "warning": "!", "stop": "✗"}
VERDICTS: dict[Level, str] = {
    "good": "ready to race.",
    "warning": "can race; read the warnings first.",
    "stop": "cannot race: see what to do above.",
}


@dataclass(frozen=True)
class Report:
    """All findings about a pair, in the order of the reading.

    memory: bytes of both models with caches, by precision; empty if they could not be read.
    free: bytes that the device, or all GPUs together, can take. suggested: a draft's hub id.
    """

    target: str
    draft: str | None
    findings: tuple[Finding, ...]
    memory: dict[str, int]
    free: int
    suggested: str | None

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
        """The report as JSON has it."""
        return {
            "target": self.target,
            "draft": self.draft,
            "verdict": self.verdict,
            "summary": self.summary,
            "findings": [vars(finding) for finding in self.findings],
            "memory": self.memory,
            "free": self.free,
            "suggested_draft": self.suggested,
        }


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
    """Findings about a target and a draft, each a hub id or a local folder.

    Without `draft`, `target` may be a pair's name as `load_pair` takes it, or a target alone.
    Reads configs, tokenizers and headers of weights, and runs no code of a repository. The
    other arguments are those of `load_pair`; free: bytes, instead of what the device has.
    tokens: of the text that the caches hold.
    """
    names = _names(target, draft)
    shown = [_shown(name) for name in names]
    suggested = suggested_draft(shown[0])
    place = torch.device(device) if device is not None else None
    spaces = rooms(place)
    if free is not None:
        spaces = [Room(spaces[0].device, free)]
    found: list[Finding] = []
    plans = [plan for name in names if (plan := _read(name, found))]
    ways = _ways(dtype, (quantize, draft_quantize), found)
    loads: list[Load] = []
    if len(plans) == len(names):
        loads = pair_loads(plans, ways, spaces[0].device) if ways else []
        found += _fit(plans, suggested)
    found += memory_findings(loads, spaces, tokens) if loads else []
    if len(names) == 1:
        found.append(_suggestion(suggested))
    memory = _memory([load.need for load in loads], tokens)
    if len(plans) < len(names):
        facts = [known for name in names if (known := known_model(name))]
        if len(facts) == len(names):
            found += table_findings(facts, ways or [Way(), Way()], spaces, tokens)
    return Report(
        shown[0],
        shown[1] if len(shown) > 1 else None,
        tuple(found),
        memory,
        sum(room.free for room in spaces),
        suggested,
    )


def _ways(
    dtype: str | torch.dtype | None, quantize: Sequence[str | None], found: list[Finding]
) -> list[Way]:
    """How target and draft would be loaded; none, and a finding more, if that cannot be."""
    try:
        return [Way(checked_dtype(dtype), checked_quantization(q)) for q in quantize]
    except PairError as error:
        found.append(Finding("stop", "precision", str(error)))
        return []


def _memory(needs: list[Need], tokens: int) -> dict[str, int]:
    return {
        name: sum(need.bytes(name, tokens) for need in needs)
        for name in ("float32", "bfloat16", *QUANTIZED)
        if needs
    }


def _names(target: str, draft: str | None) -> list[str]:
    if draft is not None:
        return [target.strip()] + ([draft.strip()] if draft.strip() != NO_DRAFT else [])
    try:
        one, other = model_names(target)
    except PairError:  # not a pair's name, so a model's
        return [target.strip()]
    return [one, other] if other else [one]


def _shown(name: str) -> str:
    try:
        return find_source(name).shown
    except PairError:
        return name.rstrip("/").rpartition("/")[2] if name.startswith("/") else name


def _read(name: str, found: list[Finding]) -> Blueprint | None:
    """The blueprint of one model and what there is to say about it alone."""
    try:
        source = find_source(name)
        listing = hub_listing(source)
    except PairError as error:
        found.append(Finding("stop", "name", str(error)))
        return None
    try:
        plan = read_blueprint(name)
        Pair(plan.model, None, plan.tokenizer)
    except PairError as error:
        if str(error) == gated_sentence(source):
            found.append(Finding("stop", "access", str(error)))
            return None
        found += access_findings(source, listing, readable=False)
        found.append(Finding("stop", "model", str(error)))
        return None
    found += access_findings(source, listing, readable=True)
    found += file_findings(source, listing)
    found += rollback_findings(plan)
    return plan


def _fit(plans: list[Blueprint], suggested: str | None) -> list[Finding]:
    """What there is to say about the target and the draft together."""
    target = plans[0]
    alone = Pair(target.model, None, target.tokenizer)
    found: list[Finding] = []
    draft = None
    if len(plans) == 2:
        draft = Pair(plans[1].model, None, plans[1].tokenizer)
        hint = suggested if suggested != plans[1].source.name else None
        try:
            found += vocabulary_findings(blueprint_pair(plans))
        except PairError as error:
            better = f" {hint} is one for this target." if hint else ""
            found.append(Finding("stop", "tokenizer", str(error) + better))
        found += size_findings(plans, hint or "")
    found += mixture_findings(target)
    found += context_findings(plans)
    return found + chat_findings(alone, draft)


def _suggestion(suggested: str | None) -> Finding:
    if suggested:
        said = f"no draft was named: {suggested} is a known one for this target."
    else:
        said = "no draft was named: the drafters 'ngram' and 'early-exit' need none."
    return Finding("good", "draft", said)
