"""The shape of the repository: allowed imports, and facts of the README and other documents."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from places import ROOT

PACKAGE = ROOT / "specviz"

# Only these modules use the caches of transformers: engines roll them back, the metadata checks
# whether that is possible, and training writes text.
CACHE_ROOMS = {
    "core.eager",
    "core.running_engine",
    "core.running_states",
    "sides.fast_gpu.cache",
    "sides.fast_gpu.support",
    "sides.fast_gpu.llama_pass",
    "sides.fast_gpu.triton_pass",
    "sides.heads.eagle",
    "sides.heads.mtp",
    "measure.bench.batch",
    "files.metadata",
    "train",
}


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """The dotted name inside the package; the package itself is ""."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in python_files()}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements within a node, at any depth."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(node, part, ()):
            yield statement
            yield from statements(statement)


@cache
def imported_names(path: Path, within: ast.AST | None = None) -> list[str]:
    """List the dotted names that a file imports, at its top or inside a function. within: the part
    of the file to search, by default all of it."""
    package = ["specviz", *path.relative_to(PACKAGE).parts[:-1]]
    names = []
    for node in statements(within or tree_of(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names += [f"{source}.{alias.name}" for alias in node.names]
    return names


def module_of(name: str) -> str | None:
    """The module of this package that contains a dotted name: `from .trace import Round` names
    something inside `trace`. None for a name of another package."""
    if name.split(".")[0] != "specviz":
        return None
    inner = name.removeprefix("specviz").removeprefix(".")
    return inner if inner in MODULES else inner.rpartition(".")[0]


def imported_modules(path: Path) -> set[str]:
    """The modules of this package that a file imports; "" is the package itself."""
    modules = map(module_of, imported_names(path))
    return {module for module in modules if module is not None}


def top(module: str) -> str:
    return module.split(".")[0]


def side(module: str) -> str:
    """The folder in `sides` that contains a module."""
    return module.split(".")[1]


ROOMS = (
    "base",
    "core",
    "files",
    "remote",
    "sides",
    "pairs",
    "runs",
    "inspect",
    "audit",
    "measure",
    "train",
    "worker",
    "page",
)
"""The rooms of the package from the lowest up; modules outside the rooms are above all."""


def height(module: str) -> int:
    room = top(module)
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def test_every_room_has_its_height():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ROOMS)


def test_a_room_imports_only_rooms_below_it():
    """This includes imports in functions and for type checkers."""
    for name, path in MODULES.items():
        above = [other for other in imported_modules(path) if height(other) > height(name)]
        assert not above, name


def test_a_side_imports_no_other_side():
    for name, path in MODULES.items():
        if name.startswith("sides."):
            others = {side(other) for other in imported_modules(path) if top(other) == "sides"}
            assert others <= {side(name)}, name


def test_nobody_imports_from_the_face_of_the_package():
    for name, path in MODULES.items():
        assert not name or "" not in imported_modules(path), name


def imports_at_run_time(path: Path) -> set[str]:
    """The modules of this package that a file imports at its top or in functions, except those for
    type checkers only."""
    for_types = {
        name
        for node in tree_of(path).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for name in imported_names(path, node)
    }
    names = set(imported_names(path)) - for_types
    return {module for name in names if (module := module_of(name))}


def test_no_module_imports_itself_through_others():
    graph = {name: imports_at_run_time(path) - {name} for name, path in MODULES.items() if name}
    while graph:
        leaves = {name for name, imports in graph.items() if not imports & graph.keys()}
        assert leaves, f"a circle of imports among {sorted(graph)}"
        graph = {name: imports for name, imports in graph.items() if name not in leaves}


def test_only_the_page_knows_gradio():
    for name, path in MODULES.items():
        if top(name) != "page":
            assert not any(top(one) == "gradio" for one in imported_names(path)), name


def test_only_engines_know_the_cache_of_transformers():
    for module, path in MODULES.items():
        if {top(module), module} & CACHE_ROOMS:
            continue
        for name in imported_names(path):
            if top(name) == "transformers":
                known = "cache_utils" in name or name.endswith("Cache")
                assert not known, f"{module} imports {name}"


def test_the_package_says_what_it_is_for_and_offers_what_it_names():
    """All names of its table can be imported, and no other names."""
    module = import_module("specviz")
    assert module.__doc__ and len(module.__doc__.splitlines()) == 1
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_importing_the_package_does_not_import_gradio():
    code = "import specviz, sys; sys.exit('gradio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def tracked_files() -> list[Path]:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_line_of_a_script_is_too_long_to_be_read():
    """ruff checks the lines of Python."""
    long_lines = [
        f"{path.name}:{number}"
        for path in sorted((ROOT / "assets" / "page").rglob("*.js"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > 110
    ]
    assert long_lines == []


def test_no_file_needs_large_file_storage():
    """A Space accepts files up to 10 MB without large file storage."""
    for path in tracked_files():
        if path.is_file():
            assert path.stat().st_size <= 9.5e6, path


def readme_parts() -> tuple[dict, str]:
    _, front, body = (ROOT / "README.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(front), body


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_relative_links_lead_somewhere(document: str):
    text = (ROOT / document).read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    links += re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)
    for link in links:
        if not link.startswith(("http://", "https://", "#", "mailto:")):
            assert (ROOT / link.split("#")[0]).exists(), f"{document} links to {link}"


def test_front_matter_is_what_a_space_expects():
    front, _ = readme_parts()
    assert front["sdk"] == "gradio"
    assert (ROOT / front["app_file"]).is_file()
    assert len(front["short_description"]) <= 60  # the hub refuses more
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {front["colorFrom"], front["colorTo"]} <= colours
    assert front["license"] == "apache-2.0"


def test_a_space_installs_a_gradio_that_the_requirements_allow():
    from packaging.requirements import Requirement

    front, _ = readme_parts()
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    gradio = next(one for one in wanted if one.name == "gradio")
    assert gradio.specifier.contains(str(front["sdk_version"]))


def test_the_two_commands_come_right_after_the_picture():
    _, body = readme_parts()
    commands = re.findall(r"^(make \w+) *(?:#.*)?$", body, re.MULTILINE)
    assert commands[:2] == ["make run", "make test"]


def test_commits_are_checked_as_make_check_does():
    """Hooks use the environment's own tools: a tool of another version could disagree."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    (repo,) = config["repos"]
    assert repo["repo"] == "local"
    assert {hook["language"] for hook in repo["hooks"]} == {"system"}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (targets,) = re.findall(r"^check:(.*)$", makefile, re.MULTILINE)
    entries = [hook["entry"] for hook in repo["hooks"]]
    assert [f"make {target}" for target in targets.split()] == entries[1:]


def test_every_verb_of_make_is_explained():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (verbs,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    (parts,) = re.findall(r"^check:(.*)$", makefile, re.MULTILINE)
    defined = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    explained = set(re.findall(r"^# make (\w+) ", makefile, re.MULTILINE))
    assert set(verbs.split()) == defined
    assert explained == defined - set(parts.split())
    listed = re.findall(
        r"^\| `make (\w+)` ", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
    )
    assert set(listed) == explained - {"clean"}
