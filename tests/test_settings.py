"""Settings that cannot hold an invalid value, and the sentences of their errors."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import FrozenInstanceError, asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentences import Sentences
from toy_models import examples, mini, pair_of

from specviz import Settings, SpecvizError
from specviz.base.errors import SettingsError
from specviz.core.registry import drafter_names
from specviz.core.settings import CHATS, GAMMA_POLICIES
from specviz.runs.settings_options import add_settings, settings_from

NAN = math.nan
INF = math.inf

REFUSED = [
    ("gamma", -1),
    ("gamma", 65),
    ("gamma", 2.5),
    ("gamma", True),
    ("gamma", "5"),
    ("gamma", None),
    ("gamma", NAN),
    ("gamma", INF),
    ("temperature", -0.1),
    ("temperature", 10.1),
    ("temperature", NAN),
    ("temperature", INF),
    ("temperature", -INF),
    ("temperature", "hot"),
    ("temperature", True),
    ("temperature", None),
    ("temperature", [1.0]),
    ("top_k", -1),
    ("top_k", 1.5),
    ("top_k", NAN),
    ("top_p", 0),
    ("top_p", -0.5),
    ("top_p", 1.01),
    ("top_p", NAN),
    ("max_new_tokens", -1),
    ("max_new_tokens", 10**9),
    ("seed", -1),
    ("seed", 2**63),
    ("drafter", "magic"),
    ("drafter", None),
    ("gamma_policy", "adaptive"),
    ("gamma_policy", 1),
    ("chat", True),
    ("chat", "yes"),
    ("stop", [""]),
    ("stop", [1]),
    ("stop", None),
    ("stop", {"a": 1}),
    ("ignore_eos", 1),
    ("ignore_eos", "no"),
]


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=str)
def test_a_refusal_names_the_field_the_value_and_what_is_allowed(
    field: str, value: object, sentences: Sentences
):
    with sentences.raises(SettingsError) as caught:
        Settings(**{field: value})
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
    """A page's sliders may send 5.0 for 5."""
    held = Settings(gamma=5.0, seed=3.0).gamma  # type: ignore[arg-type]
    assert held == 5 and isinstance(held, int)


def test_one_stop_string_need_not_be_listed():
    assert Settings(stop="END").stop == ("END",)  # type: ignore[arg-type]


def test_greedy_is_temperature_zero():
    assert Settings().greedy and not Settings(temperature=1e-300).greedy


def test_settings_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Settings().gamma = 3  # type: ignore[misc]


def test_a_field_that_does_not_exist_is_named(sentences: Sentences):
    with sentences.raises(SettingsError):
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
