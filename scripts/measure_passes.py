"""How long target passes over one to six tokens take in each form a processor has, for sizes of
published models with random weights: where compiled passes stop being the best form.

    python -m scripts.measure_passes [SIZE ...] [--repeats N]

Prints milliseconds, medians, and how long reading the weights takes at least. The sizes above the
limit of `fast_cpu.support` are measured too. The largest takes 6.2 GB in fp32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from specviz.core.eager import EagerEngine
from specviz.core.protocols import StateEngine
from specviz.inspect.random_models import random_model
from specviz.inspect.shapes import Size
from specviz.measure.bench.roofline import floor
from specviz.sides.fast_cpu.engine import CompiledEngine

SIZES = {
    "smollm2-135m": Size(49152, 576, 1536, 30, 9, 3, True),
    "smollm2-360m": Size(49152, 960, 2560, 32, 15, 5, True),
    "qwen2.5-0.5b": Size(151936, 896, 4864, 24, 14, 2, True),
    "llama-3.2-1b": Size(128256, 2048, 8192, 16, 32, 8, True),
    "qwen2.5-1.5b": Size(151936, 1536, 8960, 28, 12, 2, True),
}
CONTEXT = 64  # tokens that are in the cache before a pass
LONG = 256  # tokens of a prompt that is read at once


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
        for form, engine in (
            ("compiled, bf16", CompiledEngine),
            ("modules, bf16", EagerEngine),
            ("modules, fp32", EagerEngine),
        ):
            used = model.float() if "fp32" in form else model
            row = times(engine, used, options.repeats)
            print(f"{name}, {form}:", " ".join(f"{1000 * one:.1f}" for one in row), flush=True)


@torch.inference_mode()
def times(engine: Callable[[Any, int], StateEngine], model: Any, repeats: int) -> list[float]:
    """Seconds of passes over one to six tokens after `CONTEXT` others, and over a prompt."""
    running, vocab = engine(model, model.config.vocab_size), model.config.vocab_size
    found = []
    for before, count in (*((CONTEXT, n) for n in range(1, 7)), (0, LONG)):
        running.rollback(0)
        if before:
            running.forward(torch.arange(before), 1)
        taken = []
        for _ in range(repeats + 1):
            running.rollback(before)
            start = time.perf_counter()
            running.forward(torch.arange(count) % vocab, 1 if count == LONG else count)
            taken.append(time.perf_counter() - start)
        found.append(statistics.median(taken[1:]))
    return found


if __name__ == "__main__":
    main()
