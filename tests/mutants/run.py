"""Does a test notice when specviz is wrong? Each mutant of mutants.py is applied to a copy.

    python tests/mutants/run.py [--jobs 2] [--only WORD] [--root CHECKOUT] [--json FILE]

First the tests of the chosen mutants run without one, since tests that fail anyway show nothing.
Then it prints a line for each mutant and the share that the tests killed. Exits with status 1 if a
mutant survives, or if its text is not found: then mutants.py must follow the code.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mutants import MUTANTS, Mutant

HERE = Path(__file__).resolve().parent
# Limits for the tests of one mutant, which may never end: seconds of processor time, and of wall
# time.
MAX_WORK = 240
MAX_SECONDS = 900
COPIED = (
    "specviz",
    "tests",
    "assets",
    "scripts",
    "docs",
    "app.py",
    "setup.py",
    "pyproject.toml",
    "README.md",
)
# Libraries to import once; each mutant's tests run in a fork of this process.
LIBRARIES = (
    "torch",
    "numba",
    "hypothesis",
    "orjson",
    "plotly.graph_objects",
    "gradio",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.generation",
    "transformers.tokenization_utils_tokenizers",
    "pytest",
)
PYTEST = ("-x", "-q", "-m", "not browser", "-p", "no:cacheprovider", "-p", "no:xdist")


LOST = 9
# Exit status of a process -> fate of its mutant. If a test module cannot be imported (2), it has
# noticed the mutant; 3 to 5 mean that pytest itself failed or had nothing to run.
FATES = {0: "alive", 3: "lost", 4: "lost", 5: "lost", LOST: "lost"}


class Lost(Exception):
    """A mutant's text occurs nowhere in the code, or several times."""


class Place(NamedTuple):
    """The position of a mutant's text in a file. begin: in characters."""

    path: Path
    begin: int


def main() -> int:
    options = parsed()
    os.environ |= {"OMP_NUM_THREADS": "1", "GRADIO_ANALYTICS_ENABLED": "False"}
    if not Path("/dev/nvidiactl").exists():
        os.environ["TRITON_INTERPRET"] = "1"  # as tests/conftest.py does, before triton is imported
    # Python would otherwise run old compiled code after a change within the same second.
    sys.dont_write_bytecode = True
    for library in LIBRARIES:
        importlib.import_module(library)
    chosen = [one for one in MUTANTS if options.only in f"{one.area} {one.where} {one.old}"]
    fates: dict[Mutant, str] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        original = copy_of(options.root, Path(folder) / "original")
        free = [copy_of(original, Path(folder) / str(n)) for n in range(options.jobs)]
        if not is_right_code_accepted(chosen, free, options.log):
            print("tests fail without a mutant, so they show nothing: --log FILE keeps which.")
            return 1
        running: dict[int, tuple[Mutant, Path, float]] = {}
        waiting = chosen[::-1]
        while waiting or running:
            while waiting and free:
                mutant = waiting.pop()
                copy = free.pop()
                running[begun(mutant, copy, options.log)] = mutant, copy, time.monotonic()
            process, status = os.wait()
            mutant, copy, began = running.pop(process)
            restore(mutant, copy, original)
            free.append(copy)
            fates[mutant] = FATES.get(os.waitstatus_to_exitcode(status), "killed")
            taken = time.monotonic() - began
            print(f"{fates[mutant]:8} {taken:5.0f} s  {mutant.area}: {said(mutant)}", flush=True)
    return summed_up(chosen, [fates[one] for one in chosen], options.json)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="mutants whose area, function or text has this")
    parser.add_argument("--root", type=Path, default=HERE.parents[1], help="the code to be tested")
    parser.add_argument("--log", type=Path, help="also append what pytest prints to this file")
    parser.add_argument("--json", type=Path, help="also write the fates to this file")
    return parser.parse_args()


def said(mutant: Mutant) -> str:
    return f"{mutant.where}: {mutant.old} -> {mutant.new or 'nothing'}"


def summed_up(chosen: list[Mutant], fates: list[str], path: Path | None) -> int:
    counts = Counter(fates)
    by_area = Counter((one.area, fate) for one, fate in zip(chosen, fates, strict=True))
    for area in dict.fromkeys(one.area for one in chosen):
        whole = sum(count for (name, _), count in by_area.items() if name == area)
        print(f"{area:12} {by_area[area, 'killed']:3} of {whole}")
    for mutant, fate in zip(chosen, fates, strict=True):
        if fate != "killed":
            print(f"{fate}: {said(mutant)}")
    share = counts["killed"] / max(1, len(chosen))
    print(f"killed {counts['killed']} of {len(chosen)} ({share:.0%}), {dict(counts)}")
    if path:
        path.write_text(
            json.dumps({said(m): fate for m, fate in zip(chosen, fates, strict=True)}, indent=1)
        )
    return int(counts["killed"] < len(chosen))


def copy_of(root: Path, folder: Path) -> Path:
    folder.mkdir()
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("pictures"))
        elif source.exists():
            shutil.copy2(source, folder / name)
    return folder


def restore(mutant: Mutant, copy: Path, original: Path) -> None:
    with suppress(Lost):
        path = place_of(mutant, original).path.relative_to(original)
        shutil.copy2(original / path, copy / path)


def is_right_code_accepted(chosen: list[Mutant], copies: list[Path], log: Path | None) -> bool:
    """Whether the tests of the chosen mutants pass without one."""
    found: set[str] = set()
    for mutant in chosen:
        with suppress(Lost):
            found.update(tests_of(mutant, copies[0]))
    files = sorted(found)
    processes = []
    for number, copy in enumerate(copies):
        share = files[number :: len(copies)]
        if share:
            processes.append(started(partial(tested, share, copy, log)))
    statuses = [os.waitpid(process, 0)[1] for process in processes]
    return not any(statuses)


def begun(mutant: Mutant, copy: Path, log: Path | None) -> int:
    """Start a process that tests the mutant in the copy, and return its id. It exits with a key of
    `FATES`."""

    def fate() -> int:
        # A process over a limit dies, which counts as killed.
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_WORK, MAX_WORK + 10))
        signal.alarm(MAX_SECONDS)
        return fate_of(mutant, copy, log)

    return started(fate)


def started(work: Callable[[], int]) -> int:
    """Start a process that exits with what `work` returns, and return its id."""
    if process := os.fork():
        return process
    try:
        os._exit(work())
    except BaseException:
        traceback.print_exc()
        os._exit(LOST)


def fate_of(mutant: Mutant, copy: Path, log: Path | None) -> int:
    try:
        path, begin = place_of(mutant, copy)
        files = tests_of(mutant, copy)
    except Lost as lost:
        print(f"{said(mutant)}: {lost}", file=sys.stderr)
        return LOST
    whole = path.read_text("utf-8")
    path.write_text(whole[:begin] + mutant.new + whole[begin + len(mutant.old) :], "utf-8")
    return int(tested(files, copy, log))


def tested(files: list[str], copy: Path, log: Path | None) -> int:
    """Run pytest on the files and return its exit status."""
    import pytest

    os.chdir(copy)
    # Processes that tests start would otherwise import this script.
    del sys.modules["__main__"].__file__
    sys.path[:] = [str(copy), *(path for path in sys.path if path != str(HERE))]
    output = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    status = pytest.main([*PYTEST, *files], plugins=[FirstOfEach()])
    sys.stdout.flush()
    return status


class FirstOfEach:
    """Order the tests of a file so that one case of every test runs first, then the second cases:
    most mutants die early."""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        seen: Counter[tuple[Path, str]] = Counter()
        places = {}
        files = {path: place for place, path in enumerate(dict.fromkeys(i.path for i in items))}
        for item in items:
            name = item.path, item.originalname
            places[item] = files[item.path], seen[name]
            seen[name] += 1
        items.sort(key=places.__getitem__)


def tests_of(mutant: Mutant, copy: Path) -> list[str]:
    found = [
        str(path.relative_to(copy))
        for name in mutant.tests.split()
        for path in sorted((copy / "tests").rglob(f"test_{name}.py"))
    ]
    if not found:
        raise Lost(f"there are no tests named {mutant.tests}")
    return found


def place_of(mutant: Mutant, copy: Path) -> Place:
    places = []
    for path in sorted((copy / "specviz").rglob("*.py")):
        text = path.read_text("utf-8")
        if mutant.old not in text:
            continue
        for part in parts_named(ast.parse(text), mutant.where.split(".")):
            begin, end = span_of(part, text)
            first = text.find(mutant.old, begin, end)
            if first >= 0:
                places.append(Place(path, first))
                if text.find(mutant.old, first + 1, end) >= 0:
                    raise Lost(f"the text stands more than once in {path.name}")
    if len(places) != 1:
        raise Lost(f"the text stands in {len(places)} places")
    return places[0]


def parts_named(tree: ast.AST, names: list[str]) -> Iterator[ast.stmt]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and node.name == names[0]:
            if len(names) == 1:
                yield node
            else:
                yield from parts_named(ast.Module(node.body, []), names[1:])


def span_of(part: ast.stmt, text: str) -> tuple[int, int]:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: part.lineno - 1])), sum(map(len, lines[: part.end_lineno]))


if __name__ == "__main__":
    sys.exit(main())
