"""Bytes of models: by precision, of a loaded model, and as text. This module needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

PRECISIONS: dict[str, float] = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "8bit": 1,
    "4bit": 0.5 + 4 / 64,  # each 64 weights share a scale in fp32
}
"""Bytes of a weight. 8 and 4 bits apply to linear layers; the other weights then have 16 bits."""

QUANTIZED = ("8bit", "4bit")

DTYPES = tuple(name for name in PRECISIONS if name not in QUANTIZED)

LANES = 4
"""Lanes whose caches estimates count: the target alone and three with drafts, as many as the page
races. More of them, in Python, need more memory."""

DRAFTING_LANES = LANES - 1

TYPICAL_CONTEXT = 2048  # tokens in the caches for estimates, unless a model's context is shorter


def smaller_precisions(cpu: bool) -> tuple[str, ...]:
    """Precisions to try if memory is short, the best first; a CPU cannot use 8 or 4 bits."""
    return ("bfloat16",) if cpu else QUANTIZED


class LayerCache(NamedTuple):
    """The cache of one layer. numbers: per token. window: the most tokens kept; None is all."""

    numbers: int
    window: int | None = None


@dataclass(frozen=True)
class MemoryNeed:
    """The memory that one model needs: for its parameters, and for its caches per token.

    quantizable: the number of parameters that 8-bit and 4-bit loading makes smaller. layers: whose
    cache grows with the text. copies: the number of caches, one in each lane that runs the model.
    context: the most tokens that the model sees, or None.
    """

    parameters: int
    quantizable: int
    layers: Sequence[LayerCache] = ()
    copies: int = 1
    context: int | None = None

    def bytes(self, precision: str, tokens: int) -> int:
        """Bytes of the weights, and of the caches of a text of `tokens` tokens."""
        small = self.quantizable if precision in QUANTIZED else self.parameters
        weights = int(small * PRECISIONS[precision] + (self.parameters - small) * 2)
        return weights + self.cached(precision, tokens)

    def cached(self, precision: str, tokens: int) -> int:
        """Bytes of the caches alone. A sliding window keeps no more tokens than its width."""
        most = min(tokens, self.context or tokens)
        kept = (layer.numbers * min(most, layer.window or most) for layer in self.layers)
        return self.copies * sum(kept) * (4 if precision == "float32" else 2)


def parameter_bytes(model: Any, *, without: Any = None) -> int:
    """Bytes of the weights of a loaded model, tied ones once; `without`: a weight to leave out."""
    weights = (p for p in model.parameters() if p is not without)
    return sum(p.numel() * p.element_size() for p in weights)


def pass_bytes(model: Any) -> int:
    """Bytes of weights that a pass reads: all of them, without an untied embedding table."""
    head = getattr(model.get_output_embeddings(), "weight", None)
    try:
        table = model.get_input_embeddings().weight
    except (NotImplementedError, AttributeError):  # a custom model may not have this method
        table = None
    return parameter_bytes(model, without=None if table is head else table)


def shown_bytes(count: float) -> str:
    """A number of bytes as text: "16.1 GB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"


def shown_count(count: float) -> str:
    """A number of parameters as text: "8.03 billion"."""
    for word, size in ((" billion", 1e9), (" million", 1e6)):
        if count >= size:
            return f"{count / size:.3g}{word}"
    return f"{count:,.0f}"
