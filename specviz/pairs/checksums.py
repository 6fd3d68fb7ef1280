"""Checksums of a model's files: a list beside them, in the format of the command `sha256sum`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..errors import PairError

LIST = "SHA256SUMS"
RESTORE = "restore it with 'git checkout assets/pair', or install specviz again"


def write_checksums(folder: Path) -> None:
    """Write the list of all files of a folder, beside them. It replaces an earlier one."""
    lines = [f"{sha256(path)}  {path.name}\n" for path in _files(folder)]
    (folder / LIST).write_text("".join(lines), "utf-8")


def check_files(folder: Path) -> None:
    """Compare the files of a folder with its list. Raises `PairError` with one sentence if a file
    was changed, is missing or is not in the list: it might be read in place of another."""
    wanted = _listed(folder)
    found = {path.name: path for path in _files(folder)}
    for name in sorted(wanted.keys() | found.keys()):
        file = f"the file {folder.name}/{name} of the built-in pair"
        if name not in wanted:
            raise PairError(f"{file} is not one of its own: remove it.")
        if name not in found:
            raise PairError(f"{file} is missing: {RESTORE}.")
        if sha256(found[name]) != wanted[name]:
            raise PairError(f"{file} is damaged or was changed: {RESTORE}.")


def _listed(folder: Path) -> dict[str, str]:
    """SHA-256 in hexadecimal digits by file name."""
    try:
        lines = (folder / LIST).read_text("utf-8").splitlines()
        return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError) as error:
        raise PairError(
            f"the file {folder.name}/{LIST} of the built-in pair cannot be read: {RESTORE}."
        ) from error


def _files(folder: Path) -> list[Path]:
    """The files of a folder by name, without the list and without hidden ones."""
    names = (path for path in folder.glob("[!.]*") if path.is_file() and path.name != LIST)
    return sorted(names)


def sha256(path: Path) -> str:
    """Of a file. Raises `PairError` if it cannot be read."""
    try:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(1 << 22):
                digest.update(piece)
        return digest.hexdigest()
    except OSError as error:
        raise PairError(
            f"the file {path.parent.name}/{path.name} cannot be read ({error.strerror}): see that "
            "whoever runs the program may read it."
        ) from error
