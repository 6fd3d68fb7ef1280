"""What docstrings, comments and documents name in backticks is there: files, modules and what is in
them."""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    ROOT,
    ROOT / "specviz",
    ROOT / "specviz" / "page",
    ROOT / "assets",
    ROOT / "assets" / "page",
    ROOT / "tests",
    ROOT / "tests" / "helpers",
    ROOT / "docs",
    ROOT / "scripts",
)
"""Where the paths in texts begin, beside the folder of the text's own file."""

NAMED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:py|js|ts|md|css|json|toml|txt|html|yml)|(?:[\w-]+/)+")
DOTTED = re.compile(r"[a-zA-Z_]\w*(?:\.[a-zA-Z_]\w*)+(?:\(\))?")

CALLED = re.compile(r"[a-zA-Z_]\w*\(\)")
FILE = re.compile(r"(?<![\w/.<>*-])(?:[\w-]+/)*[\w-]+\.(?:py|js)(?![\w/])")
"""A file of ours that a text names, also without backticks."""

WRITTEN = ("build/", "sweep.csv", "sweep.json", "sweep.html", "distillation.json", "training.json")
"""What commands write."""

OF_OTHERS = {
    "lasttoken.py",  # a module that a reader writes
    "options.checkpoint",
    "sharper.py",  # another one
    "torch/_inductor/cudagraph_trees.py",
    "Page.evaluate",
}
"""What belongs to other packages, or is a value of a command line."""


def sources() -> list[Path]:
    python = [*(ROOT / "specviz").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    script = [*(ROOT / "assets" / "page").rglob("*.js"), *(ROOT / "tests" / "node").glob("*.js")]
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    return sorted([*python, *script, *documents])


def prose_of(path: Path) -> Iterator[str]:
    """The docstrings and comments of a module, or the whole of a document."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            is_docstring = token.type == tokenize.STRING and token.string.startswith('"""')
            if token.type == tokenize.COMMENT or is_docstring:
                yield token.string
    elif path.suffix == ".js":
        yield from re.findall(r"//[^\n]*|/\*.*?\*/", text, re.DOTALL)
    else:
        yield text


class Names(NamedTuple):
    """The names that are bound in each module, at any depth, by the last part of its name; and the
    attributes and methods of each class."""

    definitions: dict[str, set[str]]
    members: dict[str, set[str]]


@cache
def names() -> Names:
    found = Names({}, {})
    for path in [*(ROOT / "specviz").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        name = path.parent.name if path.stem == "__init__" else path.stem
        module = found.definitions.setdefault(name, set())
        add_names(ast.parse(path.read_text("utf-8")), module, [], found)
    return found


def add_names(node: ast.AST, module: set[str], classes: list[set[str]], found: Names) -> None:
    """Add what is bound below a node to its module, and to each of the classes around it."""
    for child in ast.iter_child_nodes(node):
        inner = classes
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            bind(child.name, module, *classes)
        elif isinstance(child, ast.ClassDef):
            module.add(child.name)
            inner = [*classes, found.members.setdefault(child.name, set())]
        elif isinstance(child, ast.Name):
            if isinstance(child.ctx, ast.Store):
                bind(child.id, module, *classes)
            continue
        elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            bind(child.attr, *classes)
        elif isinstance(child, ast.alias):
            module.add((child.asname or child.name).split(".")[0])
        elif isinstance(child, (ast.Constant, ast.expr_context)):
            continue
        add_names(child, module, inner, found)


def bind(name: str, *scopes: set[str]) -> None:
    for scope in scopes:
        scope.add(name)


@cache
def basenames() -> set[str]:
    """The names of all files and folders of the repository, without their folders."""
    rooms = ("specviz", "assets", "tests", "docs", "scripts")
    found = {path.name for room in rooms for path in (ROOT / room).rglob("*")}
    return found | {path.name for path in ROOT.iterdir()}


def is_there(name: str, source: Path) -> bool:
    """Whether what a text names is there, as far as it is a path or a name of ours."""
    if name.startswith(WRITTEN) or name in OF_OTHERS:
        return True
    if PATH.fullmatch(name):
        if name.rstrip("/") in basenames():
            return True
        # The browser's modules are imported as "specviz/...".
        paths = {name, name.removeprefix("specviz/")}
        return any(
            (folder / path).exists() for folder in (source.parent, *FOLDERS) for path in paths
        )
    if DOTTED.fullmatch(name):
        *owners, last = name.removesuffix("()").split(".")
        owner = owners[-1]
        if owner in names().members:
            return last in names().members[owner]
        if owner in names().definitions and (len(owners) == 1 or owners[0] != owner):
            return last in names().definitions[owner] or last in names().definitions
    if CALLED.fullmatch(name) and source.suffix == ".py":
        function = name.removesuffix("()")
        known = [*names().definitions.values(), *names().members.values(), set(dir(builtins))]
        return any(function in names for names in known)
    return True


def test_what_texts_name_is_there() -> None:
    missing = {}
    for path in sources():
        prose = list(prose_of(path))
        named = {name for text in prose for name in (*NAMED.findall(text), *FILE.findall(text))}
        if absent := {name for name in named if not is_there(name, path)}:
            missing[str(path.relative_to(ROOT))] = absent
    assert missing == {}
