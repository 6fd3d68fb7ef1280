"""GGUF files as folders of safetensors in bf16: unpacked once, kept in the user's cache folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from unittest.mock import patch

import gguf
import torch
from filelock import FileLock
from transformers import AutoConfig, AutoModelForCausalLM

from ..errors import PairError, ran_out_of_memory
from ..variables import CACHE
from .gguf import GgufHeader, checked_gguf, unreadable
from .gguf_tokenizer import end_ids_of, read_gguf_tokenizer
from .load import check_files, write_checksums
from .memory import shown_bytes
from .metadata import ModelMetadata, meta_model
from .model_files import cache_folder, digest_of
from .progress import Progress, Watcher, watched
from .source import ModelSource

VERSION = 2  # of what is kept; another one is unpacked anew

_one_at_a_time = Lock()


def unpacked(path: Path, name: str | None = None, on_progress: Watcher | None = None) -> Path:
    """The folder with the model of a GGUF file, unpacked if that has not been done before.

    name: what the model is called, instead of what the file says; it is the folder's name. Two
    processes may ask at the same time: one waits for the other. Raises `PairError`.
    """
    header = checked_gguf(path)
    digest = digest_of(path)
    home = cache_folder() / "gguf" / f"{digest[:24]}-{VERSION}"
    # Signs that a folder's name may not have on some system are replaced.
    folder_name = re.sub(r"[^\w. ()+-]+", "-", name or header.name).strip(" .-")[:80]
    folder = home / (folder_name or "model")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{home}.lock"):
            try:
                check_files(folder)
            except PairError:
                _unpack(header, digest, folder, on_progress)
    except Exception as error:
        if isinstance(error, PairError) or ran_out_of_memory(error):
            raise
        why = getattr(error, "strerror", None) or type(error).__name__
        raise PairError(
            f"{path.name} cannot be unpacked into {cache_folder()} ({why}), where it takes "
            f"{shown_bytes(header.unpacked)}: make room there, or set {CACHE.name} to another "
            "folder."
        ) from error
    return folder


def header_metadata(header: GgufHeader) -> ModelMetadata:
    """What is known of the model of a file before it is unpacked. Raises `PairError`."""
    try:
        with _parsed_once():
            config = AutoConfig.from_pretrained(
                str(header.path.parent), gguf_file=header.path.name, trust_remote_code=False
            )
            tokenizer = read_gguf_tokenizer(header)
        config.dtype = torch.bfloat16
        return ModelMetadata(ModelSource(header.name, header.path), meta_model(config), tokenizer)
    except Exception as error:
        raise PairError(unreadable(header)) from error


@contextmanager
def _parsed_once() -> Iterator[None]:
    """Within it, a file is parsed once: transformers does so for the config, the tokenizer and the
    weights, and makes a table of names for each module; each takes seconds."""
    with (
        _one_at_a_time,
        patch.multiple(
            gguf,
            GGUFReader=cache(gguf.GGUFReader),
            get_tensor_name_map=cache(gguf.get_tensor_name_map),
        ),
    ):
        yield


def _unpack(header: GgufHeader, digest: str, folder: Path, on_progress: Watcher | None) -> None:
    if on_progress is not None:
        size = shown_bytes(header.unpacked)
        on_progress(Progress(f"unpacking {folder.name}, once ({size})"))
    shutil.rmtree(folder, ignore_errors=True)  # damaged, or of a process that was killed
    folder.mkdir(parents=True)
    try:
        _write(header, digest, folder, on_progress)
        write_checksums(folder)  # without the list it is unpacked anew
    except BaseException:
        shutil.rmtree(folder.parent, ignore_errors=True)
        raise


def _write(header: GgufHeader, digest: str, folder: Path, on_progress: Watcher | None) -> None:
    """Write the model, its tokenizer and its template as transformers keeps them."""
    file = header.path.name
    try:
        with _parsed_once(), watched(on_progress, header.name) as watching:
            tokenizer = read_gguf_tokenizer(header)
            watching.pop("tqdm_class", None)
            model: Any = AutoModelForCausalLM.from_pretrained(
                str(header.path.parent),
                gguf_file=file,
                trust_remote_code=False,
                dtype=torch.bfloat16,
                **plain_weights(file),
                **watching,
            )
    except Exception as error:  # what a header does not show makes transformers raise anything
        if ran_out_of_memory(error) or (isinstance(error, OSError) and error.errno):
            raise
        raise PairError(unreadable(header)) from error
    if not all(bool(torch.isfinite(p).all()) for p in model.parameters()):
        raise PairError(f"{file} holds weights that are no numbers: download it again.")
    model.generation_config.eos_token_id = end_ids_of(header) or tokenizer.eos_token_id
    model.config.gguf_digest = f"sha256:{digest}"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def plain_weights(file: str) -> dict[str, Any]:
    """Options that make transformers unpack all weights, where it would keep them packed."""
    try:
        from transformers.utils.quantization_config import GgufConfig
    except ImportError:  # before transformers 5.23, which always unpacks
        return {}
    return {"quantization_config": GgufConfig(gguf_file=file, dequantize=True)}
