"""What the weight files of a local folder hold, read from their headers alone."""

from __future__ import annotations

import json
from pathlib import Path

from huggingface_hub import hf_hub_download
from safetensors import SafetensorError, safe_open

from ..errors import PairError
from .hub import general_sentence
from .weights import ModelSource, hub_options

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def folder_weights(source: ModelSource) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights in a local folder, by name.

    Raises `PairError` if files are missing or damaged.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(source):
        try:
            with safe_open(path, "pt") as file:  # which looks whether the file is whole
                for name in file.offset_keys():
                    shapes[name] = tuple(file.get_slice(name).get_shape())
        except (OSError, SafetensorError) as error:
            raise PairError(
                f"{source.shown} has a damaged or incomplete file {path.name}: download it again."
            ) from error
    return shapes


def weight_names(source: ModelSource) -> set[str] | None:
    """The names of a model's weights; None for one of the hub without an index of its files, or if
    the index cannot be read now. Raises `PairError` if files of a folder are missing or damaged."""
    if source.folder is not None:
        return set(folder_weights(source))
    try:
        offline = bool(hub_options(source)["local_files_only"])
        path = hf_hub_download(source.name, INDEX, local_files_only=offline)
        return set(json.loads(Path(path).read_text("utf-8"))["weight_map"])
    except Exception:  # the hub's client raises errors of many kinds
        return None


def weight_files(source: ModelSource) -> list[Path]:
    folder = source.folder
    assert folder is not None
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        raise PairError(no_safetensors(source.shown, {path.name for path in folder.iterdir()}))
    try:
        names = set(json.loads((folder / INDEX).read_text("utf-8"))["weight_map"].values())
        return [folder / str(name) for name in sorted(names)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PairError(f"{source.shown} has a damaged {INDEX}: download it again.") from error


def no_safetensors(shown: str, files: set[str]) -> str:
    """The sentence that rejects a model without safetensors files. files: their names."""
    if any(name.endswith(PICKLES) for name in files):
        return (
            f"{shown} has its weights only as pickles, which can run any code while they load: "
            "save it again as safetensors, or choose another model."
        )
    return general_sentence(shown)
