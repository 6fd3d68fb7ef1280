"""Names of pairs: their parsed form, and the limits of visitors' names."""

from pathlib import Path

import pytest
from sentences import Sentences

from specviz.base.errors import PairError
from specviz.pairs.spec import (
    Address,
    ModelsSpec,
    NamedSpec,
    OperatorSpec,
    PairSpec,
    ServedSpec,
    WatchedSpec,
    parse_pair,
    visitor_spec,
)

AT = Address("http://10.0.0.1:8000/v1", "m")
SPECS: dict[str, PairSpec] = {
    "builtin": NamedSpec("builtin"),
    "qwen3-8b-0.6b": NamedSpec("qwen3-8b-0.6b"),
    "served": OperatorSpec(),
    "a/b+c/d": ModelsSpec("a/b", "c/d"),
    "a/b+none": ModelsSpec("a/b", None),
    "a/b+mtp": ModelsSpec("a/b", "mtp"),
    f"{AT}": WatchedSpec(AT),
    f"{AT} | https://other/v1#n": WatchedSpec(AT, Address("https://other/v1", "n")),
    f"{AT}+c/d": ServedSpec(AT, "c/d"),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_name_is_parsed_and_written_back(name: str) -> None:
    assert parse_pair(name) == parse_pair(f"  {name} ") == SPECS[name]
    assert str(parse_pair(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "+",
        "a/b",
        "a/b+",
        "http://h/v1",
        "http://h/v1#",
        "http://h/v1#m+",
        "http://user@h/v1#m",
        "http://h:x/v1#m",
        f"{AT} | {AT} | {AT}",
        f"{AT} | {AT}+d",
        f"{AT}+http://h/v1#m",
        "a/b+http://h/v1#m",
        None,
        5,
    ],
)
def test_what_is_no_name_is_a_sentence(name: object, sentences: Sentences) -> None:
    with sentences.raises(PairError):
        parse_pair(name)  # type: ignore[arg-type]


def test_a_folder_may_have_a_plus_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a+b").mkdir()
    assert parse_pair(f"{tmp_path}/a+b+none") == ModelsSpec(f"{tmp_path}/a+b", None)


ADDRESSES = [
    "http://127.0.0.1:1/v1#m+folder",
    "HTTP://127.0.0.1:1/v1#m+folder",
    "\thttp://127.0.0.1:1/v1#m+folder",
    "\u00a0https://h/v1#m",
    "http://a/v1#m | http://b/v1#m",
    "a/b+http://h/v1#m",
    "file:///etc+none",
    "//host/share+none",
    "\\\\host\\share+none",
    "a/b+\\\\host\\share",
    "none+//host/share",
]


@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize("any_model", [True, False])
def test_a_visitor_names_no_address(
    name: str, any_model: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_REMOTE", "http://127.0.0.1:1/v1#m+folder")
    with pytest.raises(PairError):
        visitor_spec(name, any_model=any_model)


def test_what_a_visitor_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECVIZ_REMOTE", raising=False)
    assert visitor_spec("a/b+c/d", any_model=True) == ModelsSpec("a/b", "c/d")
    assert visitor_spec("builtin", any_model=False) == NamedSpec("builtin")
    for name, any_model in (("a/b+c/d", False), ("served", True), ("x" * 999, True), (None, True)):
        with pytest.raises(PairError):
            visitor_spec(name, any_model=any_model)
    monkeypatch.setenv("SPECVIZ_REMOTE", str(AT))
    assert visitor_spec("served", any_model=False) == OperatorSpec()
