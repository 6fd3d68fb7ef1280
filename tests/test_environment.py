"""The environment variables: one table, one reader, and a sentence for each invalid value."""

from __future__ import annotations

import ast
import gc
import re
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from sentences import Sentences

from specviz.__main__ import main
from specviz.base import variables
from specviz.base.environment import MANY_OBJECTS, Variable, collector_paused
from specviz.base.errors import SettingsError
from specviz.base.variables import AUTH, VARIABLES, check_variables, variables_table
from specviz.core.threads import limit_torch_threads

READERS = [ROOT / "app.py", *(ROOT / "specviz").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]

# variable, text, value
ALLOWED = [
    (variables.PAIRS, " a, ,b,", ("a", "b")),
    (variables.PAIRS, ",", ()),
    (variables.PAIR, "owner/model+none", "owner/model+none"),
    (variables.ANY_MODEL, "1", True),
    (variables.ANY_MODEL, "True", True),
    (variables.ANY_MODEL, "false", False),
    (variables.ANY_WITH_TOKEN, "1", True),
    (variables.CACHE, "/var/cache/x", Path("/var/cache/x")),
    (variables.MODELS, "/srv/models", Path("/srv/models")),
    (variables.FETCH, "0", False),
    (variables.FETCH, "1", True),
    (variables.LOCAL_MODELS, "0", False),
    (variables.MCP, "0", False),
    (variables.AUTH, "me:a:b c ", ("me", "a:b c ")),
    (
        variables.ORIGINS,
        "https://Example.org/, http://[::1]:80,",
        ("https://example.org", "http://[::1]:80"),
    ),
    (variables.REMOTE, "http://h:1/v1#m+d", "http://h:1/v1#m+d"),
    (variables.REMOTE_KEY, "sk-1", "sk-1"),
    (variables.MAX_SECONDS, "0.1", 0.1),
    (variables.MAX_WAITING, "0", 0),
    (variables.MAX_PER_CLIENT, "30", 30),
    (variables.SWEEP, "0", False),
    (variables.SWEEP_SECONDS, "90", 90),
    (variables.STOP_SECONDS, "7", 7.0),
    (variables.SILENT_SECONDS, "1e3", 1000.0),
    (variables.DRAIN_SECONDS, "30", 30.0),
    (variables.THREADS, "1", 1),
    (variables.FORM, "static", "static"),
    (variables.KERNELS, "torch", "torch"),
    (variables.PLUGINS, "mine, yours", ("mine", "yours")),
    (variables.LOG, "json", "json"),
]
REFUSED = [
    (variables.CACHE, "relative/folder"),
    (variables.MODELS, "models"),
    (variables.ANY_MODEL, "maybe"),
    (variables.FETCH, "strangers"),
    (variables.MCP, "2"),
    (variables.AUTH, "sesame"),
    (variables.AUTH, ":sesame"),
    (variables.AUTH, "sesame:"),
    (variables.ORIGINS, "example.org"),
    (variables.ORIGINS, "https://example.org/page"),
    (variables.ORIGINS, "*"),
    (variables.REMOTE, "http://h:1/v1"),
    (variables.MAX_SECONDS, "0.09"),
    (variables.MAX_SECONDS, "nan"),
    (variables.MAX_WAITING, "-1"),
    (variables.MAX_WAITING, "2.5"),
    (variables.MAX_PER_CLIENT, "0"),
    (variables.SWEEP, "off"),
    (variables.SWEEP_SECONDS, "0"),
    (variables.STOP_SECONDS, "inf"),
    (variables.SILENT_SECONDS, "soon"),
    (variables.DRAIN_SECONDS, "0"),
    (variables.THREADS, "0"),
    (variables.THREADS, "many"),
    (variables.FORM, "statik"),
    (variables.LOG, "xml"),
]


def named(value: Any) -> str | None:
    return value.name if isinstance(value, Variable) else None


@pytest.mark.parametrize(("variable", "text", "value"), ALLOWED, ids=named)
def test_a_variable_gives_a_value_of_its_type(variable: Variable[Any], text: str, value: object):
    read = variable.read({variable.name: text})
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(("variable", "text"), REFUSED, ids=named)
def test_a_wrong_value_is_refused_with_a_sentence(
    variable: Variable[Any], text: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable.name, text)
    with pytest.raises(SettingsError) as caught:
        check_variables()
    said = str(caught.value)
    assert said.startswith(variable.name) and variable.type.allowed in said
    assert said.endswith(".") and "\n" not in said
    # Tracebacks do not show a secret either.
    assert (text in said) != variable.secret and caught.value.__suppress_context__


@pytest.mark.parametrize("variable", VARIABLES, ids=named)
def test_what_is_empty_or_missing_is_the_default(variable: Variable[Any]):
    assert variable.read({}) == variable.read({variable.name: ""}) == variable.default


def test_the_table_holds_every_variable():
    defined = [one for one in vars(variables).values() if isinstance(one, Variable)]
    assert len(VARIABLES) == len(set(VARIABLES)) and set(defined) == set(VARIABLES)
    assert {variable for variable, *_ in ALLOWED} == set(VARIABLES)
    for one in VARIABLES:
        assert one.meaning.endswith(".") and "|" not in one.meaning + one.type.allowed + one.unset
    assert AUTH.secret


def test_only_the_tables_name_variables():
    """Reading a variable elsewhere would skip its type and its check."""
    tables = {ROOT / "specviz/base/environment.py", ROOT / "specviz/base/variables.py"}
    for path in READERS:
        text = path.read_text("utf-8")
        if "SPECVIZ_" not in text:
            continue
        names = {
            node.value
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        ours = {name for name in names if re.fullmatch("SPECVIZ_[A-Z_]+", name)}
        assert not ours or path in tables, f"{path} names {ours}"


def test_the_verb_prints_the_table(capsys: pytest.CaptureFixture[str]):
    assert main(["variables"]) == 0
    assert capsys.readouterr().out == variables_table() + "\n"


def test_a_wrong_variable_ends_the_start_of_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sentences: Sentences
):
    monkeypatch.setenv("SPECVIZ_MOST_SECONDS", "soon")
    monkeypatch.setattr("specviz.base.logs.logging.basicConfig", lambda **_: None)
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")
    assert main(["page"]) == 2
    sentences(capsys.readouterr().err)


def test_threads_are_as_many_as_were_asked_for(monkeypatch: pytest.MonkeyPatch):
    import torch

    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("SPECVIZ_THREADS", "3")
        assert limit_torch_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_what_others_keep_out_of_searches_for_garbage_stays_out():
    gc.freeze()  # as in tests/conftest.py: another test may have undone it
    kept = gc.get_freeze_count()
    with collector_paused():
        made = [[number] for number in range(2 * MANY_OBJECTS)]
    assert gc.get_freeze_count() >= kept - 100 and made


def test_a_pause_in_which_little_is_made_does_not_look_at_what_is_kept(
    monkeypatch: pytest.MonkeyPatch,
):
    """Counting a million objects that are excluded from searches takes as long as a search."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("counted"))
    threshold = gc.get_threshold()
    gc.set_threshold(100 * MANY_OBJECTS)
    try:
        earlier = [[number] for number in range(2 * MANY_OBJECTS)]
        with collector_paused():
            made = [[number] for number in range(MANY_OBJECTS // 2)]
    finally:
        gc.set_threshold(*threshold)
    assert earlier and made
