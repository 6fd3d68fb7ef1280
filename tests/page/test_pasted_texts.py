"""A pasted text in the queue: what the draft guessed of it, and what its entrance refuses."""

from __future__ import annotations

import time
from typing import Any

from toy_models import byte_level, llama, pair_of, relative

from specviz import race
from specviz.core.engines import eager_only
from specviz.page.controls import MOST_CHARACTERS
from specviz.page.doctor import report_html
from specviz.page.experiment import sampling_functions
from specviz.page.guesses import guess_functions
from specviz.page.queue import RunQueue
from specviz.worker.client import LocalWorker

TEXT = "the cat sat on the mat " * 20


def test_a_text_waits_its_turn_and_strangers_have_limits():
    with eager_only():
        target = llama(300)
        drafted = pair_of(target, relative(target, noise=0.1), tokenizer=byte_level())
        pairs = {"drafted": drafted, "alone": pair_of(target, tokenizer=byte_level())}
        runs = RunQueue(LocalWorker(lambda name, _: pairs[name], race))
        runs.start("drafted")
        (begin,) = guess_functions(runs, "drafted")
        (begin_alone,) = guess_functions(runs, "alone")
        _, ask, _ = sampling_functions(runs, "drafted")

        def ended(state: dict[str, Any]) -> dict[str, Any]:
            deadline = time.monotonic() + 60
            while not state["over"] and time.monotonic() < deadline:
                state = ask({"id": state["id"]})
            return state

        wish = {"run": None, "text": TEXT, "prompt": "", "continues": False}
        result = ended(begin(wish))["result"]
        assert result["before"] + "".join(place[0] for place in result["places"]) == TEXT
        assert result["left_out"] == 0 and result["name"].startswith("No speed-up")
        assert all(right == (text == guess) for text, guess, right, *_ in result["places"])
        assert "no draft model" in ended(begin_alone(wish))["error"]
        assert "nothing to guess" in ended(begin({**wish, "text": ""}))["error"]
    for damaged, said in (
        (TEXT * MOST_CHARACTERS, "paste up to 8,000"),
        (None, "this is no text"),
        (["x"], "this is no text"),
    ):
        for name in ("text", "prompt"):
            state = begin({**wish, name: damaged})
            assert state["over"] and said in state["error"]


def test_the_doctor_on_the_page_leads_to_the_thought_experiment():
    closed = {"level": "stop", "topic": "closed", "sentence": "gpt-4 has no weights."}
    report = {"findings": [closed], "verdict": "stop", "summary": "gpt-4 cannot race."}
    assert "data-open-closed" in report_html(report)
    assert "data-open-closed" not in report_html({**report, "findings": []})
