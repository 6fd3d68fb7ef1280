"""What the weight files of a local folder hold, read from their headers alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import hf_hub_download

from ..errors import PairError
from .hub import general_sentence
from .weights import ModelSource, hub_options

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True)
class WeightHeaders:
    """What the headers of a folder's weight files say.

    shapes: of the tensors, by name. bytes: of all files together.
    """

    shapes: dict[str, tuple[int, ...]]
    bytes: int

    @property
    def numbers(self) -> int:
        """How many numbers all tensors hold."""
        return sum(int(torch.Size(shape).numel()) for shape in self.shapes.values())


def folder_weights(source: ModelSource) -> WeightHeaders:
    """The headers of a local folder's weight files.

    Raises `PairError` if files are missing or damaged.
    """
    assert source.folder is not None
    shapes: dict[str, tuple[int, ...]] = {}
    size = 0
    for path in weight_files(source):
        try:
            shapes.update(_header_shapes(path))
            size += path.stat().st_size
        except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
            raise PairError(
                f"{source.shown} has a damaged or incomplete file {path.name}: download it again."
            ) from error
    return WeightHeaders(shapes, size)


def weight_names(source: ModelSource) -> set[str] | None:
    """The names of a model's weights; None for one of the hub without an index of its files, or if
    the index cannot be read now. Raises `PairError` if files of a folder are missing or damaged."""
    if source.folder is not None:
        return set(folder_weights(source).shapes)
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


def _header_shapes(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a safetensors file; raises `ValueError` if the file is incomplete."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > path.stat().st_size:
            raise ValueError("the header is longer than the file")
        header = json.loads(file.read(length))
    end = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            end = max(end, int(tensor["data_offsets"][1]))
            yield name, tuple(int(size) for size in tensor["shape"])
    if 8 + length + end != path.stat().st_size:
        raise ValueError("the file is not as long as its header says")
