"""Models as other programs store them, in folders of a test."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL_LAYER = "application/vnd.ollama.image.model"


def use_stores(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make `home` the user's home, with no other stores."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OLLAMA_MODELS", str(home / ".ollama/models"))
    monkeypatch.delenv("LLAMA_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    return home


def keep_in_ollama(home: Path, file: Path, name: str, **layer: Any) -> Path:
    """Put a file into Ollama's store, under a name such as "qwen2.5:0.5b"; returns its blob.

    layer: wrong values of its manifest.
    """
    root = home / ".ollama/models"
    model, _, tag = name.rpartition(":")
    owner = {0: "registry.ollama.ai/library/", 1: "registry.ollama.ai/"}
    folder = root / "manifests" / f"{owner.get(model.count('/'), '')}{model}"
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    values = {"mediaType": MODEL_LAYER, "digest": f"sha256:{digest}", "size": file.stat().st_size}
    layers = [values | layer, {"mediaType": "application/vnd.ollama.image.license"}]
    (folder / tag).write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    blob = root / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(exist_ok=True)
    shutil.copy(file, blob)
    return blob


def keep_in_lm_studio(home: Path, file: Path, name: str) -> Path:
    """Put a file into LM Studio's folder; returns its path."""
    path = home / ".lmstudio/models" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, path)
    return path


def keep_in_llama_cpp(home: Path, file: Path, repository: str, tag: str, name: str) -> Path:
    """Put a file of a repository into llama.cpp's cache; returns its path."""
    root = home / ".cache/llama.cpp"
    root.mkdir(parents=True, exist_ok=True)
    manifest = f"manifest={repository.replace('/', '=')}={tag}.json"
    (root / manifest).write_text(json.dumps({"ggufFile": {"rfilename": name}}))
    path = root / f"{repository.replace('/', '_')}_{name}"
    shutil.copy(file, path)
    return path


def keep_in_hub(home: Path, files: Iterable[Path], model_id: str) -> Path:
    """Put files of a model into the hub's cache, as links to blobs; returns the snapshot."""
    root = home / "hub" / f"models--{model_id.replace('/', '--')}"
    snapshot = root / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs/main").write_text(COMMIT)
    (root / "blobs").mkdir()
    for file in files:
        blob = root / "blobs" / hashlib.sha1(file.read_bytes()).hexdigest()
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(f"../../blobs/{blob.name}")
    return snapshot
