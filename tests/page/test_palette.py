"""The colours of the style sheet: legible, and distinguishable with every kind of colour vision.

Contrast by WCAG 2.2; colour-blindness by Machado, Oliveira and Fernandes 2009 (severity 1.0);
distances by CIEDE2000 (Sharma, Wu and Dalal 2005).
"""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray

from specviz.runs.html import css_variables

Vector = NDArray[np.float64]

OUTCOMES = ("accepted", "rejected", "corrected", "bonus")
SIGHTS = {
    "usual": np.eye(3),
    "protan": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deutan": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritan": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = TO_XYZ.sum(1)


def palettes() -> dict[str, dict[str, str]]:
    """The CSS variables of both themes, read from the page's style sheet."""
    sheet = css_variables()
    themes = {}
    for selector, theme in ((":root", "light"), (".dark", "dark")):
        block = re.search(re.escape(selector) + r"\{(.*?)\}", sheet, re.DOTALL)
        assert block, selector
        themes[theme] = dict(re.findall(r"--sv-([\w-]+):\s*(#[0-9a-fA-F]{6})", block.group(1)))
    return themes


PALETTES = palettes()
themes = pytest.mark.parametrize("theme", PALETTES)


def linear(colour: str) -> Vector:
    """The linear RGB of "#rrggbb"."""
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    bright, dim = sorted((TO_XYZ[1] @ linear(colour) for colour in (one, other)), reverse=True)
    return float((bright + 0.05) / (dim + 0.05))


def lab(rgb: Vector) -> Vector:
    """CIE L*a*b* of linear RGB."""
    ratio = TO_XYZ @ rgb / WHITE
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def ciede2000(one: Vector, other: Vector) -> float:
    """The colour difference of two L*a*b* colours."""
    (l1, a1, b1) = one
    (l2, a2, b2) = other
    mean_c = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 0.5 * (1 - math.sqrt(mean_c**7 / (mean_c**7 + 25**7)))
    a1 = a1 * (1 + g)
    a2 = a2 * (1 + g)
    c1 = math.hypot(a1, b1)
    c2 = math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    dl = l2 - l1
    dc = c2 - c1
    dh = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    mean_l = (l1 + l2) / 2
    mean_c = (c1 + c2) / 2
    mean_h = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    t = (
        1
        - 0.17 * math.cos(math.radians(mean_h - 30))
        + 0.24 * math.cos(math.radians(2 * mean_h))
        + 0.32 * math.cos(math.radians(3 * mean_h + 6))
        - 0.20 * math.cos(math.radians(4 * mean_h - 63))
    )
    sl = 1 + 0.015 * (mean_l - 50) ** 2 / math.sqrt(20 + (mean_l - 50) ** 2)
    sc = 1 + 0.045 * mean_c
    sh = 1 + 0.015 * mean_c * t
    angle = 60 * math.exp(-(((mean_h - 275) / 25) ** 2))
    rt = -2 * math.sqrt(mean_c**7 / (mean_c**7 + 25**7)) * math.sin(math.radians(angle))
    terms = (dl / sl, dc / sc, dh / sh)
    return math.sqrt(sum(term**2 for term in terms) + rt * terms[1] * terms[2])


def distance(one: str, other: str, sight: str) -> float:
    seen = [lab(np.clip(SIGHTS[sight] @ linear(colour), 0, 1)) for colour in (one, other)]
    return ciede2000(*seen)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [  # from the published test data of Sharma, Wu and Dalal
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((90.8027, -2.0831, 1.4410), (91.1528, -1.6435, 0.0447), 1.4441),
    ],
)
def test_the_distance_is_ciede2000(
    one: tuple[float, ...], other: tuple[float, ...], expected: float
) -> None:
    assert ciede2000(np.array(one), np.array(other)) == pytest.approx(expected, abs=1e-4)


@themes
@pytest.mark.parametrize("surface", ["page", "panel"])
def test_text_can_be_read(theme: str, surface: str) -> None:
    palette = PALETTES[theme]
    for text in ("ink", "soft"):
        assert contrast(palette[text], palette[surface]) >= 4.5, text


@themes
@pytest.mark.parametrize("surface", ["page", "panel"])
def test_marks_stand_out(theme: str, surface: str) -> None:
    palette = PALETTES[theme]
    for name in (*OUTCOMES, "draft"):
        assert contrast(palette[name], palette[surface]) >= 3.0, name


@themes
@pytest.mark.parametrize("sight", SIGHTS)
def test_outcomes_differ_for_every_kind_of_sight(theme: str, sight: str) -> None:
    palette = PALETTES[theme]
    apart = {
        (one, other): distance(palette[one], palette[other], sight)
        for one, other in itertools.combinations(OUTCOMES, 2)
    }
    assert min(apart.values()) >= 10, apart
    assert apart["accepted", "rejected"] >= 40, apart


@themes
@pytest.mark.parametrize("sight", SIGHTS)
def test_the_parts_of_a_round_differ_for_every_kind_of_sight(theme: str, sight: str) -> None:
    palette = PALETTES[theme]
    assert distance(palette["draft"], palette["accepted"], sight) >= 10
    assert distance(palette["soft"], palette["accepted"], sight) >= 10


def test_red_and_green_would_not_have_passed() -> None:
    assert distance("#d62728", "#2ca02c", "usual") > 60
    assert distance("#d62728", "#2ca02c", "deutan") < 20
