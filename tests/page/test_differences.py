"""The check "A tie or a bug?" as a job in the queue, and the requests that it refuses."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from filed import tokens
from sentences import Sentences
from toy_models import llama, pair_of, relative
from toy_recordings import GREEDY, SAMPLED, recorded, toy_pair, values

from specviz import Settings, Trace, race
from specviz.core.engine_choice import eager_only
from specviz.inspect.parting import parting_of
from specviz.page.delivery import delivery_questions
from specviz.page.failures import answering
from specviz.page.follow_ups import TOO_LONG, follow_up_questions
from specviz.page.queue import RunQueue
from specviz.worker.local import LocalWorker


@pytest.fixture(scope="module")
def parted() -> tuple[Any, dict[str, Any]]:
    """A pair in bf16, and a run whose lanes diverge, as the browser sends it."""
    with eager_only():
        target = llama(64, seed=2, num_hidden_layers=3).to(torch.bfloat16)
        pair = pair_of(target, relative(target, noise=0.1))
        settings = Settings(gamma=4, max_new_tokens=30, ignore_eos=True)
        run = Trace.from_events(list(race(pair, [1, 2, 3, 4], settings)))
    assert parting_of(run) is not None
    return pair, bare(run.to_dict())


def bare(data: dict[str, Any]) -> dict[str, Any]:
    """Remove the lists of likeliest tokens from a run, as the browser does (`bareOf`)."""
    for lane in data["end"].get("lanes", {}).values():
        if lane["divergence"]:
            lane["divergence"]["margin"] = None
    for r in data["rounds"]:
        for token in tokens(r):
            for name in ("top_p", "top_q", "top_residual"):
                token.pop(name, None)
    return data


def answered(ask: Callable[[Any], Any], state: dict[str, Any]) -> dict[str, Any]:
    """Poll a question until it is over, as the page does, and return its state."""
    deadline = time.monotonic() + 60
    while not state["over"] and time.monotonic() < deadline:
        time.sleep(0.05)
        state = ask({"id": state["id"]})
    return state


def test_a_check_waits_its_turn_and_gives_its_answer(
    parted: tuple[Any, dict[str, Any]], sentences: Sentences
):
    pair, told = parted
    runs = RunQueue(LocalWorker(lambda *_: pair, race))
    runs.start("toy")
    functions = map(answering, [*follow_up_questions(runs, "toy"), *delivery_questions(runs)])
    _, begin, _, _, ask, *_ = functions
    result = answered(ask, begin({"run": None, "trace": told}))["result"]
    assert result["verdict"] == "tie" and result["summary"].startswith("A tie within rounding")
    said = told["end"]["lanes"]["speculative"]["divergence"]
    assert len(result["scored"]) == 4 and result["index"] == said["index"]

    edited = copy.deepcopy(told)
    edited["header"]["target"]["name"] = "another"
    other = answered(ask, begin({"run": None, "trace": edited, "lane": "speculative"}))
    sentences(other["error"])

    longer = copy.deepcopy(told)
    longer["header"]["lanes"]["speculative"]["max_new_tokens"] = 100_000
    for value, lane in (
        ({}, None),
        (longer, None),
        (told, "another"),
        (bare(values(GREEDY)), None),
        (bare(values(SAMPLED)), None),
    ):
        answer = begin({"run": None, "lane": lane, "trace": value})
        assert answer["over"]
        sentences(answer["error"])


def test_a_run_is_run_again_and_an_edit_is_told(sentences: Sentences):
    pair = toy_pair()
    recorded(SAMPLED)  # before the worker's thread, which draws weights too
    runs = RunQueue(LocalWorker(lambda *_: pair, race))
    runs.start("toy")
    functions = map(answering, [*follow_up_questions(runs, "toy"), *delivery_questions(runs)])
    _, _, begin, _, ask, *_ = functions

    def told(data: dict[str, Any]) -> dict[str, Any]:
        return answered(ask, begin({"run": None, "trace": bare(data)}))

    found = told(values(SAMPLED))["result"]
    assert found["same"]
    sentences(found["lines"][0])
    edited = values(SAMPLED)
    edited["header"]["lanes"]["speculative"]["seed"] += 1
    found = told(edited)["result"]
    assert not found["same"] and found["lines"][0].startswith("Not the same run.")
    longer = values(SAMPLED)
    longer["header"]["lanes"]["speculative"]["max_new_tokens"] = 100_000
    assert told(longer)["error"] == TOO_LONG.format("check --rerun")
    sentences(begin({"run": None, "trace": {}})["error"])
