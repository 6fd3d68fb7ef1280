"""Pairs of models of the hub or of this machine: planned, placed on devices, and loaded."""

from __future__ import annotations

import gc
from dataclasses import replace

import torch

from ..environment import ASSETS, BUILTIN, has_numba
from ..errors import PairError, ran_out_of_memory
from .heads import AnyMetadata, read_any_head
from .hub import closed_sentence
from .load import Asked
from .memory import (
    DeviceMemory,
    PlannedLoad,
    device_memory,
    loading_precision,
    memory_need,
    place_target,
    shortage_sentence,
)
from .metadata import ModelMetadata, read_metadata
from .pair import Pair
from .progress import Progress, Watcher
from .sizes import DRAFTING_LANES, LANES
from .spec import ModelsSpec, NamedSpec, local_file, local_path
from .table import NamedPair, named_pair, wheel_file
from .weights import DTYPES, LoadOptions, load_model


def load_models(spec: NamedSpec | ModelsSpec, asked: Asked) -> Pair:
    """The pair of a row of the table, or of two models. Raises `PairError`, see `load_pair`."""
    name, on_progress, options = str(spec), asked.on_progress, list(asked.options)
    if on_progress is not None:
        on_progress(Progress(f"reading what {name} needs"))
    target, draft = _files(spec, on_progress)
    if closed := closed_sentence([one for one in (target, draft) if one]):
        raise PairError(closed)
    metadata = read_metadata(target)
    head = read_any_head(draft, metadata) if draft else None
    models = [metadata, *([read_metadata(draft)] if draft and head is None else [])]
    meta_pair(models)  # raises if the two do not match
    devices = device_memory(asked.device)
    if devices[0].device.type == "cpu":
        pairs = zip(options, models + models[:1], strict=False)
        options = [_as_stored(chosen, one) for chosen, one in pairs]
    pair = _placed_pair(name, models, head, options, devices, on_progress)
    row = row_of(spec)
    return pair if row is None or row.drafter is None else replace(pair, drafter=row.drafter)


def model_names(spec: NamedSpec | ModelsSpec) -> tuple[str, str | None]:
    """The target and the draft, or None, of a pair that is loaded here."""
    if isinstance(spec, ModelsSpec):
        row = row_of(spec)
        target = spec.target if row is None else model_names(NamedSpec(row.name))[0]
        return target, spec.draft
    if spec.name == BUILTIN:
        folder = ASSETS / "pair"
        return str(folder / "target"), str(folder / "draft")
    row = named_pair(spec.name)
    assert row is not None, "the parser has seen it"
    return row.target.name, row.parts[0].place if row.parts else None


def row_of(spec: NamedSpec | ModelsSpec) -> NamedPair | None:
    """The row of the table that names the target: its name may stand before a plus as well, where
    no folder here has it."""
    if isinstance(spec, NamedSpec):
        return named_pair(spec.name)
    return None if local_path(spec.target) else named_pair(spec.target)


def _files(spec: NamedSpec | ModelsSpec, on_progress: Watcher | None) -> tuple[str, str | None]:
    """As `model_names`, with folders of safetensors in the place of GGUF files."""
    target, draft = model_names(spec)
    row = row_of(spec)
    packed = local_file(target), local_file(draft or "")
    if not any(packed) and (row is None or row.wheel is None):
        return target, draft
    from .unpack import unpacked  # only they need what it imports

    if row is not None and (file := wheel_file(row)) is not None:
        return str(unpacked(file, target.rpartition("/")[2], on_progress)), draft
    one, other = (
        None if file is None else str(unpacked(file, None, on_progress)) for file in packed
    )
    return one or target, other or draft


def _as_stored(options: LoadOptions, model: ModelMetadata) -> LoadOptions:
    """On a processor, weights that compiled passes read in place keep the dtype that they have:
    all is computed in fp32, and half the bytes are read."""
    if options.dtype is not None or model.quantized or not has_numba():
        return options
    from ..sides.fast_cpu.support import is_read_in_place

    given = getattr(model.config, "dtype", None)
    as_it_is = given in DTYPES.values() and is_read_in_place(model.model)
    return replace(options, dtype=given) if as_it_is else options


def meta_pair(models: list[ModelMetadata]) -> Pair:
    """The pair of a target and perhaps a draft, without weights, on torch's `meta` device.

    Raises `PairError` if the models do not match.
    """
    target, draft = models[0], models[1] if len(models) > 1 else None
    return Pair(
        target=target.model,
        draft=draft.model if draft else None,
        tokenizer=target.tokenizer,
        draft_tokenizer=draft.tokenizer if draft else None,
    )


def planned_loads(
    models: list[ModelMetadata],
    head: AnyMetadata | None,
    options: list[LoadOptions],
    device: torch.device,
) -> list[PlannedLoad]:
    """The memory and precision of each model with these options, with its caches in all of `LANES`
    lanes. A head comes last, in the precision that the target's states have."""
    loads = [
        PlannedLoad(
            one.source.shown,
            memory_need(
                one.model, one.caches.layers, copies=LANES if one is models[0] else DRAFTING_LANES
            ),
            chosen.quantize or loading_precision(one.config, device, chosen.dtype),
        )
        for one, chosen in zip(models, options, strict=False)
    ]
    if head is not None:
        precision = loading_precision(models[0].config, device, options[0].dtype)
        need = replace(head.need, copies=DRAFTING_LANES)
        loads.append(PlannedLoad(head.source.shown, need, precision))
    return loads


def _placed_pair(
    name: str,
    models: list[ModelMetadata],
    head: AnyMetadata | None,
    options: list[LoadOptions],
    devices: list[DeviceMemory],
    on_progress: Watcher | None,
) -> Pair:
    loads = planned_loads(models, head, options, devices[0].device)
    device, most = place_target(loads, devices)
    try:
        target = replace(options[0], device=device, most=most)
        return _loaded(name, models, head, (target, options[1]), on_progress)
    except Exception as error:
        if not ran_out_of_memory(error):
            raise
        sentence = shortage_sentence(loads, devices)
    # After the except block no exception holds the loaded weights any more.
    release_memory()
    raise PairError(sentence)


def _loaded(
    name: str,
    models: list[ModelMetadata],
    head: AnyMetadata | None,
    options: tuple[LoadOptions, LoadOptions],
    on_progress: Watcher | None,
) -> Pair:
    target = load_model(models[0].source, options[0], on_progress)
    pair = Pair(target=target, draft=None, tokenizer=models[0].tokenizer, name=name)
    if head is not None:
        return replace(pair, head=head.load(target, pair.device, on_progress))
    if len(models) == 1:
        return pair
    draft = load_model(models[1].source, replace(options[1], device=pair.device), on_progress)
    return replace(pair, draft=draft, draft_tokenizer=models[1].tokenizer)


def release_memory() -> None:
    """Free the memory of objects that are no longer used."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
