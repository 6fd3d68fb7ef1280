"""The models that the hub's client, Ollama, LM Studio and llama.cpp keep on this machine, by the
names that those programs give them. This module reads folders and manifests, never a model.

A name begins with its store, as in "ollama:qwen2.5:0.5b", and stands for a file or a folder of the
store (`stored_path`). Links that lead out of a store are never followed.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

Reason: TypeAlias = Literal["broken", "link", "kind", "name"]
"""Why a model is not listed: it is damaged or incomplete; a link leads out of its store; it is not
one of the language models that are read here; a pair's name cannot hold its name."""

_SKIPPED: dict[Reason, str] = {
    "broken": "{} damaged or incomplete",
    "link": "{} behind a link that leaves its folder",
    "kind": "{} of an unsupported kind",
    "name": "{} with a name that cannot be typed",
}

GGUF = ".gguf"
SAFETENSORS = ".safetensors"
MAX_NAME = 140  # characters: two such names still make a pair's
MAX_MODELS = 1000  # of one store
MAX_ENTRIES = 20_000  # files and folders of one store that are visited
MAX_DEPTH = 5  # folders below a store
MAX_JSON = 1_000_000  # bytes of a manifest
OLLAMA = "ollama"
OLLAMA_HOST = "registry.ollama.ai"
OLLAMA_OWNER = "library"
OLLAMA_MODEL = "application/vnd.ollama.image.model"
OLLAMA_ADAPTER = "application/vnd.ollama.image.adapter"
HUB_PREFIX = "models--"

_BLOB = re.compile(r"sha256-[0-9a-f]{64}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class StoredModel:
    """A model of a store."""

    name: str  # as part of a pair's name
    path: Path  # its GGUF file, or the folder with its safetensors
    id: str | None = None  # its hub id, if it is in the hub's cache as safetensors


@dataclass
class Listing:
    """The models of all stores. skipped: the number of models left out, by reason."""

    models: list[StoredModel] = field(default_factory=list)
    skipped: Counter[Reason] = field(default_factory=Counter)

    @property
    def sentence(self) -> str:
        """A sentence about the models left out; empty if there are none."""
        parts = []
        for reason, sentence_part in _SKIPPED.items():
            count = self.skipped[reason]
            if count:
                parts.append(sentence_part.format(count))
        if not parts:
            return ""
        return f"Not listed: {', '.join(parts)}."


class _LeavesStore(Exception):
    """A link leads out of its store."""


class _Broken(Exception):
    """A file is damaged or missing."""


class _OtherKind(Exception):
    """A file or a folder is not a language model that is read here."""


Candidate: TypeAlias = tuple[str, Callable[[], StoredModel]]
"""The name of a model in its store, and a function that finds its files or raises one of the three
errors above."""


@dataclass(frozen=True)
class Store:
    """The models that one program keeps."""

    prefix: str  # begins their names
    label: str  # the store's name for people
    roots: Callable[[], list[Path]]  # its folders, which need not exist
    candidates: Callable[[Path], Iterator[Candidate]]  # finds the models in one of them


def list_models() -> Listing:
    """List the models of all stores, each file once."""
    listing = Listing()
    known: set[Path] = set()
    for store in STORES:
        count = 0
        for name, find in _all_candidates(store):
            model = _find_candidate(store, name, find, listing.skipped)
            if model is None:
                continue
            file = model.path.resolve()
            if file in known or count == MAX_MODELS:
                continue
            known.add(file)
            count += 1
            listing.models.append(model)
    return listing


def is_stored(name: str) -> bool:
    """Whether a name begins with a store, whether that has the model or not."""
    return store_of(name) is not None


def store_of(name: str) -> Store | None:
    """The store that a name begins with."""
    for store in STORES:
        if name.startswith(f"{store.prefix}:"):
            return store
    return None


def short_name(name: str) -> str:
    """A model's name without its store."""
    store = store_of(name)
    if store is None:
        return name
    return name.removeprefix(f"{store.prefix}:")


def stored_model(name: str) -> StoredModel | None:
    """The model with this name, if its store has it."""
    store = store_of(name)
    if store is None:
        return None
    for candidate, find in _all_candidates(store):
        if f"{store.prefix}:{candidate}" == name:
            return _find_candidate(store, candidate, find, Counter())
    return None


def stored_path(name: str) -> Path | None:
    """The file or the folder of the model with this name, if its store has it."""
    model = stored_model(name)
    if model is None:
        return None
    return model.path


def _all_candidates(store: Store) -> Iterator[Candidate]:
    # There may be no home folder, and some folders may be unreadable.
    with suppress(RuntimeError, OSError):
        for root in store.roots():
            if os.path.isdir(root):
                yield from store.candidates(root)


def _find_candidate(
    store: Store, name: str, find: Callable[[], StoredModel], skipped: Counter[Reason]
) -> StoredModel | None:
    """The model of a candidate, or None if it is left out, which `skipped` counts."""
    if not _can_be_typed(name):
        skipped["name"] += 1
        return None
    try:
        model = find()
    except _LeavesStore:
        skipped["link"] += 1
    except _OtherKind:
        skipped["kind"] += 1
    except (_Broken, OSError, ValueError, RecursionError):
        skipped["broken"] += 1
    else:
        return StoredModel(f"{store.prefix}:{name}", model.path, model.id)
    return None


def _can_be_typed(name: str) -> bool:
    """Whether a pair's name can hold this name."""
    is_plain = name.isprintable() and name == name.strip() and "://" not in name
    return is_plain and 0 < len(name) <= MAX_NAME


def inside(path: Path, root: Path) -> Path:
    """Return `path` if it is a plain file or folder that is still in `root` after all links are
    resolved. Raises `_LeavesStore`, and `_Broken` if there is neither a file nor a folder."""
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            raise _LeavesStore from error
        raise _Broken from error
    if not real.is_relative_to(root.resolve()):
        raise _LeavesStore
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise _Broken
    return path


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """`folder` and each folder below it, with the names of its files. Linked folders are not
    entered."""
    entries = 0
    for path, folders, files in os.walk(folder, followlinks=False):
        here = Path(path)
        entries += len(folders) + len(files)
        if entries > MAX_ENTRIES:
            return
        if len(here.relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        folders.sort()
        yield here, sorted(files)


def _read_json(path: Path, root: Path) -> Any:
    """Read a small JSON file of a store. Raises as `inside` does, or `ValueError`."""
    path = inside(path, root)
    if path.stat().st_size > MAX_JSON:
        raise _Broken
    return json.loads(path.read_text("utf-8"))


# Ollama: manifests/HOST/OWNER/MODEL/TAG lists a model's layers, which are blobs/sha256-... files.


def _ollama_roots() -> list[Path]:
    """OLLAMA_MODELS, else the user's folder and the one of the service on Linux."""
    folder = os.environ.get("OLLAMA_MODELS")
    if folder:
        return [Path(folder).expanduser()]
    return [Path.home() / ".ollama/models", Path("/usr/share/ollama/.ollama/models")]


def _ollama_candidates(root: Path) -> Iterator[Candidate]:
    manifests = root / "manifests"
    names: list[tuple[bool, str, Path]] = []
    for folder, files in _walk(manifests):
        parts = folder.relative_to(manifests).parts
        if len(parts) < 3:  # a host, an owner and a model
            continue
        for tag in files:
            name = f"{_ollama_name(parts)}:{tag}"
            names.append((tag == "latest", name, folder / tag))
    # Of two names of one file, the more specific one comes first.
    for _, name, manifest in sorted(names):
        yield name, partial(_ollama_model, manifest, root)


def _ollama_name(parts: tuple[str, ...]) -> str:
    """Ollama's name for the model of a manifest's folder."""
    host, *owners, model = parts
    if host != OLLAMA_HOST:
        return "/".join(parts)
    if owners == [OLLAMA_OWNER]:
        return model
    return "/".join([*owners, model])


def _ollama_model(manifest: Path, root: Path) -> StoredModel:
    values = _read_json(manifest, root)
    if not isinstance(values, dict):
        raise _Broken
    listed_layers = values.get("layers")
    if not isinstance(listed_layers, list):
        raise _Broken
    layers = [layer for layer in listed_layers if isinstance(layer, dict)]
    kinds = [layer.get("mediaType") for layer in layers]
    # An adapter changes the model of the file, and a model in the cloud has no file.
    if kinds.count(OLLAMA_MODEL) != 1 or OLLAMA_ADAPTER in kinds:
        raise _OtherKind
    layer = layers[kinds.index(OLLAMA_MODEL)]
    digest = _DIGEST.fullmatch(str(layer.get("digest")))
    if digest is None:
        raise _Broken
    blob = inside(root / "blobs" / f"sha256-{digest[1]}", root)
    size = layer.get("size")
    if isinstance(size, int) and blob.stat().st_size != size:
        raise _Broken
    return StoredModel("", blob)


def blob_name(path: Path) -> str | None:
    """Ollama's name for the model in one of its files; None for other files."""
    if path.parent.name != "blobs" or not _BLOB.fullmatch(path.name):
        return None
    root = path.parent.parent
    with suppress(OSError):
        for name, find in _ollama_candidates(root):
            model = _find_candidate(STORES[0], name, find, Counter())
            if model is not None and model.path.name == path.name:
                return name
    return None


# LM Studio: PUBLISHER/REPOSITORY/FILE.gguf, or a repository's folder of safetensors.


def _lm_studio_roots() -> list[Path]:
    return [Path.home() / ".lmstudio/models", Path.home() / ".cache/lm-studio/models"]


def _lm_studio_candidates(root: Path) -> Iterator[Candidate]:
    for folder, files in _walk(root):
        name = folder.relative_to(root).as_posix()
        for file in files:
            if _is_gguf_model(file):
                path = folder / file
                file_name = path.relative_to(root).as_posix()
                yield file_name, partial(_file, path, root)
        if "config.json" in files and any(file.endswith(SAFETENSORS) for file in files):
            yield name, partial(_folder, folder, root)


# llama.cpp: OWNER_REPOSITORY_FILE.gguf, and manifest=OWNER=REPOSITORY=TAG.json next to it.


def _llama_cpp_roots() -> list[Path]:
    folder = os.environ.get("LLAMA_CACHE")
    if folder:
        return [Path(folder).expanduser()]
    if sys.platform == "darwin":
        return [Path.home() / "Library/Caches/llama.cpp"]
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return [Path(base) / "llama.cpp"]


def _llama_cpp_candidates(root: Path) -> Iterator[Candidate]:
    files = sorted(entry.name for entry in os.scandir(root))[:MAX_ENTRIES]
    named: set[str] = set()
    for manifest in files:
        head, *parts = manifest.removesuffix(".json").split("=")
        if head != "manifest" or len(parts) != 3:
            continue
        owner, repository, tag = parts
        file = _llama_cpp_file(root / manifest, root, f"{owner}_{repository}")
        if file is not None and file in files and file not in named:
            named.add(file)
            name = f"{owner}/{repository}"
            if tag != "latest":
                name = f"{name}:{tag}"
            yield name, partial(_file, root / file, root)
    for file in files:
        if file not in named and _is_gguf_model(file):
            yield file, partial(_file, root / file, root)


def _llama_cpp_file(manifest: Path, root: Path, prefix: str) -> str | None:
    """The name of the file that a manifest describes; None if it cannot be read."""
    try:
        values = _read_json(manifest, root)
        file = values["ggufFile"]["rfilename"]
    except (_Broken, _LeavesStore, OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return f"{prefix}_{file}".replace("/", "_")


# The hub's cache: models--OWNER--MODEL/snapshots/COMMIT/ holds links into blobs/ next to it.


def _hub_roots() -> list[Path]:
    from huggingface_hub import constants

    return [Path(constants.HF_HUB_CACHE)]


def _hub_candidates(root: Path) -> Iterator[Candidate]:
    names = sorted(entry.name for entry in os.scandir(root) if not entry.is_symlink())
    for folder_name in names:
        if not folder_name.startswith(HUB_PREFIX):
            continue
        model_id = folder_name.removeprefix(HUB_PREFIX).replace("--", "/", 1)
        snapshot = _hub_snapshot(root / folder_name, root)
        if snapshot is None:
            continue  # only metadata of the hub was fetched
        files = []
        for folder, file_names in _walk(snapshot):
            for file in file_names:
                path = folder / file
                files.append(path.relative_to(snapshot).as_posix())
        packed = [file for file in files if _is_gguf_model(file.rpartition("/")[2])]
        for file in packed:
            yield f"{model_id}/{file}", partial(_file, snapshot / file, root)
        if "config.json" in files and not packed:
            yield model_id, partial(_folder, snapshot, root, model_id)


def _hub_snapshot(folder: Path, root: Path) -> Path | None:
    """The cached folder of the revision that the hub calls main, or None."""
    try:
        reference = inside(folder / "refs/main", root)
        if reference.stat().st_size >= 100:
            return None
        commit = reference.read_text("ascii").strip()
        if not _COMMIT.fullmatch(commit):
            return None
        return inside(folder / "snapshots" / commit, root)
    except (_Broken, _LeavesStore, OSError, ValueError):
        return None


def _is_gguf_model(file: str) -> bool:
    """Whether a file has a model's name, and not that of an image encoder (mmproj)."""
    name = file.lower()
    return name.endswith(GGUF) and not name.startswith("mmproj")


def _file(path: Path, root: Path) -> StoredModel:
    return StoredModel("", inside(path, root))


def _folder(path: Path, root: Path, model_id: str | None = None) -> StoredModel:
    """The model of a folder whose files are all in its store."""
    for entry in path.iterdir():
        inside(entry, root)
    return StoredModel("", inside(path, root), model_id)


STORES = (
    Store(OLLAMA, "Ollama", _ollama_roots, _ollama_candidates),
    Store("lmstudio", "LM Studio", _lm_studio_roots, _lm_studio_candidates),
    Store("llama.cpp", "llama.cpp", _llama_cpp_roots, _llama_cpp_candidates),
    Store("hub", "the hub's cache", _hub_roots, _hub_candidates),
)
"""All stores, in the order in which their models are listed."""
