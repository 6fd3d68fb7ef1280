"""`bench --batch`: passes over several texts at once, and where drafts stop paying.

The passes are those of transformers' own modules with their cache, in fp32 on a processor. The
lanes decode one text, in another form (`make_engine`), so their speeds differ from these.
Sampling and verdicts are not timed here.
"""

from __future__ import annotations

import argparse
import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import DynamicCache

from ...core.clock import now
from ...core.eager import check_rollback
from ...core.model_facts import context_length, logit_width
from ...core.pair import Pair
from ...core.policy import predicted_tau, speedup_at
from ...core.race import race
from ...core.registry import drafter_kind
from ...core.threads import most_threads
from ...errors import ModelError, PairError, SpecvizError, ran_out_of_memory
from ...runs.metrics import compute_metrics
from ...runs.tables import markdown, shown_milliseconds
from ...runs.trace import Trace
from ...runs.uncertainty import Spread, spread
from ...settings import Settings
from .turns import all_with, in_fp32

CONTEXT = 128  # tokens of each text in the cache, or less in a shorter context
PASSES = 5  # timed passes of a kind in each turn
LARGEST = 1024
HEADS = (
    *("batch", "target pass, 1 token", "{} tokens", "ratio", "draft step", "c", "best gamma"),
    *("speed-up", "tokens/s alone", "with drafts"),
)


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The seconds of passes over `batch` texts.

    target: of the target's passes over 1, 2, ... tokens of each text. draft: of a draft step.
    """

    batch: int
    target: tuple[Spread, ...]
    draft: Spread

    def speedup(self, alpha: float, gamma: int) -> float:
        """The expected speed-up at this gamma, from the median times: `speedup_at`."""
        one, wide = self.target[0].median, self.target[gamma].median
        return speedup_at(alpha, gamma, step=self.draft.median, one=one, wide=wide)

    def best(self, alpha: float) -> tuple[int, float]:
        """The gamma from 1 on with the highest expected speed-up, and that speed-up."""
        gamma = max(range(1, len(self.target)), key=lambda gamma: self.speedup(alpha, gamma))
        return gamma, self.speedup(alpha, gamma)

    def cells(self, alpha: float) -> list[str]:
        """Its row of the table; the rates are expected tokens per second of all texts together."""
        seconds = self.target[0].median, self.target[-1].median, self.draft.median
        (first, last, step), (one, wide, draft) = seconds, map(shown_milliseconds, seconds)
        gamma, speedup = self.best(alpha)
        alone = self.batch / first
        return [
            *(str(self.batch), one, wide, f"{last / first:.2f}", draft, f"{step / first:.3f}"),
            *(str(gamma), f"{speedup:.2f}", f"{alone:,.0f}", f"{alone * speedup:,.0f}"),
        ]


def verdict(times: Sequence[BatchTimes], alpha: float) -> str:
    """One sentence that says up to which batch drafts pay. times: by rising batch."""
    paid = 0
    for one in times:
        if one.best(alpha)[1] <= 1:
            up_to = f"Drafts pay at a batch of {paid}, and no more" if paid else "Drafts do not pay"
            return f"{up_to} at {one.batch}."
        paid = one.batch
    return f"Drafts pay at every measured batch, up to {paid}."


def table_lines(times: Sequence[BatchTimes], alpha: float) -> Iterator[str]:
    """The measurement as a Markdown table, and a sentence."""
    heads = [head.format(len(times[0].target)) for head in HEADS]
    yield from markdown(heads, [one.cells(alpha) for one in times])
    yield f"\n{verdict(times, alpha)}"


class BatchedPasses:
    """Transformers' own modules of a model, after texts of one length.

    ids: int64 [rows, length], with which the cache is filled. Raises `ModelError` if the cache does
    not fit into memory, or cannot be rolled back.
    """

    def __init__(self, model: Any, ids: Tensor) -> None:
        self._model = model
        self._cache: Any = DynamicCache(config=model.config)
        self._cache.activate_past_recording()
        trims = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.forward(ids, **({"logits_to_keep": 1} if trims else {}))
        check_rollback(model, self._cache, ids.shape[1])

    @torch.inference_mode()
    def forward(self, ids: Tensor, **options: int) -> Tensor:
        """Append int64 `ids` [rows, width] to every text; returns the logits [rows, width, vocab]
        in the model's dtype."""
        cache = {"past_key_values": self._cache, "use_cache": True}
        try:
            logits: Tensor = self._model(input_ids=ids, **cache, **options).logits
        except Exception as error:
            if not ran_out_of_memory(error):
                raise
            raise ModelError(
                f"{len(ids)} texts of {ids.shape[1]} tokens do not fit into the memory of this "
                "device: measure smaller batches."
            ) from error
        return logits

    def rollback(self, width: int) -> None:
        """Remove the last `width` tokens of every text."""
        self._cache.crop(-width)


def batch_report(
    pair: Pair, prompts: Sequence[str], settings: Settings, options: argparse.Namespace
) -> dict[str, Any]:
    """Measure, print the table, and return the results.

    The target's passes have 1 to `settings.gamma` + 1 tokens. alpha is --acceptance, or measured by
    decoding `prompts` at the first of --temperatures, one at a time.
    """
    if not isinstance(pair.target, torch.nn.Module):
        raise PairError("--batch times passes on this machine: load the target here, not a server.")
    drafts = drafter_kind(settings.drafter).needs == "draft"
    if pair.draft is None or settings.gamma < 1 or not drafts:
        raise PairError("--batch needs a draft model: choose a pair with one, and gamma 1 to 16.")
    settings = replace(settings, temperature=options.temperatures[0])
    batches = sorted(set(options.batch))
    print(f"batches of {', '.join(map(str, batches))}\n", flush=True)
    given = options.acceptance
    traces = [
        Trace.from_events(race(pair, one, settings))
        for one in prompts[: None if given is None else 1]
    ]
    header = traces[0].header
    pooled = Trace(header, [r for trace in traces for r in trace.rounds])
    alpha = compute_metrics(pooled).alpha if given is None else given
    if alpha is None:
        raise SpecvizError("no draft was judged: use a larger --max-new-tokens, or --acceptance.")
    threads = options.threads[-1] if options.threads else most_threads()
    with all_with(threads):
        its = in_fp32(pair)
        limits = filter(None, map(context_length, (its.target, its.draft_model)))
        context = max(1, min([CONTEXT, *(limit - settings.gamma - 1 for limit in limits)]))
        times = batch_times(its, batches, settings.gamma + 1, context, options.repeats)
    of = {
        "pair": pair.name,
        "dtype": str(its.target.dtype).removeprefix("torch."),
        "context": context,
        "alpha": alpha,
        "tau": predicted_tau(alpha, settings.gamma),
        "temperature": settings.temperature if given is None else None,
        **{"device": header.device, "processor": header.processor, "threads": threads},
        **header.versions,
    }
    print(*table_lines(times, alpha), sep="\n")
    print(", ".join(f"{name} {value}" for name, value in of.items()))
    best = [dict(zip(("gamma", "speedup"), one.best(alpha), strict=True)) for one in times]
    return {**of, "times": times, "best": best}


def batch_times(
    pair: Pair, batches: Sequence[int], widest: int, context: int, repeats: int
) -> tuple[BatchTimes, ...]:
    """The spread of `repeats * PASSES` passes of each kind: the target's over 1 to `widest` tokens
    of each text, the draft's over one.

    All kinds take turns, so that slow changes of the machine's speed affect them in the same way;
    the first pass of each turn is not counted. Raises `ModelError` if memory runs out.
    """
    models = {"target": (pair.target, range(1, widest + 1)), "draft": (pair.draft, (1,))}
    seconds: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    for _ in tqdm(range(repeats), unit="turn", disable=None, leave=False):
        for batch, (role, (model, widths)) in product(batches, models.items()):
            passes = BatchedPasses(model, _texts(pair, batch, context))
            for width in widths:
                ids = _texts(pair, batch, width)
                seconds[batch, role, width] += _timed(passes, ids, pair.device)
    return tuple(
        BatchTimes(
            batch,
            tuple(spread(seconds[batch, "target", width]) for width in range(1, widest + 1)),
            spread(seconds[batch, "draft", 1]),
        )
        for batch in batches
    )


def _timed(passes: BatchedPasses, ids: Tensor, device: torch.device) -> Iterator[float]:
    for again in range(PASSES + 1):
        start = now(device)
        passes.forward(ids)
        end = now(device)
        passes.rollback(ids.shape[1])
        if again:
            yield end - start


def _texts(pair: Pair, rows: int, length: int) -> Tensor:
    """Random ids [rows, length], the same in each call: texts that differ from each other."""
    most = min(pair.vocab, logit_width(pair.draft_model))
    generator = torch.Generator().manual_seed(rows * length)
    return torch.randint(most, (rows, length), generator=generator).to(pair.device)
