"""Loading of a model's weights: dtype, quantization, device, and clear errors if it fails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from ..base.errors import PairError, ran_out_of_memory
from ..core.products import INTEGER_PRODUCTS, PRODUCTS
from .memory import DRAFT_QUANTIZED, FIVE_BIT, QUANTIZED
from .source import CachedSource, ModelSource

if TYPE_CHECKING:
    from .memory import Device
    from .progress import Watcher

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def hub_options(source: ModelSource) -> dict[str, Any]:
    """Options for transformers: run no code of the repository, do not wait for a silent hub."""
    offline = isinstance(source, CachedSource)
    if source.folder is None:
        from .hub import hub_is_reachable  # folders do not need the hub's client

        offline = not hub_is_reachable()
    return {"trust_remote_code": False, "local_files_only": offline}


@dataclass(frozen=True)
class LoadOptions:
    """How to load one model."""

    dtype: torch.dtype | None = None  # None is fp32 on a CPU, the checkpoint's dtype on a GPU
    quantize: str | None = None  # "8bit", "4bit", or "5bit" of a draft
    products: str = INTEGER_PRODUCTS  # of weights of few bits on a processor, one of `PRODUCTS`
    is_draft: bool = False
    device: torch.device | None = None  # None spreads the model over several GPUs
    max_memory: dict[int, int] = field(default_factory=dict)  # bytes on each GPU, by its index

    def arguments(self) -> dict[str, Any]:
        """The arguments for `from_pretrained`. On a processor, weights are quantized
        afterwards."""
        on_cpu = self.device is not None and self.device.type == "cpu"
        dtype: torch.dtype | str | None = self.dtype
        if dtype is None:
            dtype = torch.float32 if on_cpu and self.quantize is None else "auto"
        arguments: dict[str, Any] = {"dtype": dtype}
        if self.device is None:
            arguments |= {"device_map": "auto", "max_memory": self.max_memory}
        elif not on_cpu:
            arguments["device_map"] = {"": self.device}
        if self.quantize is not None and not on_cpu:
            check_bits(self.quantize, self.device)
            arguments["quantization_config"] = BitsAndBytesConfig(
                load_in_8bit=self.quantize == "8bit",
                load_in_4bit=self.quantize == "4bit",
                bnb_4bit_quant_type="nf4",
                bnb_4bit_compute_dtype=self.dtype or torch.bfloat16,
            )
        return arguments


def check_bits(quantize: str | None, device: Device | None) -> None:
    """Raise `PairError` for 5 bits on another device than a processor: only compiled passes read
    them. None stands for several GPUs."""
    if quantize == FIVE_BIT and (device is None or device.type != "cpu"):
        raise PairError("5-bit weights are only for a draft on a processor: use 8bit or 4bit here.")


def checked_quantization(quantize: str | None, *, of_draft: bool = False) -> str | None:
    """Return `quantize`. Raises `PairError` if it is unknown, or if it needs bitsandbytes and that
    is missing. Without a GPU compiled passes read such weights."""
    if quantize is None:
        return None
    name = "quantize"
    known: tuple[str, ...] = QUANTIZED
    if of_draft:
        name = "draft_quantize"
        known = DRAFT_QUANTIZED
    if quantize not in known:
        raise PairError(f"{name} is {quantize!r}: use one of {', '.join(map(repr, known))}.")
    if torch.cuda.is_available() and find_spec("bitsandbytes") is None:
        bits = quantize.replace("bit", "-bit")
        raise PairError(
            f"{bits} weights need the package bitsandbytes: pip install -r "
            "requirements-quantize.txt."
        )
    return quantize


def checked_options(
    dtype: str | torch.dtype | None = None,
    quantize: str | None = None,
    draft_quantize: str | None = None,
    products: str | None = None,
) -> tuple[LoadOptions, LoadOptions]:
    """The load options of the target and of the draft, which always has integer products. Raises
    `PairError`, see `load_pair`."""
    torch_dtype = DTYPES.get(str(dtype).removeprefix("torch."))
    if torch_dtype is None and dtype not in (None, "auto"):
        raise PairError(f"dtype is {dtype!r}: use one of {', '.join(map(repr, DTYPES))}.")
    if products not in (None, *PRODUCTS):
        raise PairError(f"products is {products!r}: use one of {', '.join(map(repr, PRODUCTS))}.")
    target = LoadOptions(
        dtype=torch_dtype,
        quantize=checked_quantization(quantize),
        products=products or INTEGER_PRODUCTS,
    )
    draft = LoadOptions(
        dtype=torch_dtype,
        quantize=checked_quantization(draft_quantize, of_draft=True),
        is_draft=True,
    )
    return target, draft


def load_model(
    source: ModelSource,
    options: LoadOptions,
    on_progress: Watcher | None = None,
    config: Any = None,
) -> Any:
    """Load a causal language model with its weights, from safetensors files only. config:
    transformers' config, instead of the one next to the weights.

    Never runs code of the repository. Raises `PairError` if the model cannot be loaded completely.
    Errors about too little memory are raised as they are: the caller knows the numbers.
    """
    arguments = options.arguments()
    bars: Any = nullcontext({})
    if on_progress is not None:
        from .progress import watched  # imported only if somebody watches

        bars = watched(on_progress, source.shown)
    try:
        with bars as watching:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source.name,
                config=config,
                use_safetensors=True,
                output_loading_info=True,
                **arguments,
                **hub_options(source),
                **watching,
            )
    except Exception as error:  # damaged files can make transformers raise any error
        if ran_out_of_memory(error):
            raise
        from .hub import failure_sentence  # folders do not need the hub's client

        raise PairError(failure_sentence(source, error)) from error
    model, info = loaded
    if info["missing_keys"]:
        raise PairError(
            f"{source.shown} lacks weights, such as {min(info['missing_keys'])}: download it again."
        )
    if unused := unused_weights(model, info.get("unexpected_keys", ())):
        raise PairError(unused_sentence(source.shown, unused))
    return model.eval()


_WITHOUT_EFFECT = re.compile(
    r"(^|\.)rotary_emb\.inv_freq$"  # computed again from the config
    r"|\.attn\.(masked_)?bias$|\.attention\.(masked_)?bias$"  # the mask of causal attention
    r"|(^|\.)position_ids$"
    r"|(^|\.)mtp\."  # layers that only drafts use
)
"""Names in checkpoints that no model reads, and that change nothing."""


def unused_weights(model: Any, names: Iterable[str]) -> list[str]:
    """Those names in a checkpoint that the model should have a place for and has not. Extra layers
    after the last one, which predict further tokens, are not among them."""
    config = model.config.get_text_config()
    layers = getattr(config, "num_hidden_layers", 0)
    extra_layers = getattr(config, "num_nextn_predict_layers", None) or 0
    extra_prefixes = tuple(f"model.layers.{layers + index}." for index in range(extra_layers))
    unused = []
    for name in names:
        if not _WITHOUT_EFFECT.search(name) and not name.startswith(extra_prefixes):
            unused.append(name)
    return sorted(unused)


def unused_sentence(shown: str, unused: Sequence[str]) -> str:
    """The sentence about weights that no part of a model uses."""
    return (
        f"{shown} has weights that no part of its model uses, such as {unused[0]}, so it would "
        "run as a different model: download it again, or check that its config.json belongs to "
        "it."
    )


def read_tokenizer(source: ModelSource) -> Any:
    """Read the tokenizer of a model. Raises `PairError` if it cannot be loaded."""
    try:
        return AutoTokenizer.from_pretrained(source.name, **hub_options(source))
    except Exception as error:  # damaged files can make transformers raise any error
        from .hub import failure_sentence

        raise PairError(failure_sentence(source, error)) from error
