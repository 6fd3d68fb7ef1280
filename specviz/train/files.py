"""Files of a training, which are complete or absent: each is written under another name and then
moved."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from ..base.errors import SpecvizError, ran_out_of_memory


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn a failure to write to `path` inside the block into a `SpecvizError`."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        # torch and safetensors report a full disk as errors of their own.
        if ran_out_of_memory(error):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        why = reason.strip().splitlines()[0]
        raise SpecvizError(
            f"{path} cannot be written ({why}): free some space or choose another folder; earlier "
            "checkpoints are intact, and the same command continues from them."
        ) from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to; after the block the file moves to `path`. Raises
    `SpecvizError`."""
    partial = path.with_suffix(".partial")
    try:
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield partial
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def save_array(path: Path, array: np.ndarray) -> None:
    """Write an array to a file of NumPy's own format. Raises `SpecvizError`."""
    with whole_file(path) as partial, partial.open("wb") as handle:
        np.save(handle, array)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to save a model to; after the block its files move to `folder`, where older
    weights are removed. Raises `SpecvizError` if they cannot be written."""
    partial = folder.with_name(folder.name + ".partial")
    with explained(folder):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        folder.mkdir(parents=True, exist_ok=True)
        fresh = {path.name for path in partial.iterdir()}
        for path in folder.glob("model*.safetensors*"):
            if path.name not in fresh:
                path.unlink()
        for path in partial.iterdir():
            path.chmod(0o644)  # safetensors writes files that only their owner can read
            path.replace(folder / path.name)
        partial.rmdir()


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save the tokenizer. Its general class gets a name that old versions of transformers know
    too."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    for local in ("backend", "is_local", "local_files_only"):
        config.pop(local, None)
    if config.get("tokenizer_class") == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2) + "\n")


def digest(model: torch.nn.Module) -> str:
    """A short hash of the weights, for the names of files made with them."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        weights = tensor.detach().cpu().float().numpy()
        total.update(name.encode())
        total.update(weights.tobytes())
    return total.hexdigest()[:12]
