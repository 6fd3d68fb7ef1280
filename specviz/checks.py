"""What people pass, checked in one place each: a device, a place to write to, the output itself."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import PairError, TraceError

if TYPE_CHECKING:
    import torch

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE)
DEVICES = "use cpu, cuda, or cuda:1 for the second GPU"


def shown(value: object) -> str:
    """What somebody passed, for a sentence: its type and its beginning."""
    return f"{type(value).__name__} {value!r}"[:60]


def checked_device(device: object) -> torch.device | None:
    """The device of this name; None stands for the best one. Raises `PairError` if it is none, or
    if this machine does not have it."""
    import torch

    if device is None:
        return None
    named: Any = device
    if isinstance(device, int) and not isinstance(device, bool):
        named = f"cuda:{device}"
    try:
        found: torch.device = torch.device(named)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        raise PairError(f"{str(named)[:40]!r} is no device: {DEVICES}.") from None
    if found.type not in ("cpu", "cuda", "mps"):
        raise PairError(f"the models do not run on {found.type}: {DEVICES}.")
    if found.type == "cpu" or (found.type == "mps" and torch.backends.mps.is_available()):
        return found
    if found.type == "mps":
        raise PairError("there is no Apple GPU here: leave the device out, or use cpu.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        without = "torch is installed without CUDA"
        why = without if torch.version.cuda is None else "torch finds no GPU that it can use"
        raise PairError(f"there is no {found} here, since {why}: leave the device out, or use cpu.")
    if (found.index or 0) >= count:
        raise PairError(f"there is no {found}: this machine has cuda:0 to cuda:{count - 1}.")
    return found


def check_writable(path: str | Path, *, folder: bool = False) -> None:
    """Raise `TraceError` if nothing could be written there, before the work for it begins.

    folder: it is a folder, which may still have to be made.
    """
    place = Path(path).absolute()
    if place.exists() and place.is_dir() != folder:
        kind = "a file" if folder else "a folder"
        raise TraceError(f"{path} is {kind}: name another place to write to.")
    if folder:
        place = next(one for one in (place, *place.parents) if one.exists())
    elif not place.parent.is_dir():
        raise TraceError(f"there is no folder for {path}: make it first.")
    elif not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        raise TraceError(f"{path} cannot be written: this user may not write to {place}.")


@contextmanager
def to_the_output() -> Iterator[None]:
    """Inside the block, an output that is closed or full is a `TraceError`.

    A reader who has had enough, as `head` has, is a `BrokenPipeError`.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        raise TraceError("the standard output is closed: nothing can be printed.")
    try:
        try:
            yield
        finally:  # also after --help
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        # What cannot be written must not be tried again when the interpreter ends.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            raise BrokenPipeError from None
        raise TraceError(f"the output cannot be written: {error.strerror}.") from None
