"""Checksums of a folder's files, in a list next to them."""

from __future__ import annotations

from pathlib import Path

from ..base.errors import PairError

LIST = "SHA256SUMS"
RESTORE = "restore it with 'git checkout assets/pair', or install specviz again"


def write_checksums(folder: Path) -> None:
    """Write the list of all files of a folder next to them, in the format of the command
    `sha256sum`. It replaces an earlier list."""
    lines = [f"{line}\n" for line in _sums(folder)]
    (folder / LIST).write_text("".join(lines), "utf-8")


def check_files(folder: Path) -> None:
    """Compare the files of a folder with its list. Raises `PairError` with one sentence if a file
    was changed, is missing or is not in the list: a foreign file might be read instead
    of another."""
    try:
        listed = (folder / LIST).read_text("utf-8").splitlines()
    except (OSError, ValueError):
        listed = []
    differing_lines = set(listed) ^ set(_sums(folder))
    if not listed:
        raise _wrong_file(folder, LIST)
    if differing_lines:
        names = [line.partition("  ")[2] for line in differing_lines]
        raise _wrong_file(folder, min(names) or LIST)


def _wrong_file(folder: Path, name: str) -> PairError:
    return PairError(
        f"the file {folder.name}/{name} of the built-in pair is missing, modified or unexpected: "
        f"{RESTORE}."
    )


def _sums(folder: Path) -> list[str]:
    """The lines of a folder's list, without those of the list itself and of hidden files."""
    lines = []
    for path in sorted(folder.glob("[!.]*")):
        if path.is_file() and path.name != LIST:
            lines.append(f"{sha256(path)}  {path.name}")
    return lines


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal. Raises `PairError` if it cannot be read."""
    from huggingface_hub.utils.sha import sha_fileobj

    try:
        with path.open("rb") as file:
            return sha_fileobj(file).hex()
    except OSError as error:
        raise PairError(
            f"the file {path.parent.name}/{path.name} cannot be read ({error.strerror}): check "
            "its permissions."
        ) from error
