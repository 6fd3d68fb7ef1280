"""Compute the verdicts and the advice of an audit from figures alone."""

from __future__ import annotations

from typing import Any

import pytest
from sentences import Sentences

from specviz.audit.advice import Findings, advice, better_gamma
from specviz.audit.asking import Streamed
from specviz.audit.greedy import judge
from specviz.audit.lossless import lossless_verdict
from specviz.audit.paying import Turn, crossover, paying_verdict, speeds_of
from specviz.audit.report import Control, Drafting, Greedy, Length, Load, Mismatch, Sampled, Verdict
from specviz.audit.sampled import ListedLaw, cell_of, control_for, softmax
from specviz.audit.speculating import kept_by_position
from specviz.runs.uncertainty import Spread
from specviz.sides.watched.steps import Step

SPEEDS = Spread(1.0, 1.0, 1.0)


def streamed(rate: float) -> Streamed:
    """A stream of 11 tokens. rate: tokens per second."""
    return Streamed((), "", 11, 11, 0.1, 0.1 + 10 / rate, 1, (), None, None)


def turns(*ratios: float, kind: str = "prose") -> list[Turn]:
    return [Turn(kind, "Once", streamed(100 * ratio), streamed(100)) for ratio in ratios]


@pytest.mark.parametrize(
    ("ratios", "answer"),
    [
        ((1.4, 1.5, 1.6, 1.5), "yes"),
        ((0.7, 0.8, 0.7, 0.75), "no"),
        ((1.0, 1.01, 1.0, 1.0), "no"),
        ((0.6, 1.9, 0.7, 1.5), "cannot be told"),
        ((1.5, 1.5), "cannot be told"),
    ],
)
def test_it_pays_if_the_interval_of_all_turns_says_so(ratios: Any, answer: str) -> None:
    assert paying_verdict(speeds_of(turns(*ratios)), (), (), "").answer == answer


def test_what_was_measured_before_a_failure_still_counts(sentences: Sentences) -> None:
    verdict = paying_verdict(speeds_of(turns(1.4, 1.5, 1.6)), (), (), "it has too many requests")
    assert verdict.answer == "yes"
    sentences(verdict.doubt)


def test_a_kind_of_prompt_that_loses_is_named(sentences: Sentences) -> None:
    both = speeds_of([*turns(1.9, 2.0, 2.1), *turns(0.8, 0.9, 0.8, kind="lists")])
    sentences(paying_verdict(both, (), (), "").doubt)


def test_a_length_of_context_that_loses_is_named(sentences: Sentences) -> None:
    rows = [Length(100, 150.0, 0.1, 100.0, 0.1), Length(900, 50.0, 0.9, 60.0, 0.8)]
    sentences(paying_verdict(speeds_of(turns(1.4, 1.5, 1.6)), (), rows, "").doubt)


def load(at_once: int, *ratio: float) -> Load:
    return Load(at_once, SPEEDS, SPEEDS, Spread(*ratio))


def test_the_crossover_is_where_every_larger_number_loses() -> None:
    paying = load(2, 1.2, 1.1, 1.3)
    losing = load(4, 0.8, 0.7, 0.9)
    assert crossover([paying, losing, load(8, 0.5, 0.4, 0.6)]) == 4
    assert crossover([losing, load(8, 1.1, 1.0, 1.2)]) is None
    assert crossover([load(1, 0.5, 0.5, 0.5)]) is None
    assert crossover([load(2, 0.95, 0.9, 1.05)]) is None, "not in every turn"
    assert crossover([Load(2, SPEEDS)]) is None


def sampled(p_value: float | None, caught: float = 1.0, length: int = 3) -> Sampled:
    return Sampled("texts", length, 400, 9, 5.0, 8, p_value, Control("a colder one", caught, 100))


def greedy(*verdicts: Any) -> Greedy:
    places = tuple(Mismatch(1, 3, "a", "b", 2.0, verdict) for verdict in verdicts)
    return Greedy("its own log-probabilities", 2, 64, 0.15, places)


@pytest.mark.parametrize(
    ("check", "tests", "answer"),
    [
        (greedy(), [sampled(0.4)], "yes"),
        (greedy("tie"), [sampled(0.4)], "yes"),
        (greedy("fault"), [sampled(0.4)], "no"),
        (greedy(), [sampled(0.4), sampled(1e-9)], "no"),
        (greedy(), [sampled(1e-9, caught=0.1)], "no"),
        (greedy("cannot be told"), [sampled(0.4)], "cannot be told"),
        (greedy(), [], "cannot be told"),
        (greedy(), [sampled(0.4, caught=0.5)], "cannot be told"),
        (greedy(), [sampled(0.4, length=1)], "cannot be told"),
    ],
)
def test_it_is_lossless_only_if_a_wrong_sampler_would_have_been_caught(
    check: Greedy, tests: list[Sampled], answer: str
) -> None:
    assert lossless_verdict([check], tests, "", "").answer == answer


@pytest.mark.parametrize(
    ("behind", "is_listed", "says"),
    [
        (0.1, True, "tie"),
        (0.1, False, "cannot be told"),
        (0.5, True, "cannot be told"),
        (1.5, True, "fault"),
        (1.5, False, "fault"),
    ],
)
def test_a_token_behind_the_first_choice_is_a_tie_a_fault_or_neither(
    behind: float, is_listed: bool, says: str
) -> None:
    assert judge(behind, 0.15, is_listed=is_listed) == says


def test_the_law_of_short_texts_follows_the_listed_beginnings() -> None:
    listed = {(): {1: -0.5, 2: -1.0}, (1,): {3: -0.1, 4: -2.5}}
    law = ListedLaw((9,), listed)
    probabilities = law.probabilities(0.7, 2)
    first = softmax(listed[()], 0.7)
    second = softmax(listed[1,], 0.7)
    assert probabilities[1, 3] == pytest.approx(0.999 * first[1] * second[3])
    assert probabilities[2,] == pytest.approx(0.999 * first[2])
    assert sum(probabilities.values()) == pytest.approx(1.0)
    cells = [cell_of(ids, probabilities) for ids in ((1, 3, 8), (2, 8), (1, 8), (7,))]
    assert cells == [(1, 3), (2,), (-1,), (-1,)]


def test_the_control_is_caught_by_many_texts_and_not_by_few() -> None:
    law = ListedLaw((9,), {(): {1: -0.5, 2: -1.2, 3: -2.0, 4: -3.0}})
    assert control_for(law, 0.7, 20, 1).caught < 0.5 < control_for(law, 0.7, 3200, 1).caught


def test_positions_count_only_the_steps_that_drafted_as_many() -> None:
    steps = [Step([], 3, 3), Step([], 3, 1), Step([], 1, 0)]
    assert kept_by_position(steps) == (2 / 3, 1 / 2, 1 / 2)


def test_fewer_drafts_are_named_where_the_last_ones_are_wasted() -> None:
    better = better_gamma((0.9, 0.3, 0.1, 0.05, 0.0), gain=1.0)
    assert better is not None and better.gamma in (1, 2) and better.speedup > 1.05
    assert better_gamma((0.95, 0.9, 0.9), gain=2.0) is None
    assert better_gamma((), gain=1.0) is None


def findings(engine: str, **values: Any) -> Findings:
    """Findings for drafts that pay with one request but not with four at once."""
    found: dict[str, Any] = {
        "verdicts": [Verdict("speculating", "yes", "Yes.")],
        "drafting": Drafting(100, 100, 20, 60, 50, (0.9, 0.8, 0.5)),
        "speeds": speeds_of(turns(1.8, 1.9, 1.8)),
        "loads": [load(1, 1.8, 1.7, 1.9), load(4, 0.8, 0.7, 0.9)],
        "greedy": (),
        "sampled": (),
        **values,
    }
    return Findings(engine=engine, model="org/big", draft="org/small", temperature=0.7, **found)


@pytest.mark.parametrize("engine", ["vLLM", "SGLang", "llama.cpp"])
def test_each_engine_is_told_in_its_own_words_where_drafts_stop_paying(
    engine: str, sentences: Sentences
) -> None:
    for words in advice(findings(engine)):
        sentences(words.sentence)
        sentences(words.lines)


@pytest.mark.parametrize("engine", ["vLLM", "SGLang", "llama.cpp", "Ollama", "LM Studio"])
def test_a_server_that_drafts_nothing_is_told_how(engine: str, sentences: Sentences) -> None:
    verdicts = [Verdict("speculating", "no", "No.")]
    (first, *_) = advice(findings(engine, verdicts=verdicts, loads=()))
    sentences(first.sentence)
    sentences(first.lines)


def test_a_lossy_rule_of_sglang_is_named() -> None:
    verdicts = [Verdict("speculating", "yes", "Yes."), Verdict("lossless", "no", "No.")]
    lines = [one.lines for one in advice(findings("SGLang", verdicts=verdicts))]
    assert any("--speculative-accept-threshold-single 1.0" in line for line in lines)
