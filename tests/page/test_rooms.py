"""The page's modules: each room imports only allowed rooms."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from posixpath import normpath

import pytest

from specviz.runs.html import PAGE, first_modules, imports, modules_asked_again

# In the order of CONTRIBUTING.md: a module imports from its own room and from those above it. "."
# has the modules that connect the rooms. Types, which no browser reads, may come from anywhere.
ROOMS = [
    "dom",
    "facts",
    "words",
    "run",
    "charts",
    "race",
    "share",
    "explain",
    "panels",
    "compare",
    "stage",
    "choose",
    "controls",
    ".",
]
PURE = ("words", "facts")
GRAPH = imports()

# Rooms, and single modules of other rooms, that the page fetches when something is first opened.
FETCHED = ("choose", "compare", "explain", "panels", "share")
FETCHED_ALONE = {
    "specviz/controls/doctor.js",
    "specviz/race/card.js",
    "specviz/run/fetching.js",
    "specviz/run/loading.js",
    "specviz/run/saving.js",
    "specviz/stage/questions.js",
    "specviz/words/fetched.js",
    "specviz/words/reasons.js",
}


def room(name: str) -> str:
    """The room of a module: "run" for "specviz/run/store.js"."""
    return str(PurePosixPath(name).relative_to("specviz").parent)


def test_every_room_has_a_place() -> None:
    assert {room(name) for name in GRAPH} == set(ROOMS)


@pytest.mark.parametrize("here", ROOMS)
def test_a_room_imports_only_from_those_above_it(here: str) -> None:
    for name in (name for name in GRAPH if room(name) == here):
        for other in GRAPH[name]:
            assert other in GRAPH, f"{name} imports {other}, which does not exist"
            assert ROOMS.index(room(other)) <= ROOMS.index(here), f"{name} imports {other}"


def test_what_is_fetched_when_it_is_first_opened_holds_nothing_up() -> None:
    first = {f"specviz/{path.relative_to(PAGE).as_posix()}" for path in first_modules()}
    assert not {room(name) for name in first} & set(FETCHED)
    assert GRAPH.keys() >= FETCHED_ALONE and not first & FETCHED_ALONE
    assert {"specviz/player.js", "specviz/race/lane.js", "specviz/run/shown-run.js"} <= first


def test_no_module_imports_itself_through_others() -> None:
    left = dict(GRAPH)
    while left:
        leaves = {name for name, others in left.items() if not others & left.keys()}
        assert leaves, f"a circle of imports among {sorted(left)}"
        left = {name: others for name, others in left.items() if name not in leaves}


def test_a_module_that_is_asked_for_again_asks_for_its_own_imports_again() -> None:
    """Modules that the page started with are present and shared; all others get a new address."""
    first = {f"specviz/{path.relative_to(PAGE).as_posix()}" for path in first_modules()}
    texts = modules_asked_again()
    assert {f"specviz/{name}" for name in texts} == GRAPH.keys() - first
    for name, text in texts.items():
        asked = re.findall(r'^(?:import |[^"\n]*\bfrom )"([^"]+)";$', text, re.MULTILINE)
        folder = PurePosixPath("specviz") / PurePosixPath(name).parent
        targets = {
            other if other.startswith("specviz/") else normpath(folder / other) for other in asked
        }
        assert targets == GRAPH[f"specviz/{name}"]
        assert {other for other in asked if other.startswith("specviz/")} == targets & first


@pytest.mark.parametrize("here", PURE)
def test_facts_and_words_know_no_page(here: str) -> None:
    """These rooms can be tested and used without a browser."""
    for path in (PAGE / here).glob("*.js"):
        assert not re.search(r"\b(document|window|HTML\w+Element)\b", path.read_text("utf-8")), path
