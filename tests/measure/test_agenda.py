"""Which piece of a sweep comes next, as far as its findings say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from specviz.measure.sweep.agenda import SETTLED_REPEATS, Standing, due, pieces_left
from specviz.measure.sweep.table import without_hopeless
from specviz.measure.sweep.types import Configuration, Predicted, Row

GAMMAS = (1, 2, 4)
KEYS = tuple(f"model g{gamma} fixed t0" for gamma in GAMMAS)


def rows(*speeds: float | None) -> list[Row]:
    """A row for each of `GAMMAS`, predicted to be so fast."""
    found = []
    for gamma, speed in zip(GAMMAS, speeds or (None,) * len(GAMMAS), strict=True):
        told = None if speed is None else Predicted(2.0, 0.5, (0.5,), 0.5, gamma, True, speed)
        found.append(Row(Configuration("model", gamma, "fixed", 0.0), "predicted", None, told))
    return found


def standing(
    table: Sequence[Row], ran: Sequence[tuple[str, int]] = (), timed: bool = True, **changes: float
) -> Standing:
    usual = Standing(
        tuple(table), Counter(ran), set(KEYS if timed else ()), 4, 1.0, 100.0, max(1, len(ran))
    )
    return replace(usual, **changes)


def keys(now: Standing) -> list[tuple[str, int]]:
    return [(piece.key, piece.question) for piece in due(now)]


def test_the_largest_gamma_runs_first_and_the_rounds_of_others_are_timed_once():
    begin = standing(rows(), timed=False, spent=0.0, done=0)
    first, *timing = due(begin)
    assert (first.key, first.timing) == (KEYS[-1], False)
    assert [(piece.key, piece.timing) for piece in timing] == [(KEYS[0], True), (KEYS[1], True)]
    assert pieces_left(begin) > 0
    assert not any(piece.timing for piece in due(replace(begin, timed=set(KEYS))))


def test_what_leads_runs_on_a_prompt_before_the_next_one_is_scouted():
    table = rows(1.1, 1.9, 1.5)
    table[1], table[2] = replace(table[1], mark="open"), replace(table[2], mark="best")
    assert keys(standing(table, [(KEYS[2], 0)])) == [(KEYS[1], 0)]
    assert keys(standing(table, [(KEYS[2], 0), (KEYS[1], 0)])) == [(KEYS[2], 1)]


def test_the_last_seconds_are_kept_for_what_no_answer_can_do_without():
    table = rows(1.1, 1.9, 1.5)
    table[1], table[2] = replace(table[1], mark="open"), replace(table[2], mark="best")
    ran = [(KEYS[2], 0), (KEYS[1], 0)]
    short = standing(table, ran, spent=50.0, seconds=100.0)  # enough for two more pieces
    assert keys(short) == [(KEYS[1], 1), (KEYS[1], 2)]
    assert due(replace(short, spent=100.0)) == [] and pieces_left(replace(short, spent=100.0)) == 0


def scouted(table: Sequence[Row], times: int = 1) -> list[tuple[str, int]]:
    """All rows of a table on the first prompt, and the largest gamma on the others too."""
    every = [(row.configuration.key, 0) for row in table]
    return times * [*every, *((KEYS[-1], question) for question in range(1, 4))]


def test_rows_take_turns_and_another_one_begins_on_each_prompt():
    table = rows(1.5, 1.5, 1.5)
    assert keys(standing(table, scouted(table))) == [(KEYS[1], 1), (KEYS[0], 1)]
    whole = [(key, question) for key in KEYS for question in range(4)]
    begun = [keys(standing(table, whole))[0]]
    for question in range(3):
        whole += [(key, question) for key in KEYS]
        begun.append(keys(standing(table, whole))[0])
    assert [question for _, question in begun] == [0, 1, 2, 3]
    assert len({key for key, _ in begun}) == 3


def test_repeats_are_numbered_so_that_they_draw_with_other_seeds():
    table = rows(1.5, 1.5, 1.5)
    whole = [(key, question) for key in KEYS for question in range(4)]
    assert {piece.repeat for piece in due(standing(table, whole))} == {1}


@pytest.mark.parametrize("status", ["eliminated", "left out"])
def test_what_is_slower_or_impossible_is_measured_no_more(status: str):
    table = rows(1.5, 1.5, 1.5)
    table[0] = replace(table[0], status=status)
    assert keys(standing(table, scouted(table[1:]))) == [(KEYS[1], 1)]


def test_what_is_predicted_to_be_far_behind_is_not_measured():
    table = rows(1.0, 1.9, 2.0)
    assert KEYS[0] not in {key for key, _ in keys(standing(table, scouted(table[2:])))}
    assert KEYS[0] in {key for key, _ in keys(standing(rows(None, 1.9, 2.0), scouted(table[2:])))}


@pytest.mark.parametrize(("speeds", "is_due"), [((1.0, 1.5, 1.4), True), ((0.9, 1.0, 0.8), False)])
def test_what_nobody_can_predict_is_measured_unless_its_drafter_is_slow(
    speeds: tuple[float, ...], is_due: bool
):
    unknown = Row(Configuration("model", 4, "confidence", 0.0), "planned", None, None)
    best = replace(rows(1.0, 1.5, 1.6)[2], configuration=Configuration("ngram", 4, "fixed", 0.0))
    table = [*rows(*speeds), replace(best, mark="best"), unknown]
    ran = [(row.configuration.key, question) for row in table[:-1] for question in range(4)]
    judged = without_hopeless(table)
    found = {key for key, _ in keys(standing(judged, ran))}
    assert (found == {unknown.configuration.key}) == is_due and found
    assert ("model is far behind" in judged[-1].note) == (not is_due)
    assert without_hopeless([*rows(), best, unknown])[-1] == unknown, (
        "of its drafter nothing is known"
    )


def test_one_row_that_is_left_needs_few_repeats():
    table = rows(1.0, 1.1, 2.0)
    done = [(KEYS[2], question) for question in range(4)]
    assert keys(standing(table, done)) == [(KEYS[2], 0)]
    assert due(standing(table, SETTLED_REPEATS * done)) == []
