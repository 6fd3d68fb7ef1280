"""Files that are whole or not there: each is written beside its place, and then moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from ..errors import SpecvizError, ran_out_of_memory


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn a failure to write to `path` within the block into a `SpecvizError`."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        # torch and safetensors report a full disk as errors of their own.
        if ran_out_of_memory(error):
            raise
        why = (getattr(error, "strerror", None) or str(error)).strip().splitlines()[0]
        raise SpecvizError(
            f"{path} cannot be written ({why}): free some space or choose another folder; what "
            "was saved before is whole, and the same command continues from it."
        ) from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to; after the block the file moves to `path`. Raises `SpecvizError`."""
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
