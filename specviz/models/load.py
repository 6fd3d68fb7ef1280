"""Pairs by name: the built-in one, those of the table, or any models of the hub or of folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..environment import ASSETS, BUILTIN
from ..errors import PairError
from .catalogue import named_pair, named_pairs
from .hub import find_source
from .memory import Room, loading_precision, model_need, rooms
from .metadata import Blueprint, read_blueprint, read_tokenizer
from .pair import Pair
from .progress import Progress, Watcher
from .weights import (
    Load,
    Way,
    checked_dtype,
    checked_quantization,
    load_model,
    out_of_memory,
    release_memory,
    shortage,
    target_place,
)

NO_DRAFT = "none"
"""Stands for the draft in the name of a pair that has none: "TARGET+none"."""


def load_pair(
    name: str = BUILTIN,
    *,
    dtype: str | torch.dtype | None = None,
    quantize: str | None = None,
    draft_quantize: str | None = None,
    device: str | torch.device | None = None,
    on_progress: Watcher | None = None,
) -> Pair:
    """Load "builtin", a name of the table of pairs, or "TARGET+DRAFT".

    TARGET and DRAFT are hub ids or local folders; "TARGET+none" has no draft model. safetensors
    only, and never a repository's own code; gated models need HF_TOKEN.
    dtype: "float32", "bfloat16" or "float16"; None is fp32 on a CPU and the dtype of the
    checkpoint on a GPU. quantize, draft_quantize: "8bit" or "4bit", on a GPU with bitsandbytes.
    device: the GPU with most room, or several if one is too small, or the CPU, if None.
    on_progress: called with a `Progress` now and then, in this thread or one of the hub's.
    Raises `PairError` if a model is missing, does not fit into memory, or the two do not match.
    """
    target, draft = model_names(name)
    ways = [Way(checked_dtype(dtype), checked_quantization(q)) for q in (quantize, draft_quantize)]
    place = torch.device(device) if device is not None else None
    if name == BUILTIN:
        return _loaded(name, [target, draft or ""], ways, place or best_device(), on_progress)
    if on_progress is not None:
        on_progress(Progress(f"reading what {name} needs"))
    plans = [read_blueprint(model) for model in (target, draft) if model]
    blueprint_pair(plans)
    return _placed_pair(name, plans, ways, rooms(place), on_progress)


def model_names(name: str) -> tuple[str, str | None]:
    """Target and draft of a pair's name, the draft None if it has none. Raises `PairError`."""
    row = named_pair(name.strip())
    if row is not None:
        folder = ASSETS / "pair"
        if row.name == BUILTIN:
            return str(folder / "target"), str(folder / "draft")
        return row.target.name, row.draft.name
    for target, draft in _splits(name):
        if target and draft:
            return target, None if draft == NO_DRAFT else draft
    names = ", ".join(pair.name for pair in named_pairs()[1:])
    raise PairError(
        f"{name!r} is no pair: write 'builtin' or 'target-id+draft-id', 'target-id+none' for a "
        f"target without a draft model, or one of {names}."
    )


def blueprint_pair(plans: list[Blueprint]) -> Pair:
    """The pair of one or two models without weights. Raises `PairError` if they do not match."""
    target, draft = plans[0], plans[1] if len(plans) > 1 else None
    return Pair(
        target=target.model,
        draft=draft.model if draft else None,
        tokenizer=target.tokenizer,
        draft_tokenizer=draft.tokenizer if draft else None,
    )


def best_device() -> torch.device:
    """The CUDA device of this machine, or its CPU.

    Apple's GPUs lack the fp64 that exact draws need, and small models are fast on a CPU.
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pair_loads(plans: list[Blueprint], ways: list[Way], device: torch.device) -> list[Load]:
    """What each model takes when it is loaded so. The target keeps a cache in each lane."""
    return [
        Load(
            plan.source.shown,
            model_need(plan.model, plan.caches, copies=1 + (plan is plans[0])),
            way.quantize or loading_precision(plan.config, device, way.dtype),
        )
        for plan, way in zip(plans, ways, strict=False)
    ]


def _splits(name: str) -> list[tuple[str, str]]:
    # A folder's name may hold a plus; then the split that has a folder on its left is meant.
    places = [i for i, sign in enumerate(name) if sign == "+"]
    found = [(name[:i].strip(), name[i + 1 :].strip()) for i in places]
    return sorted(found, key=lambda pair: not Path(pair[0]).expanduser().is_dir())


def _placed_pair(
    name: str,
    plans: list[Blueprint],
    ways: list[Way],
    spaces: list[Room],
    on_progress: Watcher | None,
) -> Pair:
    loads = pair_loads(plans, ways, spaces[0].device)
    draft = loads[1] if len(loads) > 1 else None
    device, most = target_place(loads[0], draft, spaces)
    ways = [replace(ways[0], most=most), ways[1]]
    try:
        return _loaded(name, [plan.source.name for plan in plans], ways, device, on_progress)
    except Exception as error:
        if not out_of_memory(error):
            raise
        said = shortage(loads, spaces)
    # Past the handler nothing holds on to what was loaded in vain.
    release_memory()
    raise PairError(said)


def _loaded(
    name: str,
    names: list[str],
    ways: list[Way],
    device: torch.device | None,
    on_progress: Watcher | None,
) -> Pair:
    sources = [find_source(model) for model in names]
    tokenizers: list[Any] = [read_tokenizer(source) for source in sources]
    target = load_model(sources[0], replace(ways[0], device=device), on_progress)
    alone = Pair(target=target, draft=None, tokenizer=tokenizers[0], name=name)
    if len(sources) == 1:
        return alone
    draft = load_model(sources[1], replace(ways[1], device=alone.device), on_progress)
    return replace(alone, draft=draft, draft_tokenizer=tokenizers[1])
