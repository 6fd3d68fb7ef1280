"""Loading of pairs by name: the built-in one, one of the table, or any two models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from ..checks import checked_device
from ..environment import ASSETS, BUILTIN, has_numba
from ..errors import PairError, ran_out_of_memory
from .checksums import check_files
from .closed import closed_sentence
from .heads.kinds import AnyMetadata, load_any_head, read_any_head
from .hub import find_source
from .memory import DeviceMemory, device_memory, loading_precision, memory_need
from .metadata import ModelMetadata, read_metadata, read_tokenizer
from .pair import Pair
from .progress import Progress, Watcher
from .sizes import DRAFTING_LANES, LANES
from .spec import (
    ModelsSpec,
    NamedSpec,
    OperatorSpec,
    PairSpec,
    ServedSpec,
    WatchedSpec,
    local_file,
    local_path,
    operator_spec,
    parse_pair,
)
from .table import NamedPair, named_pair, wheel_file
from .weights import (
    DTYPES,
    LoadOptions,
    PlannedLoad,
    checked_dtype,
    checked_quantization,
    load_model,
    place_target,
    release_memory,
    shortage_sentence,
)

if TYPE_CHECKING:
    from ..sides.watched.watching import Watched


def load_pair(
    name: str = BUILTIN,
    *,
    dtype: str | torch.dtype | None = None,
    quantize: str | None = None,
    draft_quantize: str | None = None,
    device: str | torch.device | None = None,
    on_progress: Watcher | None = None,
) -> Pair:
    """Load the pair with this name: "builtin", a name of the table of pairs, or "TARGET+DRAFT".

    TARGET and DRAFT are hub ids or local folders; "TARGET+none" has no draft model, and in the
    place of a draft there may be an EAGLE-3 head or an assistant of Gemma 4, which becomes the
    pair's `head`, or "mtp" for the target's own multi-token prediction layers. Only
    safetensors files are read, and code of a repository never runs. Gated models need HF_TOKEN.
    "http://HOST:PORT/v1#MODEL+DRAFT" is a target on a server of OpenAI's protocol, such as vLLM,
    with a draft that is loaded here; the key of the server is SPECVIZ_REMOTE_KEY. Without
    "+DRAFT" the server speculates by itself, and what is returned is a `Watched`, which only
    `race` takes. docs/pairs.md has all forms of names.
    dtype: "float32", "bfloat16" or "float16"; None is fp32 on a CPU and the dtype of the
    checkpoint on a GPU. quantize, draft_quantize: "8bit" or "4bit", on a GPU with bitsandbytes.
    device: None is the GPU with the most free memory, several GPUs if one is too small, or the
    CPU if there is no GPU.
    on_progress: called with each new `Progress`, in this thread or in one of the hub's client.
    Raises `PairError` if a model is missing, does not fit into memory, or the two do not match, and
    if a file of the built-in pair is not as it was published.
    """
    loaded = load_any(
        parse_pair(name),
        dtype=dtype,
        quantize=quantize,
        draft_quantize=draft_quantize,
        device=device,
        on_progress=on_progress,
    )
    # A server's name alone makes a `Watched`; whoever writes one passes it to `race`.
    return cast(Pair, loaded)


def load_any(
    spec: PairSpec,
    *,
    dtype: str | torch.dtype | None = None,
    quantize: str | None = None,
    draft_quantize: str | None = None,
    device: str | torch.device | None = None,
    on_progress: Watcher | None = None,
) -> Pair | Watched:
    """What a parsed name stands for, with the options of `load_pair`, which says what is raised."""
    if isinstance(spec, OperatorSpec):
        spec = operator_spec()
    options = [
        LoadOptions(checked_dtype(dtype), checked_quantization(q))
        for q in (quantize, draft_quantize)
    ]
    place = checked_device(device)
    name = str(spec)
    if spec == NamedSpec(BUILTIN):
        target, draft = model_names(spec)
        head_folder = str(ASSETS / "pair" / "head")
        for folder in (target, draft, head_folder):
            check_files(Path(folder or ""))
        place = place or best_device()
        if dtype is None and place.type == "cpu" and has_numba():
            # As it is stored: compiled passes read such weights in place, and compute in fp32.
            options = [replace(one, dtype=torch.bfloat16) for one in options]
        return _loaded(name, [target, draft or ""], head_folder, options, place, on_progress)
    if isinstance(spec, ServedSpec | WatchedSpec):
        from .served import served_pair

        return served_pair(spec, options[1], place or best_device(), on_progress)
    if on_progress is not None:
        on_progress(Progress(f"reading what {name} needs"))
    target, draft = _files(spec, on_progress)
    if closed := closed_sentence([one for one in (target, draft) if one]):
        raise PairError(closed)
    metadata = read_metadata(target)
    head = read_any_head(draft, metadata) if draft else None
    models = [metadata, *([read_metadata(draft)] if draft and head is None else [])]
    meta_pair(models)  # raises if the two do not match
    devices = device_memory(place)
    if devices[0].device.type == "cpu":
        pairs = zip(options, models + models[:1], strict=False)
        options = [_as_stored(chosen, one) for chosen, one in pairs]
    named_head = None if head is None else (draft or "", head)
    return _placed_pair(name, models, named_head, options, devices, on_progress)


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
    return row.target.name, row.parts[0].name if row.parts else None


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


def best_device() -> torch.device:
    """The CUDA device of this machine, or its CPU.

    Apple's GPUs are not used: they lack fp64, which exact sampling needs.
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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
                one.model, one.caches, copies=LANES if one is models[0] else DRAFTING_LANES
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
    head: tuple[str, AnyMetadata] | None,
    options: list[LoadOptions],
    devices: list[DeviceMemory],
    on_progress: Watcher | None,
) -> Pair:
    loads = planned_loads(models, head[1] if head else None, options, devices[0].device)
    draft = loads[1] if len(loads) > 1 else None
    device, most = place_target(loads[0], draft, devices)
    options = [replace(options[0], most=most), options[1]]
    names = [one.source.name for one in models]
    try:
        head_name = head[0] if head else None
        return _loaded(name, names, head_name, options, device, on_progress)
    except Exception as error:
        if not ran_out_of_memory(error):
            raise
        sentence = shortage_sentence(loads, devices)
    # After the except block no exception holds the loaded weights any more.
    release_memory()
    raise PairError(sentence)


def _loaded(
    name: str,
    names: list[str],
    head: str | None,
    options: list[LoadOptions],
    device: torch.device | None,
    on_progress: Watcher | None,
) -> Pair:
    sources = [find_source(model) for model in names]
    tokenizers: list[Any] = [read_tokenizer(source) for source in sources]
    target = load_model(sources[0], replace(options[0], device=device), on_progress)
    alone = Pair(target=target, draft=None, tokenizer=tokenizers[0], name=name)
    if head is not None:
        alone = replace(alone, head=load_any_head(head, target, alone.device, on_progress))
    if len(sources) == 1:
        return alone
    draft = load_model(sources[1], replace(options[1], device=alone.device), on_progress)
    return replace(alone, draft=draft, draft_tokenizer=tokenizers[1])
