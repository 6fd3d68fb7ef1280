"""Settings that cannot hold an invalid value, and sentences for those who try."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import FrozenInstanceError, asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import examples, mini, pair_of

from specviz import Settings, SpecvizError
from specviz.base.errors import SettingsError
from specviz.core.options import add_settings, settings_from
from specviz.core.registry import drafter_names
from specviz.core.settings import CHATS, GAMMA_POLICIES

NAN, INF = math.nan, math.inf

# field, value, what the sentence must say of the allowed range
REFUSED = [
    ("gamma", -1, "0 to 64"),
    ("gamma", 65, "0 to 64"),
    ("gamma", 2.5, "whole number, 0 to 64"),
    ("gamma", True, "whole number"),
    ("gamma", "5", "whole number"),
    ("gamma", None, "whole number"),
    ("gamma", NAN, "whole number"),
    ("gamma", INF, "whole number"),
    ("temperature", -0.1, "0.0 to 10.0"),
    ("temperature", 10.1, "0.0 to 10.0"),
    ("temperature", NAN, "0.0 to 10.0"),
    ("temperature", INF, "0.0 to 10.0"),
    ("temperature", -INF, "0.0 to 10.0"),
    ("temperature", "hot", "number, 0.0 to 10.0"),
    ("temperature", True, "number"),
    ("temperature", None, "number"),
    ("temperature", [1.0], "number"),
    ("top_k", -1, "0 to 1000000"),
    ("top_k", 1.5, "whole number"),
    ("top_k", NAN, "whole number"),
    ("top_p", 0, "above 0, up to 1"),
    ("top_p", -0.5, "above 0, up to 1"),
    ("top_p", 1.01, "above 0, up to 1"),
    ("top_p", NAN, "above 0, up to 1"),
    ("max_new_tokens", -1, "0 to 100000"),
    ("max_new_tokens", 10**9, "0 to 100000"),
    ("seed", -1, "0 to 9223372036854775807"),
    ("seed", 2**63, "0 to 9223372036854775807"),
    ("drafter", "magic", "'model', 'ngram', 'suffix', 'early-exit', 'head', 'ngram-head', 'none'"),
    ("drafter", None, "'model', 'ngram', 'suffix', 'early-exit', 'head', 'ngram-head', 'none'"),
    ("gamma_policy", "adaptive", "'fixed', 'heuristic', 'optimal', 'confidence'"),
    ("gamma_policy", 1, "'fixed', 'heuristic', 'optimal', 'confidence'"),
    ("chat", True, "'auto', 'on', 'off', 'literal'"),
    ("chat", "yes", "'auto', 'on', 'off', 'literal'"),
    ("stop", [""], "none of them empty"),
    ("stop", [1], "list of strings"),
    ("stop", None, "list of strings"),
    ("stop", {"a": 1}, "list of strings"),
    ("ignore_eos", 1, "True or False"),
    ("ignore_eos", "no", "True or False"),
]


@pytest.mark.parametrize(("field", "value", "allowed"), REFUSED, ids=str)
def test_a_refusal_names_the_field_the_value_and_what_is_allowed(
    field: str, value: object, allowed: str
):
    with pytest.raises(SettingsError) as caught:
        Settings(**{field: value})
    sentence = str(caught.value)
    shown = str(value) if isinstance(value, float) else repr(value)
    assert sentence.startswith(field) and shown in sentence and allowed in sentence
    assert sentence.endswith(".") and "\n" not in sentence
    assert isinstance(caught.value, (SpecvizError, ValueError))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gamma", 0),
        ("gamma", 64),
        ("temperature", 0),
        ("temperature", 10),
        ("temperature", 1e-300),
        ("top_k", 1_000_000),
        ("top_p", 1),
        ("top_p", 1e-9),
        ("max_new_tokens", 0),
        ("max_new_tokens", 1),
        ("seed", 2**63 - 1),
        ("stop", ["a", "b"]),
    ],
)
def test_the_ends_of_every_range_are_allowed(field: str, value: object):
    held = getattr(Settings(**{field: value}), field)
    assert held == (tuple(value) if isinstance(value, list) else value)


def test_whole_floats_become_integers():
    """Sliders of a page give 5.0 for 5."""
    held = Settings(gamma=5.0, seed=3.0).gamma  # type: ignore[arg-type]
    assert held == 5 and isinstance(held, int)


def test_one_stop_string_need_not_be_listed():
    assert Settings(stop="END").stop == ("END",)  # type: ignore[arg-type]


def test_greedy_is_temperature_zero():
    assert Settings().greedy and not Settings(temperature=1e-300).greedy


def test_settings_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Settings().gamma = 3  # type: ignore[misc]


def test_a_field_that_does_not_exist_is_named():
    with pytest.raises(SettingsError, match="no setting 'gama': use chat, drafter, gamma"):
        Settings.from_dict({"gama": 5})


VALID = st.builds(
    Settings,
    gamma=st.integers(0, 64),
    temperature=st.floats(0, 10),
    top_k=st.integers(0, 10**6),
    top_p=st.floats(0, 1, exclude_min=True),
    max_new_tokens=st.integers(0, 10**5),
    seed=st.integers(0, 2**63 - 1),
    stop=st.lists(st.text(min_size=1)).map(tuple),
    ignore_eos=st.booleans(),
    drafter=st.sampled_from(drafter_names()),
    gamma_policy=st.sampled_from(GAMMA_POLICIES),
    chat=st.sampled_from(CHATS),
)


@examples(100)
@given(VALID)
def test_settings_survive_json(settings: Settings):
    assert Settings.from_dict(json.loads(json.dumps(asdict(settings)))) == settings


def test_every_choice_is_an_option_of_the_command_line():
    parser = argparse.ArgumentParser()
    add_settings(parser)
    words = ["--drafter", "ngram", "--gamma-policy", "optimal", "--chat", "off"]
    wanted = Settings(drafter="ngram", gamma_policy="optimal", chat="off")
    assert settings_from(parser.parse_args(words)) == wanted
    assert settings_from(parser.parse_args([])) == Settings()
    with pytest.raises(SystemExit):
        parser.parse_args(["--gamma-policy", "adaptive"])


def test_what_is_not_asked_for_is_the_pairs_own():
    parser = argparse.ArgumentParser()
    add_settings(parser)
    pair = pair_of(mini(9, seed=1), drafter="suffix", gamma=2)
    own = settings_from(parser.parse_args([]), pair)
    assert own == pair.settings() and (own.drafter, own.gamma) == ("suffix", 2)
    asked = settings_from(parser.parse_args(["--drafter", "ngram", "--gamma", "0"]), pair)
    assert (asked.drafter, asked.gamma) == ("ngram", 0)


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text())


@examples(100)
@given(st.sampled_from(list(asdict(Settings()))), ANYTHING)
def test_any_value_is_held_or_refused_with_a_sentence(field: str, value: object):
    try:
        Settings(**{field: value})
    except SettingsError as error:
        assert str(error).startswith(field)
