"""`bench --batch`: passes over several texts at once, and where drafts stop paying.

The passes are those of transformers' own modules with their cache, in fp32 on a processor. The
lanes decode one text, in another form (`engines.make_engine`), so their speeds differ from these.
Sampling and verdicts are not timed here.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from tqdm import tqdm

from ...core.engine import now
from ...core.events import Header
from ...core.race import race
from ...core.threads import most_threads
from ...errors import PairError, SpecvizError
from ...kinds import drafter_kind
from ...pairs.pair import Pair, context_length, logit_width
from ...runs.batches import BatchReport, BatchTimes, batch_lines
from ...runs.intervals import spread
from ...runs.metrics import compute_metrics
from ...runs.trace import Trace
from ...settings import Settings
from ..racing import all_with, in_fp32
from .batched import BatchedPasses
from .roofline import floor, token_seconds

FORM = "transformers' modules"
CONTEXT = 128  # tokens of each text in the cache, or less in a shorter context
PASSES = 5  # timed passes of a kind in each turn
LARGEST = 1024


def check_batches(batches: Sequence[int]) -> list[int]:
    """The batches in rising order, each once. Raises `SpecvizError` for sizes out of range."""
    wrong = [size for size in batches if not 1 <= size <= LARGEST]
    if wrong:
        raise SpecvizError(f"--batch has {wrong[0]}: use numbers of texts from 1 to {LARGEST}.")
    return sorted(set(batches))


def batch_report(
    pair: Pair,
    prompts: Sequence[str],
    settings: Settings,
    batches: Sequence[int],
    options: argparse.Namespace,
) -> None:
    """Measure, print the table, and write the results to the file of --out.

    The target's passes have 1 to `settings.gamma` + 1 tokens. alpha is --acceptance, or measured by
    decoding `prompts` with `settings`, one at a time.
    """
    if not isinstance(pair.target, torch.nn.Module):
        raise PairError("--batch times passes on this machine: load the target here, not a server.")
    drafts = drafter_kind(settings.drafter).needs == "draft"
    if pair.draft is None or settings.gamma < 1 or not drafts:
        raise PairError("--batch needs a draft model: choose a pair with one, and gamma 1 to 16.")
    print(
        f"batches of {', '.join(map(str, batches))}, {options.repeats} turns of {PASSES} passes\n",
        flush=True,
    )
    alpha, header = _alpha(pair, prompts, settings, options.acceptance)
    threads = options.threads[-1] if options.threads else most_threads()
    with all_with(threads):
        its = in_fp32(pair) if pair.device.type == "cpu" else pair
        context = _context(its, settings.gamma)
        times = batch_times(its, batches, settings.gamma + 1, context, options.repeats)
        memory = floor(its.target, context, "eager", its.device).seconds
        arithmetic = token_seconds(its.target, its.device)
    report = BatchReport(
        target=str(header.target["name"]),
        draft=str(header.draft["name"]) if header.draft else "",
        form=f"{FORM}, {str(its.target.dtype).removeprefix('torch.')}",
        context=context,
        alpha=alpha,
        temperature=settings.temperature if options.acceptance is None else None,
        memory_seconds=memory,
        token_seconds=arithmetic,
        environment=_environment(header, threads),
        times=times,
    )
    print(*batch_lines(report), sep="\n")
    print(", ".join(f"{name} {value}" for name, value in report.environment.items()))
    if options.out:
        options.out.write_text(report.to_json(), encoding="utf-8")


def batch_times(
    pair: Pair, batches: Sequence[int], widest: int, context: int, repeats: int
) -> tuple[BatchTimes, ...]:
    """The spread of `repeats * PASSES` passes of each kind: the target's over 1 to `widest` tokens
    of each text, the draft's over one.

    All kinds take turns, so that slow changes of the machine's speed affect them in the same way;
    the first pass of each turn is not counted. Raises `ModelError` if memory runs out.
    """
    kinds = [("draft", 1), *(("target", width) for width in range(1, widest + 1))]
    models = {"target": pair.target, "draft": pair.draft}
    seconds: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    for _ in tqdm(range(repeats), unit="turn", disable=None, leave=False):
        for batch in batches:
            for role, model in models.items():
                passes = BatchedPasses(model, _texts(pair, batch, context))
                for width in (width for one, width in kinds if one == role):
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


def _timed(passes: BatchedPasses, ids: torch.Tensor, device: torch.device) -> Iterator[float]:
    for again in range(PASSES + 1):
        start = now(device)
        passes.forward(ids)
        end = now(device)
        passes.rollback(ids.shape[1])
        if again:
            yield end - start


def _texts(pair: Pair, rows: int, length: int) -> torch.Tensor:
    """Random ids [rows, length], the same in each call: texts that differ from each other."""
    most = min(pair.vocab, logit_width(pair.draft))
    generator = torch.Generator().manual_seed(rows * length)
    return torch.randint(most, (rows, length), generator=generator).to(pair.device)


def _context(pair: Pair, gamma: int) -> int:
    limits = (context_length(model) for model in (pair.target, pair.draft))
    return max(1, min([CONTEXT, *(limit - gamma - 1 for limit in limits if limit)]))


def _alpha(
    pair: Pair, prompts: Sequence[str], settings: Settings, given: float | None
) -> tuple[float, Header]:
    """alpha over the rounds of all prompts, or the given one, and the header of a run."""
    if given is not None:
        first = next(iter(race(pair, prompts[0], settings)))
        assert isinstance(first, Header)
        return given, first
    traces = [Trace.from_events(race(pair, prompt, settings)) for prompt in prompts]
    header, rounds = traces[0].header, [r for trace in traces for r in trace.rounds]
    alpha = compute_metrics(Trace(header, rounds)).alpha
    if alpha is None:
        raise SpecvizError("no draft was judged: use a larger --max-new-tokens, or --acceptance.")
    return alpha, header


def _environment(header: Header, threads: int) -> dict[str, Any]:
    return {
        "device": header.device,
        "processor": header.processor,
        "threads": threads,
        **header.versions,
    }
