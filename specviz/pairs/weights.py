"""A model's files and the loading of its weights: dtype, quantization, device, and clear errors if
it fails."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..errors import PairError, ran_out_of_memory

if TYPE_CHECKING:
    from .progress import Watcher

ORIGIN = "origin.json"
"""In a folder that was made of a GGUF file: of which one."""

MOST_SHOWN = 100  # characters of a model's name in a sentence
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class ModelSource:
    """A model's hub id, or the path of its local folder, or of its GGUF file, as `name` and as
    `folder`."""

    name: str
    folder: Path | None

    @property
    def shown(self) -> str:
        """The name without a path: users of the page must not see paths of this machine."""
        return self.folder.name if self.folder else shown_name(self.name)


def shown_name(name: str) -> str:
    """A model's name without the folders above it, cut off if it is very long."""
    path = Path(name)
    shown = path.name if path.is_absolute() or name.startswith((".", "~")) else name
    return shown if len(shown) <= MOST_SHOWN else shown[:MOST_SHOWN] + "…"


def hub_options(source: ModelSource) -> dict[str, Any]:
    """Options for transformers: run no code of the repository, do not wait for a silent hub."""
    offline = False
    if source.folder is None:
        from .hub import hub_is_reachable  # a folder is read without the hub's client

        offline = not hub_is_reachable()
    return {"trust_remote_code": False, "local_files_only": offline}


def _failure(source: ModelSource, error: BaseException) -> PairError:
    from .hub import failure_sentence

    return PairError(failure_sentence(source, error))


def best_device() -> torch.device:
    """The CUDA device of this machine, or its CPU.

    Apple's GPUs are not used: they lack fp64, which exact sampling needs.
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class LoadOptions:
    """How one model is loaded.

    dtype: None is fp32 on a CPU and the checkpoint's dtype on a GPU. quantize: "8bit", "4bit" or
    None. device: None spreads the model over several GPUs; `most` then limits the bytes on each
    GPU, by its index.
    """

    dtype: torch.dtype | None = None
    quantize: str | None = None
    device: torch.device | None = None
    most: dict[int, int] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """The arguments for `from_pretrained`."""
        cpu = self.device is not None and self.device.type == "cpu"
        arguments: dict[str, Any] = {"dtype": self.dtype or (torch.float32 if cpu else "auto")}
        if self.device is None:
            arguments |= {"device_map": "auto", "max_memory": self.most}
        elif not cpu:
            arguments["device_map"] = {"": self.device}
        if self.quantize is not None:
            from .precision import bitsandbytes_config  # few ask for it

            arguments["quantization_config"] = bitsandbytes_config(self.quantize, self.dtype)
        return arguments


def load_model(
    source: ModelSource,
    options: LoadOptions,
    on_progress: Watcher | None = None,
    config: Any = None,
) -> Any:
    """A causal language model with its weights, from safetensors files only. config: of
    transformers, instead of the one that lies beside the weights.

    Never runs code of the repository. Raises `PairError` if the model cannot be loaded completely.
    Errors about too little memory are raised as they are: the caller knows the numbers.
    """
    try:
        with _watched(on_progress, source.shown) as watching:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source.name,
                **({} if config is None else {"config": config}),
                use_safetensors=True,
                output_loading_info=True,
                **options.arguments(),
                **hub_options(source),
                **watching,
            )
    except Exception as error:  # damaged files can make transformers raise any error
        if ran_out_of_memory(error):
            raise
        raise _failure(source, error) from error
    model, info = loaded
    if info["missing_keys"]:
        raise PairError(
            f"{source.shown} lacks weights, {min(info['missing_keys'])} among them: download it "
            "again."
        )
    # Of a folder that was made of a GGUF file, headers say which.
    if source.folder is not None and (origin := origin_of(source.folder)) is not None:
        model.config._commit_hash = origin
    return _placed(model, options).eval()


def _watched(on_progress: Watcher | None, shown: str) -> Any:
    """Within it, the progress of loading is reported; yields options for it."""
    if on_progress is None:
        return nullcontext({})
    from .progress import watched

    return watched(on_progress, shown)


def read_tokenizer(source: ModelSource) -> Any:
    """The tokenizer of a model; raises `PairError` if it cannot be loaded."""
    try:
        return AutoTokenizer.from_pretrained(source.name, **hub_options(source))
    except Exception as error:  # damaged files can make transformers raise any error
        raise _failure(source, error) from error


def origin_of(folder: Path) -> str | None:
    """Which file an unpacked folder was made of, such as "sha256:…"; None for other folders."""
    try:
        return str(json.loads((folder / ORIGIN).read_text("utf-8"))["revision"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _placed(model: Any, options: LoadOptions) -> Any:
    # With a device map the weights are in place already, and quantized weights cannot move.
    in_place = getattr(model, "hf_device_map", None) or options.device is None
    return model if in_place else model.to(options.device)
