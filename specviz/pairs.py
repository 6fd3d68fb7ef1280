"""Pairs by name: the built-in one, or any two models of the hub or of local folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from .errors import PairError
from .folders import ASSETS, BUILTIN
from .pair import Pair


def load_pair(name: str = BUILTIN) -> Pair:
    """Load "builtin" or "TARGET+DRAFT", each a hub id or a local folder.

    fp32 on a CPU, the dtype of the checkpoint on an accelerator; safetensors only, and never a
    repository's own code. Raises `PairError` if a model is missing or the two do not match.
    """
    if name == BUILTIN:
        folder = ASSETS / "pair"
        target, draft = str(folder / "target"), str(folder / "draft")
    else:
        target, plus, draft = name.partition("+")
        if not (plus and target.strip() and draft.strip()):
            raise PairError(f"{name!r} is no pair: write 'builtin' or 'target-id+draft-id'.")
    target, draft = target.strip(), draft.strip()
    return Pair(
        target=_load_model(target),
        draft=_load_model(draft),
        tokenizer=_load_tokenizer(target),
        draft_tokenizer=_load_tokenizer(draft),
        name=name,
    )


def best_device() -> torch.device:
    """The CUDA device of this machine, or its CPU.

    Apple's GPUs lack the fp64 that exact draws need, and small models are fast on a CPU.
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _load_model(name: str) -> Any:
    device = best_device()
    dtype = torch.float32 if device.type == "cpu" else "auto"
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    except Exception as error:  # damaged files make transformers raise nearly anything
        raise PairError(_why_not(name, error)) from error
    return model.to(device).eval()


def _load_tokenizer(name: str) -> Any:
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:
        raise PairError(_why_not(name, error)) from error


def _why_not(name: str, error: Exception) -> str:
    folder, text = Path(name), str(error)
    shown = folder.name if folder.is_absolute() else name
    if any(sign in text for sign in ("gated repo", "401 Client Error", "403 Client Error")):
        return f"{shown} is gated: accept its licence on its hub page and set HF_TOKEN."
    if isinstance(error, ImportError):
        return f"{shown} needs a package that is not installed: {text.strip().splitlines()[0]}"
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return f"{shown} does not fit into memory: choose a smaller model."
    empty = folder.is_dir() and not (folder / "config.json").is_file()
    signs = ("Unrecognized", "AutoModelForCausalLM", "does not recognize")
    if not empty and any(sign in text for sign in signs):
        return f"{shown} is not a causal language model that transformers knows."
    return (
        f"{shown} cannot be loaded: check the name, the network and that the folder holds "
        "config.json, *.safetensors and a tokenizer."
    )
