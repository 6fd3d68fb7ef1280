"""What a race says of itself before its first round: models, machine, versions."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers

from .._version import __version__
from ..errors import PairError, ServerError
from ..lanes import BASELINE, SPECULATIVE, Lane
from ..pairs.pair import Pair, context_length, parameter_count
from ..pairs.truncated import truncated_model
from ..remote.target import RemoteTarget
from ..settings import Settings
from .events import STREAMED, Header
from .types import Mode, Prefilled


def header_of(
    pair: Pair,
    prompt_ids: list[int],
    settings: dict[Lane, Settings],
    mode: Mode,
    prefilled: dict[Lane, Prefilled],
) -> Header:
    """The header of a race whose lanes have read the prompt."""
    lanes = {lane: own for lane, own in settings.items() if lane != BASELINE}
    drafts = {
        lane: _draft_described(pair, prefilled[lane], own.drafter) for lane, own in lanes.items()
    }
    first, named = next(iter(lanes)), set(lanes) != {SPECULATIVE}
    return Header(
        prompt=pair.tokenizer.decode(prompt_ids),
        prompt_ids=tuple(prompt_ids),
        settings=lanes[first],
        target=_model_described(pair.target, prefilled[first].forms["target"]),
        draft=drafts[first],
        device=_device_name(pair),
        dtype=str(pair.target.dtype).removeprefix("torch."),
        versions=_versions(pair.device),
        threads=torch.get_num_threads(),
        lane_threads={lane: first.threads for lane, first in prefilled.items()},
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        prefill_seconds={lane: first.seconds for lane, first in prefilled.items()},
        mode=mode,
        processor=_processor_name(),
        lanes=lanes if named else None,
        drafts=drafts if named else None,
        streaming_rate=_streaming_rate(pair, prompt_ids),
    )


def _streaming_rate(pair: Pair, prompt_ids: list[int]) -> float | None:
    """How fast the target's server streams by itself; None if it has none or does not tell."""
    if not isinstance(pair.target, RemoteTarget):
        return None
    room = context_length(pair.target)
    if room is not None and len(prompt_ids) + STREAMED > room:
        return None
    try:
        return pair.target.server.streaming_rate(prompt_ids, STREAMED)
    except (PairError, ServerError):  # the race needs no stream
        return None


def _draft_described(pair: Pair, prefilled: Prefilled, drafter: str) -> dict[str, Any] | None:
    form, layers = prefilled.forms.get("draft"), prefilled.layers
    if form is None:
        return None
    if drafter == "head":
        # A head may have been trained on shorter texts, but it reads any length.
        return _described(pair.head, form, None)
    if layers is None:
        described = _model_described(pair.draft, form)
        return described | ({"shared": len(pair.shared.pairs)} if pair.shared else {})
    whole = _model_described(pair.target, form)
    name = f"{whole['name']}, layers 1 to {layers}"
    shallow = truncated_model(pair.target, layers)
    return {**whole, "name": name, "parameters": parameter_count(shallow)}


def _versions(device: torch.device) -> dict[str, str]:
    versions = {
        "specviz": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }
    return versions | ({"cuda": str(torch.version.cuda)} if device.type == "cuda" else {})


def model_name(model: Any) -> str:
    """The name of a model in a header."""
    # A model loaded from a folder is named by the folder: whole paths are private.
    name = str(getattr(model, "name_or_path", "") or type(model).__name__)
    return Path(name).name if Path(name).is_absolute() or Path(name).is_dir() else name


def _model_described(model: Any, form: str) -> dict[str, Any]:
    return _described(model, form, context_length(model))


def _described(model: Any, form: str, context: int | None) -> dict[str, Any]:
    return {
        "name": model_name(model),
        "parameters": parameter_count(model),
        "form": form,
        "revision": getattr(model.config, "_commit_hash", None),
        "context": context,
    }


def _device_name(pair: Pair) -> str:
    if isinstance(pair.target, RemoteTarget):
        return pair.target.abilities.identity.software
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
