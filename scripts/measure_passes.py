"""Measure target passes over one to six tokens in each form on a processor, for sizes of published
models with random weights, to find where compiled passes stop being the best form.

    python -m scripts.measure_passes [SIZE ...] [--repeats N]

It prints median milliseconds, and the least time of reading the weights. The sizes above the
limit of `fast_cpu.support` are measured too. The largest takes 6.2 GB in fp32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from specviz.core.eager import EagerEngine
from specviz.core.protocols import StateEngine
from specviz.inspect.random_models import random_model
from specviz.inspect.shapes import Size
from specviz.measure.bench.roofline import floor
from specviz.sides.fast_cpu.engine import CompiledEngine

SIZES = {  # in the order of the fields of `Size`: vocabulary, widths, layers, heads, tied
    "smollm2-135m": Size(49152, 576, 1536, 30, 9, 3, True),
    "smollm2-360m": Size(49152, 960, 2560, 32, 15, 5, True),
    "qwen2.5-0.5b": Size(151936, 896, 4864, 24, 14, 2, True),
    "llama-3.2-1b": Size(128256, 2048, 8192, 16, 32, 8, True),
    "qwen2.5-1.5b": Size(151936, 1536, 8960, 28, 12, 2, True),
}
CONTEXT = 64  # tokens that are in the cache before a pass
LONG = 256  # tokens of a prompt that is read at once
MakeEngine: TypeAlias = Callable[[Any, int], StateEngine]
"""Makes an engine of a model and the size of its vocabulary."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("sizes", nargs="*", choices=[*SIZES, []], help="default: all")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print("size, form: ms for 1 to 6 tokens; for a prompt of", LONG)
    for name in options.sizes or SIZES:
        model = random_model(SIZES[name]).bfloat16()
        least = floor(model, CONTEXT, "compiled", torch.device("cpu"))
        print(f"{name}, reading its bytes: {1000 * least.seconds:.1f}")
        _print_times(f"{name}, compiled, bf16", CompiledEngine, model, options.repeats)
        _print_times(f"{name}, modules, bf16", EagerEngine, model, options.repeats)
        _print_times(f"{name}, modules, fp32", EagerEngine, model.float(), options.repeats)


def _print_times(name: str, engine: MakeEngine, model: Any, repeats: int) -> None:
    milliseconds = [f"{1000 * seconds:.1f}" for seconds in times(engine, model, repeats)]
    print(f"{name}:", " ".join(milliseconds), flush=True)


@torch.inference_mode()
def times(engine: MakeEngine, model: Any, repeats: int) -> list[float]:
    """Seconds of passes over one to six tokens after `CONTEXT` others, and over a prompt."""
    vocab = model.config.vocab_size
    running = engine(model, vocab)
    running.forward(torch.arange(CONTEXT), 1)
    medians = []
    for width in range(1, 7):
        ids = torch.arange(width)
        median = _median_seconds(running, CONTEXT, ids, width, repeats)
        medians.append(median)
    prompt = torch.arange(LONG) % vocab
    median = _median_seconds(running, 0, prompt, 1, repeats)
    medians.append(median)
    return medians


def _median_seconds(
    running: StateEngine, context: int, ids: torch.Tensor, keep: int, repeats: int
) -> float:
    """Median seconds of a pass after the first `context` tokens. keep: rows of logits."""
    seconds = []
    for _ in range(repeats + 1):
        running.rollback(context)
        start = time.perf_counter()
        running.forward(ids, keep)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])  # the first one warms up


if __name__ == "__main__":
    main()
