"""Compare rows whose measurements are noisy."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest

from specviz.measure.sweep.costs import Costs
from specviz.measure.sweep.predicted_rounds import RoundCounts, Rounds
from specviz.measure.sweep.table import (
    Findings,
    best_row,
    difference,
    is_open,
    marked,
    slower,
)
from specviz.measure.sweep.types import Configuration
from specviz.pairs.prompts import PromptOfKind
from specviz.runs.uncertainty import geometric_mean


def test_the_best_row_is_not_the_one_that_ran_on_the_easy_prompts():
    fast = {prompt: 0.5 + 0.3 * (prompt < 2) for prompt in range(6)}
    slow = {prompt: value - 0.1 for prompt, value in fast.items() if prompt < 3}
    assert sum(slow.values()) / len(slow) > sum(fast.values()) / len(fast)
    assert best_row({"slow": slow, "fast": fast}) == "fast"
    assert best_row({"fast": fast, "barely": {0: 9.0}}) == "fast", "one prompt of six is too few"
    assert best_row({}) is None


def test_rows_are_compared_on_the_prompts_that_both_ran():
    """A row that ran only on easy prompts has a higher mean, but is not better. A row that is
    faster where it ran, on too few prompts to be the best one, may be better."""
    fast = {prompt: 0.5 + 0.3 * (prompt < 4) for prompt in range(10)}
    easy = {prompt: value - 0.1 for prompt, value in fast.items() if prompt < 4}
    few = {prompt: value + 0.2 for prompt, value in fast.items() if prompt < 4}
    assert sum(easy.values()) / len(easy) > sum(fast.values()) / len(fast)
    values = {"easy": easy, "fast": fast, "few": few}
    marks = marked(values, {key: {} for key in values})
    assert marks == {"fast": "best", "few": "open"}


def test_a_row_is_given_up_only_beyond_noise_and_on_enough_prompts():
    base = {prompt: [0.2, 0.9, 0.5, 0.7, 0.4][prompt] for prompt in range(5)}
    steady = {prompt: value - 0.05 for prompt, value in base.items()}
    noisy = {prompt: value + (0.3, -0.5)[prompt % 2] for prompt, value in base.items()}
    rows = {"base": base, "steady": steady, "noisy": noisy}
    assert slower(rows) == {"steady"}, "a small but constant difference is told from large noise"
    few = {key: dict(list(values.items())[:3]) for key, values in rows.items()}
    assert slower(few) == set()
    assert difference(base, {7: 1.0}) is None


def test_an_interval_needs_two_prompts_and_holds_the_mean():
    assert geometric_mean([0.0]).low is None
    found = geometric_mean([0.0, 0.2, 0.4])
    assert found.value == pytest.approx(1.2214, abs=1e-4)
    assert 1.0 <= found.low < found.value < found.high <= 1.4919


def test_a_promise_is_compared_on_the_prompts_that_both_have():
    best = {0: 0.2, 1: 0.2, 2: 0.9, 3: 0.9}  # prompts 2 and 3 are easy
    assert is_open({}, best, {0: 0.3, 1: 0.3}), "it is predicted to be faster where both are known"
    assert not is_open({}, best, {2: 0.8, 3: 0.8}), "its prompts were the easy ones"
    assert not is_open({0: 0.1, 1: 0.1, 2: 0.1}, best, {0: 0.9}), "it ran on enough prompts"
    assert is_open({0: 0.1}, best, {0: 0.9}) and is_open({0: 0.5}, best, {})
    assert not is_open({}, best, {}), "nothing is known of it"


def counted(drafted: int, emitted: int) -> Rounds:
    """Three equal rounds, in which all emitted tokens but the last were accepted drafts."""
    counts = RoundCounts(drafted, judged=drafted, accepted=emitted - 1, emitted=emitted)
    return Counter({counts: 3})


def test_a_round_costs_its_draft_and_a_pass_of_its_width():
    costs = Costs({1: [1.0], 3: [1.2], 5: [2.0]}, {"model": [0.1]}, [0.05])
    assert costs.speedup("model", counted(4, 5)) == pytest.approx(5 / (0.4 + 2.0 + 0.05))
    between = costs.speedup("model", counted(3, 2))
    assert between == pytest.approx(2 / (0.3 + 1.6 + 0.05)), "between the widths 3 and 5"
    assert costs.speedup("ngram", counted(1, 2)) is None, "its steps are not known"
    wider = costs.speedup("model", counted(6, 7))
    assert wider == pytest.approx(7 / (0.6 + 2.8 + 0.05)), "it goes on rising"
    costs.verify[3] = [2.4]  # a wider pass never costs less
    assert costs.speedup("model", counted(4, 5)) == pytest.approx(5 / (0.4 + 2.4 + 0.05))


def test_no_prediction_is_above_what_tau_and_c_allow():
    """The costs have wide passes that seem cheaper than a one-token pass, and a round without
    drafts."""
    costs = Costs({1: [0.8], 5: [0.4]}, {"model": [0.1]}, [0.0], {"model": [0.2]})
    assert costs.speedup("model", counted(4, 5)) == pytest.approx(5 / (1 + 4 * 0.2))
    assert costs.speedup("model", counted(0, 1)) == 1.0
    assert costs.speedup("ngram", counted(0, 1)) == 1.0, "without drafts its steps cost nothing"


def test_a_prediction_over_prompts_is_not_above_what_their_tau_allows():
    """The mean of the prompts' speed-ups can exceed the speed-up of all their rounds together."""
    row = Configuration("model", 4, "fixed", 0.0)
    plain = Counter({RoundCounts(0, judged=0, accepted=0, emitted=1): 15})
    findings = Findings(
        rows=(row,),
        prompts=(PromptOfKind("prose", "one"), PromptOfKind("prose", "two")),
        predicted={row.key: {0: plain, 1: counted(4, 5)}},
    )
    costs = Costs({1: [1.0], 5: [1.0]}, {"model": [0.1]}, [0.0])
    values = findings._predicted_values(row, costs)
    prediction = findings._prediction(row, values, costs)
    assert prediction is not None and prediction.tau is not None
    limit = prediction.tau / (1 + 0.1 * prediction.drafted)
    assert prediction.speedup == pytest.approx(limit)
    assert statistics.geometric_mean([1.0, 5 / 1.4]) > limit, "or the test shows nothing"
