"""Bytes of models: by number of parameters and precision, and in words."""

from __future__ import annotations

PRECISIONS: dict[str, float] = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "8bit": 1,
    "4bit": 0.5 + 4 / 64,  # each 64 weights share a scale in fp32
}
"""Bytes of a weight. The last two concern linear layers; the rest of such a model has 16 bits."""

QUANTIZED = ("8bit", "4bit")

TYPICAL_CONTEXT = 2048  # tokens that caches are reckoned with, unless a model's context is shorter


def weight_bytes(parameters: int, shrinkable: int, precision: str) -> int:
    """Bytes of a model's weights. shrinkable: those that 8 and 4 bits concern."""
    if precision not in QUANTIZED:
        return int(parameters * PRECISIONS[precision])
    return int(shrinkable * PRECISIONS[precision] + (parameters - shrinkable) * 2)


def number_bytes(precision: str) -> int:
    """Bytes of a number in the caches and between the layers."""
    return 4 if precision == "float32" else 2


def shown_bytes(count: float) -> str:
    """A number of bytes for a sentence: "16.1 GB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"


def shown_count(count: float) -> str:
    """A number of parameters for a sentence: "8.03 billion"."""
    for word, size in ((" billion", 1e9), (" million", 1e6)):
        if count >= size:
            return f"{count / size:.3g}{word}"
    return f"{count:,.0f}"
