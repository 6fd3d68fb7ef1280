"""Pairwise testing: few cases that contain every two settings together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any


def all_pairs(**given: Iterable[Any]) -> list[dict[str, Any]]:
    """Make cases that contain every pair of values of any two names; a case has a value for each
    name. Deterministic: each value is the one that adds most new pairs."""
    names = list(given)
    choices = {name: list(values) for name, values in given.items()}
    pairs = {
        (one, a, other, b)
        for one, other in itertools.combinations(range(len(names)), 2)
        for a, b in itertools.product(*(range(len(choices[names[i]])) for i in (one, other)))
    }
    cases = []
    while pairs:
        case: dict[int, int] = {}
        one, a, other, b = min(pairs)
        case |= {one: a, other: b}
        for i in range(len(names)):
            if i not in case:
                case[i] = max(range(len(choices[names[i]])), key=lambda v: _new(pairs, case, i, v))
        pairs -= {(i, case[i], j, case[j]) for i, j in itertools.combinations(range(len(names)), 2)}
        cases.append({names[i]: choices[names[i]][case[i]] for i in range(len(names))})
    return cases


def _new(pairs: set[tuple[int, int, int, int]], case: dict[int, int], i: int, value: int) -> int:
    """Count the pairs that this value would add to the case."""
    return sum(
        ((j, known, i, value) if j < i else (i, value, j, known)) in pairs
        for j, known in case.items()
    )
