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
from .engine import ModelElsewhere
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
    asked: Messages = (),
) -> Header:
    """Make the header of a race after the prefill of its lanes.

    memory: the earlier texts; the header has their number, never the texts. asked: the turns in the
    chat template; none if the prompt is plain text.
    """
    lanes = {lane: each for lane, each in settings.items() if lane != BASELINE}
    drafts = {
        lane: _draft_described(pair, prefilled[lane], each.drafter) for lane, each in lanes.items()
    }
    first_lane = next(iter(lanes))
    target_engine = prefilled[first_lane].engines["target"]
    prompt = str(pair.tokenizer.decode(prompt_ids))
    question = asked[-1].content.strip() if asked else ""
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
        lane_threads={lane: read.threads for lane, read in prefilled.items()},
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        prefill_seconds={lane: read.seconds for lane, read in prefilled.items()},
        mode=mode,
        processor=_processor_name(),
        memory={"texts": len(memory), "tokens": sum(map(len, memory))} if memory else None,
        # A tokenizer may have changed its letters.
        question=question if question and question in prompt else None,
        messages=asked if len(asked) > 1 else None,
    )
    if isinstance(pair.target, ModelElsewhere):
        return replace(header, **pair.target.header_fields(prompt_ids))
    return header


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
    packages = []
    for each in settings:
        packages += [drafter_kind(each.drafter).package, verdict_kind(each.rule).package]
    versions = {}
    for package in filter(None, packages):
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
    # A model loaded from a folder is named by the folder: whole paths are private.
    name = str(getattr(model, "name_or_path", "") or type(model).__name__)
    return Path(name).name if Path(name).is_absolute() or Path(name).is_dir() else name


def described(model: LanguageModel | DraftHead, engine: str, context: int | None) -> dict[str, Any]:
    """A header's entry for a model. engine: the name of the one that runs it. context: its length
    in tokens, None without a limit."""
    config = model.config
    description = {
        "name": model_name(model),
        "parameters": parameter_count(model),
        "form": engine,
        "revision": getattr(config, "_commit_hash", None) or getattr(config, "gguf_digest", None),
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
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
