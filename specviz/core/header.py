"""Make the header of a race: its models, machine and versions."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from ..base.version import __version__
from .drafter_choice import EarlierTexts
from .engine import RemoteModel
from .events import Header
from .lanes import BASELINE, Lane
from .messages import Messages
from .model_facts import context_length, parameter_count, weights_form
from .pair import Pair
from .registry import drafter_kind, verdict_kind
from .settings import Settings
from .types import Mode, Prefilled

if TYPE_CHECKING:
    from .protocols import LanguageModel
    from .states import DraftHead


def header_of(
    pair: Pair,
    prompt_ids: list[int],
    settings: dict[Lane, Settings],
    mode: Mode,
    prefilled: dict[Lane, Prefilled],
    memory: EarlierTexts = (),
    messages: Messages = (),
) -> Header:
    """Make the header of a race after the prefill of its lanes.

    memory: the earlier texts; the header has their number, never the texts. messages: the turns in
    the chat template; none if the prompt is plain text.
    """
    lanes = {lane: lane_settings for lane, lane_settings in settings.items() if lane != BASELINE}
    drafts = {
        lane: _draft_described(pair, prefilled[lane], lane_settings.drafter)
        for lane, lane_settings in lanes.items()
    }
    first_lane = next(iter(lanes))
    target_engine = prefilled[first_lane].engines["target"]
    prompt = str(pair.tokenizer.decode(prompt_ids))
    header = Header(
        prompt=prompt,
        prompt_ids=tuple(prompt_ids),
        lanes=lanes,
        drafts=drafts,
        target=described(pair.target, target_engine, context_length(pair.target)),
        device=_device_name(pair),
        dtype=weights_form(pair.target),
        versions=_versions(pair.device) | _packages(lanes.values()),
        threads=torch.get_num_threads(),
        lane_threads={lane: lane_prefill.threads for lane, lane_prefill in prefilled.items()},
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        prefill_seconds={lane: lane_prefill.seconds for lane, lane_prefill in prefilled.items()},
        mode=mode,
        processor=_processor_name(),
        memory=_memory_size(memory),
        question=_question_in(prompt, messages),
        messages=messages if len(messages) > 1 else None,
    )
    if isinstance(pair.target, RemoteModel):
        return replace(header, **pair.target.header_fields(prompt_ids))
    return header


def _memory_size(memory: EarlierTexts) -> dict[str, int] | None:
    if not memory:
        return None
    return {"texts": len(memory), "tokens": sum(map(len, memory))}


def _question_in(prompt: str, messages: Messages) -> str | None:
    """The last turn as written in the prompt; None without turns, or if it is not there."""
    if not messages:
        return None
    question = messages[-1].content.strip()
    if not question or question not in prompt:  # a tokenizer may have changed its letters
        return None
    return question


def _draft_described(pair: Pair, prefilled: Prefilled, drafter: str) -> dict[str, Any] | None:
    """A header's entry for a lane's draft model; None if no model drafts."""
    engine = prefilled.engines.get("draft")
    if engine is None:
        return None
    kind = drafter_kind(drafter)
    if kind.described is not None:
        return kind.described(pair, engine, prefilled.layers)
    description = described(pair.draft_model, engine, context_length(pair.draft_model))
    if pair.shared:
        description["shared"] = len(pair.shared.pairs)
    return description


def _packages(settings: Iterable[Settings]) -> dict[str, str]:
    """The versions of packages with kinds that are not ours, by package name."""
    packages: list[str | None] = []
    for lane_settings in settings:
        packages.append(drafter_kind(lane_settings.drafter).package)
        packages.append(verdict_kind(lane_settings.effective_verdict).package)
    versions = {}
    for package in packages:
        if not package:
            continue
        name, _, version = package.rpartition(" ")
        if name:
            versions[name] = version
        else:
            versions[package] = "unknown"
    return versions


def _versions(device: torch.device) -> dict[str, str]:
    versions = {
        "specviz": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
    return versions


def model_name(model: LanguageModel | DraftHead) -> str:
    """The name of a model in a header."""
    name = str(getattr(model, "name_or_path", "") or type(model).__name__)
    path = Path(name)
    if path.is_absolute() or path.is_dir():
        return path.name  # the model is in a folder: whole paths are private
    return name


def described(model: LanguageModel | DraftHead, engine: str, context: int | None) -> dict[str, Any]:
    """A header's entry for a model. engine: the name of the one that runs it. context: its length
    in tokens, None without a limit."""
    commit = getattr(model.config, "_commit_hash", None)
    gguf_digest = getattr(model.config, "gguf_digest", None)
    description = {
        "name": model_name(model),
        "parameters": parameter_count(model),
        "form": engine,
        "revision": commit or gguf_digest,
        "context": context,
    }
    packed_as = getattr(model, "packed_as", None)
    if packed_as:
        description["weights"] = packed_as
    products = getattr(model, "products", None)
    if products:
        description["products"] = products
    return description


def _device_name(pair: Pair) -> str:
    device = pair.device
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return {"cpu": "CPU", "mps": "Apple GPU"}.get(device.type, device.type)


@cache
def _processor_name() -> str:
    # On Linux Python knows only the architecture; the kernel knows the name.
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        field, _, value = line.partition(":")
        if field.startswith("model name") and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()
