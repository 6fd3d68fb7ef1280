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
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import DynamicCache

from ...base.errors import ModelError, PairError, SpecvizError, ran_out_of_memory
from ...core.clock import now
from ...core.eager import check_rollback
from ...core.messages import TextPrompt
from ...core.model_facts import cache_argument, context_length, logit_width
from ...core.pair import Pair
from ...core.policy import predicted_tau, speedup_at
from ...core.race import race
from ...core.registry import drafter_kind
from ...core.settings import Settings
from ...core.threads import thread_limit
from ...runs.metrics import compute_metrics
from ...runs.tables import markdown, shown_milliseconds
from ...runs.trace import Trace
from ...runs.uncertainty import Spread, spread
from ..samples import computing_threads
from .dtypes import in_fp32

CONTEXT = 128  # tokens of each text in the cache, or less in a shorter context
PASSES = 5  # timed passes of a kind in each turn


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The seconds of passes over `batch` texts at once.

    target: of the target's passes over 1, 2, ... tokens of each text. draft: of a draft step.
    """

    batch: int
    target: tuple[Spread, ...]
    draft: Spread

    def speedup(self, alpha: float, gamma: int) -> float:
        """The expected speed-up at this gamma, from the median times: `speedup_at`."""
        return speedup_at(
            alpha,
            gamma,
            step=self.draft.median,
            one=self.target[0].median,
            wide=self.target[gamma].median,
        )

    def best(self, alpha: float) -> tuple[int, float]:
        """The gamma, 1 or more, with the highest expected speed-up, and that speed-up."""
        gamma = max(range(1, len(self.target)), key=lambda gamma: self.speedup(alpha, gamma))
        return gamma, self.speedup(alpha, gamma)

    def row(self, alpha: float) -> dict[str, str]:
        """The row of the table, by the headings of its columns. Rates are expected tokens per
        second of all texts together."""
        one = self.target[0].median
        wide = self.target[-1].median
        step = self.draft.median
        gamma, speedup = self.best(alpha)
        rate = self.batch / one
        return {
            "batch": str(self.batch),
            "target pass, 1 token": shown_milliseconds(one),
            f"{len(self.target)} tokens": shown_milliseconds(wide),
            "ratio": f"{wide / one:.2f}",
            "draft step": shown_milliseconds(step),
            "c": f"{step / one:.3f}",
            "best gamma": str(gamma),
            "speed-up": f"{speedup:.2f}",
            "tokens/s alone": f"{rate:,.0f}",
            "with drafts": f"{rate * speedup:,.0f}",
        }


def verdict(times: Sequence[BatchTimes], alpha: float) -> str:
    """Say in one sentence up to which batch drafts pay. times: by rising batch."""
    last_that_paid = 0
    for times_of_batch in times:
        batch = times_of_batch.batch
        _, speedup = times_of_batch.best(alpha)
        if speedup > 1:
            last_that_paid = batch
        elif last_that_paid:
            return f"Drafts pay at a batch of {last_that_paid} and no longer at {batch}."
        else:
            return f"Drafts do not pay at a batch of {batch}."
    return f"Drafts pay at every measured batch, up to {last_that_paid}."


def table_lines(times: Sequence[BatchTimes], alpha: float) -> Iterator[str]:
    """Yield the measurement as a Markdown table, and the verdict."""
    rows = [times_of_batch.row(alpha) for times_of_batch in times]
    yield from markdown(list(rows[0]), [list(row.values()) for row in rows])
    yield f"\n{verdict(times, alpha)}"


class BatchedPasses:
    """Passes of transformers' own modules over several texts with one cache.

    ids: int64 [rows, length], the prefill. Raises `ModelError` if the cache does not fit into
    memory, or cannot be rolled back.
    """

    def __init__(self, model: Any, ids: Tensor) -> None:
        self._model = model
        self._cache: Any = DynamicCache(config=model.config)
        self._cache.activate_past_recording()
        if "logits_to_keep" in inspect.signature(model.forward).parameters:
            self.forward(ids, logits_to_keep=1)
        else:
            self.forward(ids)
        check_rollback(model, self._cache, ids.shape[1])

    @torch.inference_mode()
    def forward(self, ids: Tensor, **options: int) -> Tensor:
        """Append int64 `ids` [rows, width], one row to each text; returns the logits
        [rows, width, vocab] in the model's dtype."""
        try:
            cached = {cache_argument(self._model): self._cache}
            output = self._model(input_ids=ids, use_cache=True, **cached, **options)
        except Exception as error:
            if not ran_out_of_memory(error):
                raise
            raise ModelError(
                f"{len(ids)} texts of {ids.shape[1]} tokens do not fit in the memory of this "
                "device: measure smaller batches."
            ) from error
        logits: Tensor = output.logits
        return logits

    def rollback(self, width: int) -> None:
        """Remove the last `width` tokens of every text."""
        self._cache.crop(-width)


def batch_report(
    pair: Pair, prompts: Sequence[TextPrompt], settings: Settings, options: argparse.Namespace
) -> dict[str, Any]:
    """Measure passes, print the table, and return the results.

    The target's passes have 1 to `settings.gamma` + 1 tokens. alpha is --acceptance, or measured by
    racing on each prompt at the first of --temperatures.
    """
    if not isinstance(pair.target, torch.nn.Module):
        raise PairError(
            "--batch times passes on this machine and the target is on a server: load "
            "the target here."
        )
    drafts_with_model = drafter_kind(settings.drafter).needs == "draft"
    if pair.draft is None or settings.gamma < 1 or not drafts_with_model:
        raise PairError(
            "--batch needs drafts from a model: choose a pair with a draft model, and "
            "gamma 1 to 16."
        )
    settings = replace(settings, temperature=options.temperatures[0])
    batches = sorted(set(options.batch))
    print(f"batches of {', '.join(map(str, batches))}\n", flush=True)
    temperature: float | None
    if options.acceptance is None:
        traces = [Trace.from_events(race(pair, prompt, settings)) for prompt in prompts]
        alpha = _pooled_alpha(traces)
        temperature = settings.temperature
    else:
        # One race, for the description of the machine in its header.
        traces = [Trace.from_events(race(pair, prompts[0], settings))]
        alpha = options.acceptance
        temperature = None
    header = traces[0].header
    threads = thread_limit()
    if options.threads:
        threads = options.threads[-1]
    with computing_threads(threads):
        pair_in_fp32 = in_fp32(pair)
        context = _context(pair_in_fp32, settings.gamma)
        times = batch_times(pair_in_fp32, batches, settings.gamma + 1, context, options.repeats)
    environment = {
        "pair": pair.name,
        "dtype": str(pair_in_fp32.target.dtype).removeprefix("torch."),
        "context": context,
        "alpha": alpha,
        "tau": predicted_tau(alpha, settings.gamma),
        "temperature": temperature,
        "device": header.device,
        "processor": header.processor,
        "threads": threads,
    }
    environment |= header.versions
    print(*table_lines(times, alpha), sep="\n")
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    best = []
    for times_of_batch in times:
        gamma, speedup = times_of_batch.best(alpha)
        best.append({"gamma": gamma, "speedup": speedup})
    return environment | {"times": times, "best": best}


def _pooled_alpha(traces: Sequence[Trace]) -> float:
    """alpha over the rounds of all traces."""
    rounds = [r for trace in traces for r in trace.rounds]
    alpha = compute_metrics(Trace(traces[0].header, rounds)).alpha
    if alpha is None:
        raise SpecvizError("no draft was judged: use a larger --max-new-tokens, or --acceptance.")
    return alpha


def _context(pair: Pair, gamma: int) -> int:
    """Tokens of each text in the cache: `CONTEXT`, or fewer, so that a pass still fits."""
    context = CONTEXT
    for model in (pair.target, pair.draft_model):
        limit = context_length(model)
        if limit:
            context = min(context, limit - gamma - 1)
    return max(1, context)


def batch_times(
    pair: Pair, batches: Sequence[int], widest: int, context: int, repeats: int
) -> tuple[BatchTimes, ...]:
    """Time `repeats * PASSES` passes of each kind: the target's over 1 to `widest` tokens of each
    text, the draft's over one.

    All kinds take turns, so that slow changes of the machine's speed affect them in the same way;
    the first pass of each turn is not counted. Raises `ModelError` if memory runs out.
    """
    widths = range(1, widest + 1)
    target_seconds: dict[tuple[int, int], list[float]] = defaultdict(list)  # by batch and width
    draft_seconds: dict[int, list[float]] = defaultdict(list)  # by batch
    for _ in tqdm(range(repeats), unit="turn", disable=None, leave=False):
        for batch in batches:
            texts = _texts(pair, batch, context)
            passes = BatchedPasses(pair.target, texts)
            for width in widths:
                ids = _texts(pair, batch, width)
                target_seconds[batch, width] += _timed(passes, ids, pair.device)
            steps = BatchedPasses(pair.draft, texts)
            next_ids = _texts(pair, batch, 1)
            draft_seconds[batch] += _timed(steps, next_ids, pair.device)
    times = []
    for batch in batches:
        target = tuple(spread(target_seconds[batch, width]) for width in widths)
        draft = spread(draft_seconds[batch])
        times.append(BatchTimes(batch=batch, target=target, draft=draft))
    return tuple(times)


def _timed(passes: BatchedPasses, ids: Tensor, device: torch.device) -> Iterator[float]:
    for number in range(PASSES + 1):
        start = now(device)
        passes.forward(ids)
        end = now(device)
        passes.rollback(ids.shape[1])
        if number > 0:
            yield end - start


def _texts(pair: Pair, rows: int, length: int) -> Tensor:
    """Random ids [rows, length], the same in each call."""
    vocab = min(pair.vocab, logit_width(pair.draft_model))
    generator = torch.Generator().manual_seed(rows * length)
    ids = torch.randint(vocab, (rows, length), generator=generator)
    return ids.to(pair.device)
