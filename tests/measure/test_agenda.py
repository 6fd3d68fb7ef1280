"""Choose the next piece of a sweep from its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from toy_models import mini, pair_of

from specviz.measure.sweep.agenda import (
    RETRIES,
    SETTLED_REPEATS,
    Standing,
    due,
    pieces_left,
    racing,
    rows_to_begin_with,
)
from specviz.measure.sweep.table import without_hopeless
from specviz.measure.sweep.types import Configuration, Predicted, Row

GAMMAS = (1, 2, 4)
KEYS = tuple(f"model g{gamma} fixed t0" for gamma in GAMMAS)


def rows(*speeds: float | None) -> list[Row]:
    """A row for each of `GAMMAS`. speeds: the predicted speed-ups."""
    found = []
    for gamma, speed in zip(GAMMAS, speeds or (None,) * len(GAMMAS), strict=True):
        told = None if speed is None else Predicted(2.0, 0.5, (0.5,), 0.5, gamma, True, speed)
        found.append(Row(Configuration("model", gamma, "fixed", 0.0), "predicted", None, told))
    return found


def standing(table: Sequence[Row], ran: Sequence[tuple[str, int]] = (), **changes: Any) -> Standing:
    counted = Counter(ran)
    usual = Standing(tuple(table), counted, counted, 4, 1.0, 100.0, max(1, len(ran)))
    return replace(usual, **changes)


def keys(now: Standing) -> list[tuple[str, int]]:
    return [(piece.key, piece.prompt) for piece in due(now)]


def test_what_the_pair_begins_with_runs_first_and_then_each_drafter_at_its_largest_gamma():
    ngram = replace(rows()[0], configuration=Configuration("ngram", 1, "fixed", 0.0))
    begin = standing([*rows(), ngram], spent=0.0, done=0)
    assert keys(begin) == [(KEYS[-1], 0), (ngram.configuration.key, 0)]
    assert pieces_left(begin) > 0
    begins = replace(begin, begins=frozenset(KEYS[1:2]))
    assert keys(begins) == [(KEYS[1], 0), (KEYS[-1], 0), (ngram.configuration.key, 0)]


def test_the_last_seconds_are_kept_for_what_no_answer_can_do_without():
    table = rows(1.1, 1.9, 1.5)
    table[1] = replace(table[1], mark="open")
    table[2] = replace(table[2], mark="best")
    ran = [(KEYS[2], 0), (KEYS[1], 0)]
    short = standing(table, ran, spent=50.0, seconds=100.0)  # enough for two more pieces
    assert keys(short) == [(KEYS[1], 1), (KEYS[1], 2)]
    assert due(replace(short, spent=100.0)) == [] and pieces_left(replace(short, spent=100.0)) == 0


def whole_of(key: str) -> list[tuple[str, int]]:
    """The pieces of a row: one for each prompt."""
    return [(key, prompt) for prompt in range(4)]


def scouted(table: Sequence[Row]) -> list[tuple[str, int]]:
    """The pieces of all rows on the first prompt, and of the largest gamma on the others too."""
    every = [(row.configuration.key, 0) for row in table]
    return [*every, *((KEYS[-1], prompt) for prompt in range(1, 4))]


def test_rows_take_turns_and_another_one_begins_on_each_prompt():
    table = rows(1.5, 1.5, 1.5)
    assert keys(standing(table, scouted(table))) == [(KEYS[1], 1), (KEYS[0], 1)]
    whole = [(key, prompt) for key in KEYS for prompt in range(4)]
    begun = [keys(standing(table, whole))[0]]
    for prompt in range(3):
        whole += [(key, prompt) for key in KEYS]
        begun.append(keys(standing(table, whole))[0])
    assert [prompt for _, prompt in begun] == [0, 1, 2, 3]
    assert len({key for key, _ in begun}) == 3


def test_repeats_are_numbered_so_that_they_draw_with_other_seeds():
    table = rows(1.5, 1.5, 1.5)
    whole = [(key, prompt) for key in KEYS for prompt in range(4)]
    assert {piece.repeat for piece in due(standing(table, whole))} == {1}


@pytest.mark.parametrize("status", ["eliminated", "left out"])
def test_what_is_slower_or_impossible_is_measured_no_more(status: str):
    table = rows(1.5, 1.5, 1.5)
    table[0] = replace(table[0], status=status)
    assert keys(standing(table, scouted(table[1:]))) == [(KEYS[1], 1)]


def test_what_is_predicted_to_be_far_behind_is_not_measured():
    table = rows(1.0, 1.9, 2.0)
    ran = scouted(table[2:])
    assert KEYS[0] not in {key for key, _ in keys(standing(table, ran))}
    assert KEYS[0] in {key for key, _ in keys(standing(rows(None, 1.9, 2.0), ran))}
    begins = standing(table, [*ran, *whole_of(KEYS[1]), (KEYS[0], 0)], begins=frozenset(KEYS[:1]))
    assert keys(begins) == [(KEYS[0], 1)], "the pair begins with it"
    assert table[0].predicted is not None
    few = replace(table[0], predicted=replace(table[0].predicted, enough=False))
    assert KEYS[0] in {key for key, _ in keys(standing([few, *table[1:]], ran))}, "of few rounds"


def test_where_the_time_is_short_as_many_rows_run_as_can_run_on_three_prompts():
    table = rows(1.9, 2.0, 1.8)
    ran = [(KEYS[2], 0)]

    def in_the_race(seconds: float, **changes: Any) -> list[str]:
        (found,) = racing(standing(table, ran, seconds=seconds, **changes))
        return found

    assert in_the_race(100.0) == list(KEYS)
    assert in_the_race(7.0) == list(KEYS[:2])
    assert in_the_race(4.0) == [KEYS[1]]
    assert in_the_race(4.0, begins=frozenset(KEYS[2:])) == [KEYS[2]]


def test_a_race_that_was_delayed_is_run_again_after_all_prompts_but_not_for_ever():
    table = rows(1.5, 1.5, 1.5)
    whole = [(key, prompt) for key in KEYS for prompt in range(4)]
    ran = [piece for piece in whole if piece != (KEYS[1], 0)]
    early = standing(table, ran[:3], tried=Counter([*ran[:3], (KEYS[1], 0)]))
    assert (KEYS[1], 0) not in keys(early), "other prompts come first"
    for times in range(1, RETRIES + 1):
        again = standing(table, ran, tried=Counter([*ran, *times * [(KEYS[1], 0)]]))
        assert keys(again) == [(KEYS[1], 0)]
    often = Counter([*ran, *(RETRIES + 1) * [(KEYS[1], 0)]])
    assert {piece.repeat for piece in due(standing(table, ran, tried=often))} == {1}


def test_a_pair_begins_with_the_row_that_is_nearest_to_its_settings():
    pair = pair_of(mini(5), mini(5, seed=1))
    swept = [row.configuration for row in rows()]
    assert rows_to_begin_with(pair, swept) == {KEYS[-1]}, "γ 5 is usual"
    adaptive = Configuration("model", 4, "confidence", 0.0)
    pair = replace(pair, gamma=8, gamma_policy="confidence")
    assert rows_to_begin_with(pair, [*swept, adaptive]) == {adaptive.key}
    assert rows_to_begin_with(pair, [replace(adaptive, drafter="ngram")]) == frozenset()


@pytest.mark.parametrize(("speeds", "is_due"), [((1.0, 1.5, 1.4), True), ((0.9, 1.0, 0.8), False)])
def test_what_nobody_can_predict_is_measured_unless_its_drafter_is_slow(
    speeds: tuple[float, ...], is_due: bool
):
    unknown = Row(Configuration("model", 4, "confidence", 0.0), "planned", None, None)
    best = replace(rows(1.0, 1.5, 1.6)[2], configuration=Configuration("ngram", 4, "fixed", 0.0))
    table = [*rows(*speeds), replace(best, mark="best"), unknown]
    ran = [(row.configuration.key, prompt) for row in table[:-1] for prompt in range(4)]
    judged = without_hopeless(table)
    found = {key for key, _ in keys(standing(judged, ran))}
    assert (found == {unknown.configuration.key}) == is_due and found
    assert ("Draft model is far behind" in judged[-1].note) == (not is_due)
    begun = frozenset([unknown.configuration.key])
    assert without_hopeless(table, begun)[-1] == unknown, "the pair begins with it"
    assert without_hopeless([*rows(), best, unknown])[-1] == unknown, (
        "of its drafter nothing is known"
    )


def test_one_row_that_is_left_needs_few_repeats():
    table = rows(1.0, 1.1, 2.0)
    done = [(KEYS[2], prompt) for prompt in range(4)]
    assert keys(standing(table, done)) == [(KEYS[2], 0)]
    assert due(standing(table, SETTLED_REPEATS * done)) == []
