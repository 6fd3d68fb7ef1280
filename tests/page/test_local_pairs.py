"""Models of this machine on the page: one click away for the user who opened it there, hidden from
strangers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_stores import keep_in_lm_studio, keep_in_ollama, use_stores
from page_server import JSON, Answer, Site, served, toy_pair
from sentences import Sentences
from tiny_files import tiny_file

from specviz.base.errors import PairError
from specviz.page import local_pairs
from specviz.page.choices import asked_pair
from specviz.page.security.owner import SEES_MODELS
from specviz.pairs.spec import NOT_OFFERED

PAIR = "ollama:tiny:7b+lmstudio:me/tiny/small.gguf"
STRANGER = {"X-Forwarded-For": "192.168.1.7"}
LOADED: list[str] = []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with a large model of Ollama and a small one of LM Studio."""
    home = tmp_path_factory.mktemp("home")
    large = tiny_file(home, "Q4_K", "qwen2", name="large", num_hidden_layers=9).path
    small = tiny_file(home, "Q4_K", "qwen2", name="small", num_hidden_layers=1).path
    keep_in_ollama(home, large, "tiny:7b")
    keep_in_lm_studio(home, small, "me/tiny/small.gguf")
    return home


@pytest.fixture(scope="module")
def site(home: Path) -> Iterator[Site]:
    def load(name: str, _: Any) -> Any:
        LOADED.append(name)
        return toy_pair()

    with served(load=load) as site:
        yield site


@pytest.fixture(autouse=True)
def own_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_pairs, "_last", [])
    monkeypatch.delenv("SPECVIZ_LOCAL_MODELS")
    use_stores(home, monkeypatch)


def offered_to(site: Site, headers: dict[str, str]) -> Any:
    page = site.get("/", headers).body.decode()
    return json.loads(page.split('id="offer">')[1].split("</script>")[0])


def generated(site: Site, pair: str, headers: dict[str, str]) -> str:
    """Request a run as a program does, and return its events or the refusal."""
    body = {"prompt": "cat", "pair": pair, "max_new_tokens": 2}
    begun = site.post("/gradio_api/call/v2/generate", body, JSON | headers)
    if begun.status != 200:
        return begun.body.decode()
    events = site.get(f"/gradio_api/call/generate/{begun.json['event_id']}", headers)
    return events.body.decode()


def examined(site: Site, headers: dict[str, str]) -> Answer:
    return site.post("/ask/examine", {"pair": PAIR, "weights": "usual"}, JSON | headers)


def test_its_own_user_finds_them_in_a_group_of_the_list_by_their_owners_names(
    site: Site, sentences: Sentences
) -> None:
    offer = site.offer()
    (control,) = [control for control in offer["controls"] if control["name"] == "pair"]
    (choice,) = [choice for choice in control["choices"] if len(choice) == 3]
    label, value, group = choice
    assert (value, group) == (PAIR, "On this machine")
    assert label.startswith("tiny:7b + me/tiny/small.gguf · ")
    sentences(label, measured=True)
    assert PAIR in offer["choices"]["pair"]
    assert offer["drafters"][PAIR][0] == "model"
    assert offer["pairTitles"][PAIR] == "tiny:7b + me/tiny/small.gguf"
    assert offer["pairs"][PAIR]["target"][0] == "tiny:7b"


def test_its_own_user_races_and_examines_them(site: Site) -> None:
    assert "complete" in generated(site, PAIR, {})
    assert LOADED[-1] == PAIR
    assert examined(site, {}).json["verdict"] != "stop"


def test_strangers_see_nothing_of_them(site: Site, home: Path) -> None:
    offer = json.dumps(offered_to(site, STRANGER))
    assert "ollama" not in offer and "On this machine" not in offer
    before = list(LOADED)
    assert NOT_OFFERED in generated(site, PAIR, STRANGER)
    assert NOT_OFFERED in examined(site, STRANGER).body.decode()
    assert before == LOADED


def test_no_page_has_a_path_of_the_machine(site: Site, home: Path) -> None:
    assert str(home) not in json.dumps(site.offer())


@pytest.mark.parametrize(("value", "headers"), [("1", STRANGER), ("0", {})])
def test_the_operator_decides(
    site: Site, monkeypatch: pytest.MonkeyPatch, value: str, headers: dict[str, str]
) -> None:
    monkeypatch.setenv("SPECVIZ_LOCAL_MODELS", value)
    is_offered = PAIR in offered_to(site, headers)["choices"]["pair"]
    assert is_offered == (value == "1")
    assert ("complete" in generated(site, PAIR, headers)) == is_offered


@pytest.mark.parametrize("variable", ["SPECVIZ_AUTH", "SPECVIZ_ORIGINS", "SPACE_ID"])
def test_nobody_sees_them_where_the_page_is_for_others(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    values = {"SPECVIZ_AUTH": "a:b", "SPECVIZ_ORIGINS": "https://example.org", "SPACE_ID": "me/x"}
    monkeypatch.setenv(variable, values[variable])
    assert not local_pairs.may_show_models()


@pytest.mark.parametrize(
    "name",
    [
        "owner/model+none",
        "ollama:tiny:7b+owner/draft",
        "owner/target+ollama:tiny:7b",
        "/etc+none",
        "ollama:absent:1b+none",
    ],
)
def test_who_sees_them_may_still_name_nothing_else(name: str) -> None:
    token = SEES_MODELS.set(True)
    try:
        assert asked_pair("ollama:tiny:7b+none", page_pair="builtin") == "ollama:tiny:7b+none"
        with pytest.raises(PairError):
            asked_pair(name, page_pair="builtin")
    finally:
        SEES_MODELS.reset(token)
