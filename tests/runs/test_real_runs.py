"""No real run is refused: drafters, policies, samplings and ends pass the recordings' checks."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from all_pairs import all_pairs
from hypothesis import given
from hypothesis import strategies as st
from toy_heads import random_head
from toy_models import byte_level, examples, llama, mini, pair_of, relative, scripted, words

from specviz import Pair, Settings, Trace, race
from specviz.base.environment import ASSETS
from specviz.core.registry import drafter_names
from specviz.core.settings import GAMMA_POLICIES
from specviz.runs.recording import read_recording

SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0},
    "hot": {"temperature": 3.0},
    "nearly greedy": {"temperature": 1e-30},
    "top-k": {"temperature": 1.0, "top_k": 3},
    "top-k of a list": {"temperature": 1.3, "top_k": 5},
    "top-p": {"temperature": 1.0, "top_p": 0.7},
    "both": {"temperature": 1.2, "top_k": 8, "top_p": 0.9},
}
ENDS: dict[str, dict[str, Any]] = {
    "length": {"max_new_tokens": 24},
    "eos": {"max_new_tokens": 40},
    "stop": {"max_new_tokens": 40, "stop": ("w7", "4 w", "\ufffd")},
    "context": {"max_new_tokens": 90},
    "short draft": {"max_new_tokens": 20},
    "stopped": {"max_new_tokens": 60},
    "chat": {"max_new_tokens": 12, "chat": "on"},
}
LAYERS = {"num_hidden_layers": 3}  # enough for early exits; compiled passes can read their sizes


@cache
def pair_for(end: str, seed: int) -> Pair:
    context = 24 if end == "context" else 512
    target = llama(9, seed=seed, max_position_embeddings=context, **LAYERS)
    if end == "eos":
        target.generation_config.eos_token_id = [3, 8]
    draft = relative(target, noise=0.3, seed=seed)
    if end == "short draft":
        draft.config = copy.deepcopy(draft.config)
        draft.config.max_position_embeddings = 14
    tokenizer = words(9)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}w1"
    return pair_of(target, draft, tokenizer=tokenizer, head=random_head(target))


def run_of(pair: Pair, settings: Settings, end: str, prompt: Any = (1, 3, 1, 3)) -> Trace:
    """Run a whole race, or one that is stopped after some rounds."""
    events = race(pair, "w1 w3 w2" if end == "chat" else list(prompt), settings)
    if end != "stopped":
        return Trace.from_events(events)
    some = list(itertools.islice(events, 12))
    return Trace.from_events([*some, events.send(True)])  # type: ignore[attr-defined]


def assert_passes(trace: Trace) -> None:
    assert read_recording(orjson.dumps(trace.to_dict())) == trace
    # Old recordings lack the models' context lengths.
    data = trace.to_dict()
    for model in (data["header"]["target"], *data["header"]["drafts"].values()):
        if model:
            model.pop("context")
    read_recording(orjson.dumps(data))


MIXES = all_pairs(end=ENDS, sampling=SAMPLINGS, drafter=drafter_names(), policy=GAMMA_POLICIES)


@pytest.mark.parametrize("end", ENDS)
def test_a_real_run_is_never_refused(end: str):
    """Any two values of end, sampling, drafter and policy occur together in some run."""
    pair = pair_for(end, seed=1)
    for seed, mix in enumerate(one for one in MIXES if one["end"] == end):
        values = {"drafter": mix["drafter"], "gamma_policy": mix["policy"], **ENDS[end]}
        values |= SAMPLINGS[mix["sampling"]]
        assert_passes(run_of(pair, Settings(gamma=4 - seed % 2, seed=seed, **values), end))


@pytest.mark.parametrize("reason", ["length", "eos", "stop", "context", "stopped"])
def test_the_runs_above_end_for_every_reason(reason: str):
    settings = Settings(temperature=1.0, **ENDS[reason])
    trace = run_of(pair_for(reason, seed=1), settings, reason)
    assert trace.end is not None and reason in trace.end.reasons.values()


def test_the_runs_above_hold_rounds_that_a_short_context_cut_off():
    settings = Settings(gamma=4, **ENDS["short draft"])
    rounds = run_of(pair_for("short draft", seed=1), settings, "short draft").lane("speculative")
    assert [len(r.drafted) for r in rounds[-4:]] == [0, 0, 0, 0]


@examples(24)
@given(
    st.sampled_from(drafter_names()),
    st.sampled_from(GAMMA_POLICIES),
    st.sampled_from(list(SAMPLINGS)),
    st.sampled_from(list(ENDS)),
    st.integers(0, 12),
    st.integers(0, 10_000),
)
def test_no_real_run_of_any_seed_is_refused(
    drafter: str, policy: str, sampling: str, end: str, gamma: int, seed: int
):
    values = {"drafter": drafter, "gamma_policy": policy, **ENDS[end], **SAMPLINGS[sampling]}
    pair = pair_for(end, seed % 5)
    assert_passes(run_of(pair, Settings(gamma=gamma, seed=seed, **values), end))


@pytest.mark.parametrize("drafter", drafter_names())
def test_an_interrupted_run_is_never_refused(drafter: str):
    pair = pair_for("length", 0)
    for mode in ("interleaved", "sequential"):
        settings = Settings(gamma=3, temperature=1.0, drafter=drafter, max_new_tokens=20)
        whole = Trace.from_events(race(pair, [1, 3], settings, mode=mode))  # type: ignore[arg-type]
        for left in range(1, 8):
            assert_passes(Trace(whole.header, whole.rounds[: 2 * left]))


def test_runs_with_a_large_vocabulary_and_stray_bytes_are_never_refused():
    target = llama(300, seed=1)
    pair = pair_of(target, relative(target, noise=0.2), tokenizer=byte_level())
    for seed, sampling in enumerate([*SAMPLINGS.values()] * 2):
        settings = Settings(seed=seed, max_new_tokens=30, stop=("\ufffd", "é"), **sampling)
        assert_passes(Trace.from_events(race(pair, "日本 🙂", settings)))


def test_twins_and_a_draft_that_never_agrees_are_never_refused():
    """Runs in which p equals q, or both lists have one entry."""
    target = scripted([1, 2, 3, 4, 5], 9)
    other = scripted([1, 5, 4, 3, 2], 9, seed=1)
    for draft, sampling in itertools.product((target, other), SAMPLINGS.values()):
        settings = Settings(gamma=3, max_new_tokens=20, **sampling)
        assert_passes(Trace.from_events(race(pair_of(target, draft), [1], settings)))
    flat = mini(4, seed=2, spread=0.0)
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=30)
    for top_p in (1.0, 0.5, 0.1):
        again = replace(settings, top_p=top_p)
        assert_passes(Trace.from_events(race(pair_of(flat, flat), [1], again)))


@pytest.mark.parametrize("name", ["easy", "hard", "repetitive", "copies", "loses"])
def test_the_recordings_of_the_page_are_never_refused(name: str):
    path = Path(ASSETS) / "recordings" / f"{name}.json.gz"
    assert read_recording(path.read_bytes()).end is not None
