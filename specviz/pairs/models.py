"""Plan, place and load pairs of models from the hub or this machine."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..base.environment import has_numba
from ..base.errors import PairError, ran_out_of_memory
from ..core.model_facts import complete, logits_device
from ..core.pair import Pair
from ..core.products import INTEGER_PRODUCTS
from ..files.gguf.header import GgufHeader
from ..files.gguf.layout import integer_bytes, quantized_file_bytes
from ..files.local_paths import local_file
from ..files.memory import (
    COUNTED_LANES,
    DRAFT_QUANTIZED,
    DRAFTING_LANES,
    STORED,
    Device,
    DeviceMemory,
    PlannedLoad,
    device_memory,
    loading_precision,
    place_target,
    shortage_sentence,
)
from ..files.metadata import HeadMetadata, ModelMetadata, memory_need, read_metadata
from ..files.packed_weights import Reading, read_weights
from ..files.progress import Watcher
from ..files.weights import DTYPES, LoadOptions, check_bits
from .pair_files import PairFile, PairFiles, pair_files
from .request import LoadRequest
from .spec import ModelsSpec, NamedSpec


def load_models(spec: NamedSpec | ModelsSpec, request: LoadRequest) -> Pair:
    """Load the pair of a row of the table, or of two models. Raises as `load_pair` does."""
    devices = device_memory(request.device)
    on_cpu = devices[0].device.type == "cpu"
    bits = [options.quantize for options in request.options]
    files = pair_files(spec, reads=reads_files(bits, on_cpu=on_cpu))
    options = request.options
    if not on_cpu:
        headers = [file.header for file in files.models]
        options = unpacked_on_a_gpu(options, headers)
    elif len(files.models) > 1:
        options = with_draft_bits(options, files.models[1].bits)
    return _planned_and_loaded(spec, files, request._replace(options=options), devices)


def _planned_and_loaded(
    spec: NamedSpec | ModelsSpec,
    files: PairFiles,
    request: LoadRequest,
    devices: list[DeviceMemory],
) -> Pair:
    """Plan and load the target, and perhaps the draft, in `files`. Raises `PairError`."""
    on_progress = request.on_progress
    row = files.row
    device_type = devices[0].device.type
    models, head = _read_models(files.models, on_progress)
    defaults: dict[str, Any] = {}
    if row is not None:
        defaults = row.defaults(on_gpu=device_type == "cuda")
    pair = meta_pair(models, name=str(spec), **defaults)
    options = list(request.options)
    if device_type == "cpu":
        for index, model in enumerate(models):
            table_dtype = files.models[index].dtype
            options[index] = _as_stored(options[index], model, table_dtype)
    loads = planned_loads(models, head, options, devices[0].device)
    placement, max_memory = place_target(loads, devices)
    if placement is None and any(model.packed is not None for model in models):
        # transformers spreads a model over GPUs, and wants its own files for that.
        unpacked_files = [file._replace(header=None) for file in files.models]
        files = files._replace(models=unpacked_files)
        return _planned_and_loaded(spec, files, request, devices)
    device = None
    if placement is not None:
        device = torch.device(str(placement))
    options[0] = replace(options[0], device=device, max_memory=max_memory)
    try:
        return _loaded(pair, models, head, options, on_progress)
    except Exception as error:
        if not ran_out_of_memory(error):
            raise
        sentence = shortage_sentence(loads, devices)
    # After the except block no exception holds the loaded weights any more.
    _free_memory()
    raise PairError(sentence)


def _free_memory() -> None:
    """Give the memory of tensors that nothing holds any more back to their device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _read_models(
    files: Sequence[PairFile], on_progress: Watcher | None
) -> tuple[list[ModelMetadata], HeadMetadata | None]:
    """Read the metadata of a target and perhaps its draft, or of a target and its head. Raises
    `PairError`."""
    target = _metadata(files[0], on_progress)
    if len(files) == 1:
        return [target], None
    head = _head(files[1].name, target)
    if head is not None:
        return [target], head
    return [target, _metadata(files[1], on_progress)], None


def _head(name: str, target: ModelMetadata) -> HeadMetadata | None:
    """Read the metadata of a head; None if this draft is not a head. Raises `PairError`."""
    if local_file(name) is not None:
        return None
    from ..sides.heads.loading import read_any_head  # which imports what a file can do without

    return read_any_head(name, target)


def read_file(name: str) -> ModelMetadata:
    """Read the metadata of the model in a GGUF file. The file is unpacked for that, once, unless
    passes read its stored format. Raises `PairError`."""
    (file,) = pair_files(ModelsSpec(name, None), reads=True).models
    return _metadata(file, None)


def _metadata(file: PairFile, on_progress: Watcher | None) -> ModelMetadata:
    """Read the metadata of a model, without its weights. A GGUF file is unpacked for that, once,
    unless passes read its stored format."""
    if file.header is not None:
        from ..files.packed import packed_metadata

        return packed_metadata(file.header, file.table_name)
    path = local_file(file.name)
    if path is None:
        return read_metadata(file.name)
    from ..files.unpack import unpacked_metadata

    return unpacked_metadata(path, file.table_name, on_progress)


def reads_files(bits: Sequence[str | None], *, on_cpu: bool) -> bool:
    """Whether specviz itself reads GGUF files of known kinds: always on a processor, and on a GPU
    unless bitsandbytes quantizes the weights, because that needs transformers' files. bits: the
    bits asked for, of each model."""
    return on_cpu or not any(bits)


def unpacked_on_a_gpu(
    options: Sequence[LoadOptions], headers: Sequence[GgufHeader | None]
) -> tuple[LoadOptions, ...]:
    """The options of a target and a draft on a GPU: a GGUF file that specviz reads is unpacked to
    bf16, unless another dtype is asked for. headers: of the files that specviz reads."""
    models = list(options)
    for index, header in enumerate(headers):
        if header is not None and models[index].dtype is None:
            models[index] = replace(models[index], dtype=torch.bfloat16)
    return tuple(models)


def _kept_dtype(options: LoadOptions, dtype: str | None) -> torch.dtype | None:
    """The dtype to which the matrices of a GGUF file are unpacked; None leaves them packed. dtype:
    the table's default."""
    if options.quantize is not None:
        return None
    if options.dtype is None and dtype is not None:
        return DTYPES[dtype]
    return options.dtype


def with_draft_bits(options: Sequence[LoadOptions], bits: str | None) -> Sequence[LoadOptions]:
    """The options of a target and a draft on a processor: the draft gets the table's bits, unless
    others are asked for."""
    target, draft = options
    has_own_precision = draft.dtype is not None or draft.quantize is not None
    if bits is None or has_own_precision or not has_numba():
        return options
    return (target, replace(draft, quantize=bits))


def _as_stored(options: LoadOptions, model: ModelMetadata, dtype: str | None) -> LoadOptions:
    """On a processor, keep weights in their stored format if compiled passes read it: fewer bytes
    are read, and everything is computed in fp32. dtype: the dtype to which the table unpacks a GGUF
    file; None keeps the stored format."""
    if options.dtype is not None or options.quantize is not None or not has_numba():
        return options
    if model.packed is not None:
        return replace(options, dtype=_kept_dtype(options, dtype))
    if model.quantized:
        return options
    from ..sides.fast_cpu.support import is_read_in_place

    stored = getattr(model.config, "dtype", None)
    if stored in DTYPES.values() and is_read_in_place(model.model):
        return replace(options, dtype=stored)
    return options


def meta_pair(models: list[ModelMetadata], **fields: Any) -> Pair:
    """Build the pair of a target and perhaps a draft, without weights, on torch's `meta` device.
    fields: further fields of `Pair`. Raises `PairError` if the models do not match.
    """
    target = models[0]
    if len(models) == 1:
        return Pair(target.model, None, target.tokenizer, **fields)
    draft = models[1]
    return Pair(target.model, draft.model, target.tokenizer, draft.tokenizer, **fields)


def planned_loads(
    models: list[ModelMetadata],
    head: HeadMetadata | None,
    options: Sequence[LoadOptions],
    device: Device,
) -> list[PlannedLoad]:
    """Plan the memory and precision of each model with these options, with caches in
    `COUNTED_LANES` lanes. A head comes last, in the precision of the target's hidden states."""
    target = _planned_load(models[0], options[0], device, copies=COUNTED_LANES)
    loads = [target]
    if len(models) > 1:
        draft = _planned_load(models[1], options[1], device, copies=DRAFTING_LANES)
        loads.append(draft)
    if head is not None:
        precision = loading_precision(models[0].config, device, options[0].dtype)
        need = replace(head.need, copies=DRAFTING_LANES)
        loads.append(PlannedLoad(head.source.shown, need, precision))
    return loads


def _planned_load(
    model: ModelMetadata, options: LoadOptions, device: Device, copies: int
) -> PlannedLoad:
    """Plan the memory and precision of one model. copies: the number of lanes that run it. Raises
    `PairError`."""
    need = memory_need(model.model, model.caches.layers, copies=copies)
    precision = loading_precision(model.config, device, options.dtype)
    if model.packed is not None:
        stored = model.packed.stored
        if options.products == INTEGER_PRODUCTS:
            stored = integer_bytes(model.packed)
        need = replace(need, stored=stored)
        if options.dtype is None:
            precision = STORED
    if options.quantize is not None:
        precision = options.quantize
        check_bits(precision, device)
        if device.type == "cpu":
            smaller = _bytes_on_processor(model, options, bits=precision)
            need = replace(need, smaller=smaller)
    products = None
    has_few_bits = precision == STORED or precision in DRAFT_QUANTIZED
    if has_few_bits and device.type == "cpu":
        products = options.products
    return PlannedLoad(model.source.shown, need, precision, products)


def _bytes_on_processor(model: ModelMetadata, options: LoadOptions, *, bits: str) -> int:
    """Bytes of a model's weights once a processor has quantized them. Raises `PairError`."""
    from .quantize import block_kinds, check_quantizable, quantized_bytes

    check_quantizable(model.model, model.source.shown)
    if model.packed is None:
        return quantized_bytes(model.model, bits, options.products, is_draft=options.is_draft)
    kind, output_kind = block_kinds(bits, is_draft=options.is_draft)
    return quantized_file_bytes(model.packed, kind, output_kind)


def _loaded(
    planned: Pair,
    models: list[ModelMetadata],
    head: HeadMetadata | None,
    options: Sequence[LoadOptions],
    on_progress: Watcher | None,
) -> Pair:
    """Load the weights of a pair on the `meta` device."""
    target = _loaded_model(models[0], options[0], on_progress)
    device = logits_device(target)  # the device of the draft or head
    draft = None
    if len(models) > 1:
        draft_options = replace(options[1], device=device)
        draft = _loaded_model(models[1], draft_options, on_progress)
    loaded_head = None
    if head is not None:
        loaded_head = head.load(target, device, on_progress)
    return replace(planned, target=target, draft=draft, head=loaded_head)


def _loaded_model(model: ModelMetadata, options: LoadOptions, on_progress: Watcher | None) -> Any:
    from .quantize import load_quantized, quantize_on_processor

    if model.packed is None:
        return load_quantized(model.source, options, on_progress)
    from ..files.packed import choose_products, load_packed

    dtype = _kept_dtype(options, None)
    name = model.source.name
    bits = options.quantize
    reading = Reading(model.packed, name, dtype, options.products, on_progress)
    weights = read_weights(reading)
    loaded = load_packed(model, weights, dtype)
    if bits is not None:
        quantize_on_processor(
            loaded, name, bits, options.products, on_progress, is_draft=options.is_draft
        )
    elif dtype is None:
        choose_products(loaded, options.products, weights)
    device = options.device
    if dtype is not None and device is not None and device.type != "cpu":
        _move(loaded, device, dtype)
    return loaded


def _move(model: Any, device: torch.device, dtype: torch.dtype) -> None:
    """Move a model from the processor to a GPU. Vectors, which were read in fp32, get the dtype of
    its matrices; rotary frequencies keep theirs."""
    complete(model)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    model.to(device)
    model.weights_file = None  # they are copies now
