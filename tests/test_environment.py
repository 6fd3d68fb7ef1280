"""The variables of the environment: one table, one reader, and a sentence for what is wrong."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from specviz import environment
from specviz.__main__ import main
from specviz.core.engine import spare_threads
from specviz.environment import AUTH, VARIABLES, Variable, check_variables, variables_table
from specviz.errors import SettingsError

ROOT = Path(__file__).resolve().parent.parent
READERS = [ROOT / "app.py", *(ROOT / "specviz").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]

# variable, text, value
ALLOWED = [
    (environment.PAIRS, " a, ,b,", ("a", "b")),
    (environment.PAIRS, ",", ()),
    (environment.PAIR, "owner/model+none", "owner/model+none"),
    (environment.ANY_MODEL, "1", True),
    (environment.ANY_MODEL, "True", True),
    (environment.ANY_MODEL, "false", False),
    (environment.ANY_WITH_TOKEN, "1", True),
    (environment.CACHE, "/var/cache/x", Path("/var/cache/x")),
    (environment.MCP, "0", False),
    (environment.AUTH, "me:a:b c ", ("me", "a:b c ")),
    (
        environment.ORIGINS,
        "https://Example.org/, http://[::1]:80,",
        ("https://example.org", "http://[::1]:80"),
    ),
    (environment.REMOTE, "http://h:1/v1#m+d", "http://h:1/v1#m+d"),
    (environment.REMOTE_KEY, "sk-1", "sk-1"),
    (environment.MOST_SECONDS, "0.1", 0.1),
    (environment.MOST_WAITING, "0", 0),
    (environment.MOST_PER_CLIENT, "30", 30),
    (environment.SWEEP, "0", False),
    (environment.SWEEP_SECONDS, "90", 90),
    (environment.STOP_SECONDS, "7", 7.0),
    (environment.SILENT_SECONDS, "1e3", 1000.0),
    (environment.DRAIN_SECONDS, "30", 30.0),
    (environment.THREADS, "1", 1),
    (environment.FORM, "static", "static"),
    (environment.COMPILE, "1", True),
    (environment.PLUGINS, "mine, yours", ("mine", "yours")),
    (environment.LOG, "json", "json"),
    (environment.METRICS, "true", True),
]
REFUSED = [
    (environment.CACHE, "relative/folder"),
    (environment.ANY_MODEL, "maybe"),
    (environment.MCP, "2"),
    (environment.AUTH, "sesame"),
    (environment.AUTH, ":sesame"),
    (environment.AUTH, "sesame:"),
    (environment.ORIGINS, "example.org"),
    (environment.ORIGINS, "https://example.org/page"),
    (environment.ORIGINS, "*"),
    (environment.REMOTE, "http://h:1/v1"),
    (environment.MOST_SECONDS, "0.09"),
    (environment.MOST_SECONDS, "nan"),
    (environment.MOST_WAITING, "-1"),
    (environment.MOST_WAITING, "2.5"),
    (environment.MOST_PER_CLIENT, "0"),
    (environment.SWEEP, "off"),
    (environment.SWEEP_SECONDS, "0"),
    (environment.STOP_SECONDS, "inf"),
    (environment.SILENT_SECONDS, "soon"),
    (environment.DRAIN_SECONDS, "0"),
    (environment.THREADS, "0"),
    (environment.THREADS, "many"),
    (environment.FORM, "statik"),
    (environment.COMPILE, "yes please"),
    (environment.LOG, "xml"),
    (environment.METRICS, "2"),
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
    assert said.startswith(variable.name) and variable.allowed in said
    assert said.endswith(".") and "\n" not in said
    # No trace of an error shows a secret either.
    assert (text in said) != variable.secret and caught.value.__suppress_context__


@pytest.mark.parametrize("variable", VARIABLES, ids=named)
def test_what_is_empty_or_missing_is_the_default(variable: Variable[Any]):
    assert variable.read({}) == variable.read({variable.name: ""}) == variable.default


def test_the_table_holds_every_variable():
    defined = [one for one in vars(environment).values() if isinstance(one, Variable)]
    assert defined == list(VARIABLES)
    assert {variable for variable, *_ in ALLOWED} == set(VARIABLES)
    for one in VARIABLES:
        assert one.meaning.endswith(".") and "|" not in one.meaning + one.allowed + one.unset
    assert AUTH.secret


def test_only_the_table_names_variables():
    """Whoever reads one elsewhere reads it without its type and its check."""
    for path in READERS:
        names = {
            node.value
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        ours = {name for name in names if re.fullmatch("SPECVIZ_[A-Z_]+", name)}
        assert not ours or path == ROOT / "specviz" / "environment.py", f"{path} names {ours}"


def test_the_verb_prints_the_table(capsys: pytest.CaptureFixture[str]):
    assert main(["variables"]) == 0
    assert capsys.readouterr().out == variables_table() + "\n"


def test_a_wrong_variable_ends_the_start_of_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SPECVIZ_MOST_SECONDS", "soon")
    monkeypatch.setattr("specviz.logs.logging.basicConfig", lambda **_: None)
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")
    assert main(["page"]) == 2
    said = "specviz: SPECVIZ_MOST_SECONDS is 'soon': use a number from 0.1 on.\n"
    assert capsys.readouterr().err == said


def test_threads_are_as_many_as_were_asked_for(monkeypatch: pytest.MonkeyPatch):
    import torch

    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("SPECVIZ_THREADS", "3")
        assert spare_threads() == 3
    finally:
        torch.set_num_threads(before)
