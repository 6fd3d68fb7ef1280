"""GGUF files as folders of safetensors in bf16: unpacked once, kept in the user's cache folder."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from ..base.errors import PairError, ran_out_of_memory
from ..base.variables import CACHE
from .checksums import check_files, write_checksums
from .gguf.header import GgufHeader, unreadable
from .gguf.keys import checked_gguf
from .gguf.tokenizer import can_be_saved, end_ids_of, read_gguf_tokenizer
from .gguf.weights import read_tensor, unpacked_config, weights_of
from .memory import shown_bytes
from .metadata import ModelMetadata, meta_model, read_metadata
from .model_files import cache_folder, digest_of
from .progress import Progress, Watcher
from .source import ModelSource

VERSION = 3  # of the unpacked folders; other versions are unpacked again


def unpacked(path: Path, name: str | None = None, on_progress: Watcher | None = None) -> Path:
    """The folder with the model of a GGUF file, unpacked if that has not been done before.

    name: of the model and of the folder, instead of the file's own. Of two processes that ask at
    once, one waits for the other. Raises `PairError`.
    """
    header = checked_gguf(path)
    digest = digest_of(path)
    home = cache_folder() / "gguf" / f"{digest[:24]}-{VERSION}"
    # Characters that some system does not allow in a folder's name are replaced.
    allowed_name = re.sub(r"[^\w. ()+-]+", "-", name or header.name)
    folder_name = allowed_name.strip(" .-")[:80]
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
            f"{path.name} cannot be unpacked into {cache_folder()} ({why}), where it needs "
            f"{shown_bytes(header.unpacked)}: free some space there, or set {CACHE.name} to "
            "another folder."
        ) from error
    return folder


def unpacked_metadata(path: Path, name: str | None, on_progress: Watcher | None) -> ModelMetadata:
    """Unpack a file and return the metadata of its model, with the tokenizer of the file itself.
    Raises `PairError`; see `unpacked`."""
    tokenizer = _tokenizer(checked_gguf(path))
    folder = unpacked(path, name, on_progress)
    return read_metadata(str(folder), tokenizer)


def header_metadata(header: GgufHeader) -> ModelMetadata:
    """The metadata of the model in a file that is not unpacked yet. Raises `PairError`."""
    model = _described_model(header)
    source = ModelSource(header.name, header.path)
    return ModelMetadata(source, model, _tokenizer(header))


def _described_model(header: GgufHeader) -> Any:
    """The model of a file on the `meta` device, after a check that the file has all of its
    weights. Raises `PairError`."""
    try:
        config = unpacked_config(header)
        config.dtype = torch.bfloat16
        model = meta_model(config)
    except PairError:
        raise
    except Exception as error:  # a wrong header makes transformers raise anything
        raise PairError(unreadable(header)) from error
    weights_of(header, model)
    return model


def _tokenizer(header: GgufHeader) -> Any:
    try:
        return read_gguf_tokenizer(header)
    except PairError:
        raise
    except Exception as error:  # a wrong header makes the library raise anything
        raise PairError(unreadable(header)) from error


def _unpack(header: GgufHeader, digest: str, folder: Path, on_progress: Watcher | None) -> None:
    if on_progress is not None:
        size = shown_bytes(header.unpacked)
        on_progress(Progress(f"unpacking {folder.name}, once ({size})"))
    shutil.rmtree(folder, ignore_errors=True)  # damaged, or left by a killed process
    folder.mkdir(parents=True)
    try:
        _write(header, digest, folder, on_progress)
        write_checksums(folder)  # without this list it is unpacked again
    except BaseException:
        shutil.rmtree(folder.parent, ignore_errors=True)
        raise


def _write(header: GgufHeader, digest: str, folder: Path, on_progress: Watcher | None) -> None:
    """Write the model in transformers' format, and its tokenizer if transformers can save it."""
    tokenizer = _tokenizer(header)
    model = _described_model(header)
    weights = weights_of(header, model)
    content = np.memmap(header.path, np.uint8, mode="c")
    state: dict[str, torch.Tensor] = {}
    for done, (name, weight) in enumerate(weights.items()):
        numbers = weight.convert(read_tensor(content, header, weight.tensor))
        state[name] = numbers.to(torch.bfloat16).contiguous()
        if on_progress is not None:
            on_progress(Progress(f"unpacking {folder.name}", done / len(weights)))
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    if missing := [name for name, weight in model.named_parameters() if weight.is_meta]:
        raise PairError(
            f"{header.path.name} lacks weights, such as {missing[0]}: download it again."
        )
    model.generation_config.eos_token_id = end_ids_of(header) or tokenizer.eos_token_id
    model.config.gguf_digest = f"sha256:{digest}"
    model.config.dtype = torch.bfloat16
    model.save_pretrained(folder)
    if can_be_saved(tokenizer):
        tokenizer.save_pretrained(folder)
