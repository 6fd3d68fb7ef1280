"""Compare transformers' passes over several tokens with a running state with its other passes.

    python -m scripts.compare_passes [KIND ...]

For tiny random models of each family with running states, in fp32: the largest difference of
logits from one pass over the whole text without a cache, as a Markdown table.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import DynamicCache

from specviz.core.model_facts import cache_argument
from specviz.core.running_states import positions_from, running_states

HELPERS = Path(__file__).resolve().parent.parent / "tests" / "helpers"
SEVERAL = (7, 3, 1, 4, 9)  # tokens a pass: of a prompt, and of passes with a state
SINGLY = (7, *[1] * 17)
CONVOLUTIONS = "lfm 2, convolutions"


def main(arguments: Sequence[str]) -> None:
    sys.path.insert(0, str(HELPERS))
    model_families: Any = import_module("model_families")  # which is not part of the package
    kinds = [*model_families.RUNNING, CONVOLUTIONS, *model_families.ONE_BY_ONE]
    print(f"transformers {transformers.__version__}\n")
    print("| Models | Several tokens a pass | One token a pass | Largest logit | Read |")
    print("|---|---|---|---|---|")
    for kind in arguments or kinds:
        model = model_families.build(kind)
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(40, (1, sum(SEVERAL)), generator=generator)
        with torch.inference_mode():
            whole = model(input_ids=ids, use_cache=False).logits[0]
        several = _difference(model, ids, SEVERAL, whole)
        singly = _difference(model, ids, SINGLY, whole)
        largest = float(whole.abs().max())
        print(f"| {kind} | {several:.0e} | {singly:.0e} | {largest:.1f} | {_reading(model)} |")


def _difference(model: Any, ids: torch.Tensor, widths: Sequence[int], whole: torch.Tensor) -> float:
    """The largest difference from `whole` in the logits of passes over these numbers of tokens."""
    cache = DynamicCache(config=model.config)
    logits = []
    begin = 0
    with torch.inference_mode():
        for width in widths:
            options = positions_from(model, begin, width) | {cache_argument(model): cache}
            piece = ids[:, begin : begin + width]
            output = model(input_ids=piece, use_cache=True, **options)
            logits.append(output.logits[0])
            begin += width
    difference = torch.cat(logits) - whole
    return float(difference.abs().max())


def _reading(model: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        states = running_states(model)
    if states is None:
        return "rolled back"
    if states.one_by_one:
        return "one by one"
    return "several"


if __name__ == "__main__":
    main(sys.argv[1:])
