"""Load pairs by name, in any form of a name. The built-in pair is read here, from its folder, after
its checksums are verified.

This module imports torch and transformers only while files are being read: the import takes
seconds, and reading does not need them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ..base.environment import ASSETS, BUILTIN, collector_paused, has_numba
from ..core.pair import Pair
from ..files.checksums import check_files
from ..files.source import ModelSource
from .request import LoadRequest

if TYPE_CHECKING:
    import torch

    from ..core.protocols import LanguageModel
    from ..core.states import DraftHead
    from ..files.progress import Watcher
    from ..sides.watched.watching import Watched
    from .spec import PairSpec


def load_pair(
    name: str = BUILTIN,
    *,
    dtype: str | torch.dtype | None = None,
    quantize: str | None = None,
    draft_quantize: str | None = None,
    products: str | None = None,
    device: str | torch.device | None = None,
    on_progress: Watcher | None = None,
) -> Pair | Watched:
    """Load the pair with this name: "builtin", a name of the table of pairs, or "TARGET+DRAFT".

    TARGET and DRAFT are hub ids, local folders or GGUF files; "TARGET+none" has no draft model.
    Instead of a draft there may be an EAGLE-3 head or a Gemma 4 assistant, which becomes the pair's
    `head`, or "mtp" for the target's own multi-token prediction layers. Weights are read from
    safetensors and GGUF files only, and code of a repository never runs. Gated models need
    HF_TOKEN. The files of a pair of the table that are not here are fetched if the hub answers.
    "http://HOST:PORT/v1#MODEL+DRAFT" is a target on a server of OpenAI's protocol, such as vLLM,
    with a draft that is loaded here; the key of the server is SPECVIZ_REMOTE_KEY. Without "+DRAFT"
    the server speculates by itself, and the result is a `Watched`, which only `race` takes
    (`core.pair.checked_pair` refuses it). docs/pairs.md has all forms of names.
    dtype: "float32", "bfloat16" or "float16"; None is the dtype of the checkpoint on a GPU and
    where compiled passes read it, the form in which a GGUF file holds its weights, and else fp32.
    quantize, draft_quantize: "8bit" or "4bit", on a GPU with bitsandbytes, on a CPU in blocks of
    32 that compiled passes read. A draft on a CPU may have "5bit" too.
    products: how a target on a CPU multiplies weights of few bits: "int8" rounds inputs to 8 bits
    and multiplies integers, as llama.cpp does, "fp32" makes fp32 of each weight. None is "int8". A
    draft, which its target judges, always has the former.
    device: None is the GPU with the most free memory, several GPUs if one is too small, or the
    CPU if there is no GPU.
    on_progress: called with each new `Progress`.
    Raises `PairError` if a model is missing, does not fit into memory, or the two do not match, and
    if a file of the built-in pair is not as it was published.
    """
    return load_any(
        name,
        dtype=dtype,
        quantize=quantize,
        draft_quantize=draft_quantize,
        products=products,
        device=device,
        on_progress=on_progress,
    )


@collector_paused()
def load_any(
    pair: PairSpec | str,
    *,
    on_progress: Watcher | None = None,
    device: Any = None,
    **precision: Any,
) -> Pair | Watched:
    """Load the pair or the watched server of a name, parsed or not. Options and errors are those of
    `load_pair`."""
    if pair == BUILTIN:
        return load_builtin(_request(precision, device, on_progress))
    from . import spec  # which the built-in pair does not need

    if isinstance(pair, spec.PairSpec):
        pair_spec = pair
    else:
        pair_spec = spec.parse_pair(pair)
    if isinstance(pair_spec, spec.OperatorSpec):
        pair_spec = spec.operator_spec()
    if pair_spec == spec.NamedSpec(BUILTIN):
        return load_builtin(_request(precision, device, on_progress))
    if isinstance(pair_spec, spec.NamedSpec | spec.ModelsSpec):
        from ..files.progress import Progress
        from .fetch import load_fetched

        if on_progress is not None:
            on_progress(Progress(f"reading the files of {pair_spec}"))
        return load_fetched(pair_spec, _request(precision, device, on_progress))
    request = _request(precision, device, on_progress)
    if isinstance(pair_spec, spec.WatchedSpec):
        from .watched import load_watched

        return load_watched(pair_spec, on_progress)
    from .served import load_served

    return load_served(pair_spec, request)


def _request(precision: dict[str, Any], device: Any, on_progress: Watcher | None) -> LoadRequest:
    """Check the options of `load_pair`. Raises `PairError` for an unknown value."""
    from ..files.devices import checked_device
    from ..files.weights import checked_options

    return LoadRequest(checked_options(**precision), checked_device(device), on_progress)


def load_builtin(request: LoadRequest) -> Pair:
    """Load the built-in pair. Raises `PairError` if one of its files differs from the published
    one."""
    import torch

    from ..files.devices import best_device
    from ..files.weights import load_model, read_tokenizer

    folders = [ASSETS / "pair" / name for name in ("target", "draft", "head")]
    for folder in folders:
        check_files(folder)
    device = request.device or best_device()
    as_stored = request.options[0].dtype is None and device.type == "cpu" and has_numba()
    *model_folders, head_folder = folders
    sources = [ModelSource(str(folder), folder) for folder in model_folders]
    load: Callable[..., Any] = load_model
    if any(options.quantize for options in request.options):
        from .quantize import load_quantized  # with much that other runs do not need

        load = load_quantized
    models = []
    for source, options in zip(sources, request.options, strict=True):
        options = replace(options, device=device)
        if as_stored:
            # Compiled passes read such weights in place, and compute in fp32.
            options = replace(options, dtype=torch.bfloat16)
        models.append(load(source, options, request.on_progress))
    target, draft = models
    tokenizer, draft_tokenizer = map(read_tokenizer, sources)
    pair = Pair(
        target=target,
        draft=draft,
        tokenizer=tokenizer,
        draft_tokenizer=draft_tokenizer,
        name=BUILTIN,
    )

    def read_head() -> DraftHead:
        from ..sides.heads.eagle_files import load_head  # a run without it need not know heads

        return load_head(str(head_folder), pair.target, pair.device)

    return replace(pair, head=cast("DraftHead", HeadOnDemand(read_head)))


class HeadOnDemand:
    """A head whose weights are read at its first use: most runs draft with something else. load:
    reads the head, and checks that it was made for its target.
    """

    def __init__(self, load: Callable[[], DraftHead]) -> None:
        self._load = load

    @cached_property
    def loaded(self) -> DraftHead:
        """The head itself."""
        return self._load()

    def check(self, target: LanguageModel) -> None:
        """The head is checked when it is read, not before."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look these up on any object
            raise AttributeError(name)
        return getattr(self.loaded, name)
