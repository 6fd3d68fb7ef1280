"""What a race says of itself before its first round: models, machine, versions."""

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

from .._version import __version__
from ..lanes import BASELINE, Lane
from ..settings import Settings
from .drafting import EarlierTexts
from .engine import ModelElsewhere
from .events import Header
from .model_facts import context_length, parameter_count, weights_form
from .pair import Pair
from .registry import drafter_kind, verdict_kind
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
    question: str = "",
) -> Header:
    """The header of a race whose lanes have read the prompt.

    memory: the earlier texts, of which it says how many, never the texts. question: what was asked
    in a chat template; empty if the prompt is none.
    """
    lanes = {lane: own for lane, own in settings.items() if lane != BASELINE}
    drafts = {
        lane: _draft_described(pair, prefilled[lane], own.drafter) for lane, own in lanes.items()
    }
    first, prompt = next(iter(lanes)), str(pair.tokenizer.decode(prompt_ids))
    header = Header(
        prompt=prompt,
        prompt_ids=tuple(prompt_ids),
        lanes=lanes,
        drafts=drafts,
        target=described(
            pair.target, prefilled[first].forms["target"], context_length(pair.target)
        ),
        device=_device_name(pair),
        dtype=weights_form(pair.target),
        versions=_versions(pair.device) | _packages(lanes.values()),
        threads=torch.get_num_threads(),
        lane_threads={lane: first.threads for lane, first in prefilled.items()},
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        prefill_seconds={lane: first.seconds for lane, first in prefilled.items()},
        mode=mode,
        processor=_processor_name(),
        memory={"texts": len(memory), "tokens": sum(map(len, memory))} if memory else None,
        # A tokenizer may have changed its letters.
        question=question if question and question in prompt else None,
    )
    if isinstance(pair.target, ModelElsewhere):
        return replace(header, **pair.target.header_fields(prompt_ids))
    return header


def _draft_described(pair: Pair, prefilled: Prefilled, drafter: str) -> dict[str, Any] | None:
    form, kind = prefilled.forms.get("draft"), drafter_kind(drafter)
    if form is None:
        return None
    if kind.described is not None:
        return kind.described(pair, form, prefilled.layers)
    found = described(pair.draft_model, form, context_length(pair.draft_model))
    return found | ({"shared": len(pair.shared.pairs)} if pair.shared else {})


def _packages(settings: Iterable[Settings]) -> dict[str, str]:
    """The packages, by name, of kinds that are not ours, with their versions."""
    kinds = [k for own in settings for k in (drafter_kind(own.drafter), verdict_kind(own.rule))]
    parts = [kind.package.rpartition(" ") for kind in kinds if kind.package]
    return {name or version: version if name else "unknown" for name, _, version in parts}


def _versions(device: torch.device) -> dict[str, str]:
    versions = {
        "specviz": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }
    return versions | ({"cuda": str(torch.version.cuda)} if device.type == "cuda" else {})


def model_name(model: LanguageModel | DraftHead) -> str:
    """The name of a model in a header."""
    # A model loaded from a folder is named by the folder: whole paths are private.
    name = str(getattr(model, "name_or_path", "") or type(model).__name__)
    return Path(name).name if Path(name).is_absolute() or Path(name).is_dir() else name


def described(model: LanguageModel | DraftHead, form: str, context: int | None) -> dict[str, Any]:
    """What a header says of a model. context: the most tokens that it can see, None if nothing
    limits them."""
    config = model.config
    about = {
        "name": model_name(model),
        "parameters": parameter_count(model),
        "form": form,
        "revision": getattr(config, "_commit_hash", None) or getattr(config, "gguf_digest", None),
        "context": context,
    }
    packed_as = getattr(model, "packed_as", None)
    return about | ({"weights": packed_as} if packed_as else {})


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
