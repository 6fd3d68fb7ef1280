"""A comparison of figures up to the last bits of their numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest


def check(found: Any, expected: Any, path: str) -> None:
    """Assert that `found` has all expected values; it may have others.

    A text such as "2/3" is the number.
    """
    if isinstance(expected, dict):
        for name, value in expected.items():
            check(found[name], value, f"{path}, {name}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), path
        for i, value in enumerate(expected):
            check(found[i], value, f"{path}, {i}")
    else:
        if isinstance(expected, str) and re.fullmatch(r"\d+/\d+", expected):
            expected = float(Fraction(expected))
        is_number = isinstance(expected, (int, float))
        assert found == (pytest.approx(expected, abs=1e-9) if is_number else expected), path
