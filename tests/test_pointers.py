"""Files, modules and their contents that docstrings, comments and documents name in backticks
exist."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from places import ROOT

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
"""Folders from which paths in texts may start, in addition to the folder of the text's own file."""

NAMED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:py|js|ts|md|css|json|toml|txt|html|yml)|(?:[\w-]+/)+")
DOTTED = re.compile(r"[a-zA-Z_]\w*(?:\.[a-zA-Z_]\w*)+(?:\(\))?")

CALLED = re.compile(r"[a-zA-Z_]\w*\(\)")
FILE = re.compile(r"(?<![\w/.<>*-])(?:[\w-]+/)*[\w-]+\.(?:py|js)(?![\w/])")
"""A pattern for our files in texts, even without backticks."""

PYTHON = re.compile(
    r'(?P<prose>#[^\n]*|(?<!\w)"""(?:[^\\]|\\.)*?""")|"""(?:[^\\]|\\.)*?"""'
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'",
    re.DOTALL,
)
"""A pattern for the comments and docstrings of a module; it skips other strings."""

WRITTEN = ("build/", "sweep.csv", "sweep.json", "sweep.html", "distillation.json", "training.json")
"""Files that commands write."""

OF_OTHERS = {
    "cautious/",  # a package that a reader writes
    "cautious.py",
    "lasttoken.py",
    "options.checkpoint",
    "sharper.py",
    "specviz.drafters",  # a group of entry points
    "torch/_inductor/cudagraph_trees.py",
    "Page.evaluate",
}
"""Names that belong to other packages, or are values of command lines."""


def sources() -> list[Path]:
    python = [*(ROOT / "specviz").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    script = [*(ROOT / "assets" / "page").rglob("*.js"), *(ROOT / "tests" / "node").glob("*.js")]
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    return sorted([*python, *script, *documents])


def prose_of(path: Path) -> Iterator[str]:
    """The docstrings and comments of a module, or the whole text of a document."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        yield from filter(None, (found["prose"] for found in PYTHON.finditer(text)))
    elif path.suffix == ".js":
        yield from re.findall(r"//[^\n]*|/\*.*?\*/", text, re.DOTALL)
    else:
        yield text


@cache
def modules() -> list[tuple[str, str]]:
    """The last part of each module's name, and the module's text."""
    paths = [*(ROOT / "specviz").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    return [
        (path.parent.name if path.stem == "__init__" else path.stem, path.read_text("utf-8"))
        for path in paths
    ]


@cache
def tree_of(text: str) -> ast.AST:
    return ast.parse(text)


@cache
def definitions(module: str) -> set[str] | None:
    """The names that modules of this name bind at any depth; None if there is no such module."""
    trees = [tree_of(text) for name, text in modules() if name == module]
    names: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.alias):
                names.add((node.asname or node.name).split(".")[0])
    return names if trees else None


@cache
def members(owner: str) -> set[str] | None:
    """The attributes and methods of classes of this name; None if there is no such class."""
    classes = [
        node
        for _, text in modules()
        if f"class {owner}" in text
        for node in ast.walk(tree_of(text))
        if isinstance(node, ast.ClassDef) and node.name == owner
    ]
    names: set[str] = set()
    for declared in classes:
        for node in ast.walk(declared):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                names.add(node.name)
            elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names if classes else None


@cache
def basenames() -> set[str]:
    """The names of all files and folders of the repository, without their folders."""
    rooms = ("specviz", "assets", "tests", "docs", "scripts")
    found = {path.name for room in rooms for path in (ROOT / room).rglob("*")}
    return found | {path.name for path in ROOT.iterdir()}


def is_there(name: str, source: Path) -> bool:
    """Check whether a name in a text exists, if it is a path or a name of ours."""
    if name.startswith(WRITTEN) or name in OF_OTHERS:
        return True
    if PATH.fullmatch(name):
        if name.rstrip("/") in basenames():
            return True
        # The browser's modules are imported as "specviz/...".
        names = {name, name.removeprefix("specviz/")}
        return any(
            (folder / name).exists() for folder in (source.parent, *FOLDERS) for name in names
        )
    if DOTTED.fullmatch(name):
        *owners, last = name.removesuffix("()").split(".")
        owner = owners[-1]
        if (of_class := members(owner)) is not None:
            return last in of_class
        of_module = definitions(owner)
        if of_module is not None and (len(owners) == 1 or owners[0] != owner):
            return last in of_module or any(last == module for module, _ in modules())
    if CALLED.fullmatch(name) and source.suffix == ".py":
        function = name.removesuffix("()")
        bound = re.compile(rf"\b(?:def|class|as) {function}\b|\b{function} = ")
        return function in dir(builtins) or any(bound.search(text) for _, text in modules())
    return True


def test_what_texts_name_is_there() -> None:
    missing = {}
    for path in sources():
        prose = list(prose_of(path))
        named = {name for text in prose for name in (*NAMED.findall(text), *FILE.findall(text))}
        if absent := {name for name in named if not is_there(name, path)}:
            missing[str(path.relative_to(ROOT))] = absent
    assert missing == {}
