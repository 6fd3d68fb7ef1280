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
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import DynamicCache

from ...core.eager import check_rollback
from ...core.engine import most_threads, now
from ...core.events import Header
from ...core.header import model_name
from ...core.policy import predicted_tau, speedup_at
from ...core.race import race
from ...errors import ModelError, PairError, SpecvizError, ran_out_of_memory
from ...kinds import drafter_kind
from ...pairs.pair import Pair, context_length, logit_width
from ...runs.metrics import compute_metrics
from ...runs.tables import markdown, shown_milliseconds
from ...runs.trace import Trace
from ...runs.uncertainty import Spread, spread
from ...settings import Settings
from ..racing import all_with, in_fp32
from .roofline import floor, token_seconds

CONTEXT = 128  # tokens of each text in the cache, or less in a shorter context
PASSES = 5  # timed passes of a kind in each turn
LARGEST = 1024
BAR = 20  # characters of a bar in the terminal for a speed-up of 1
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


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Passes by batch on one machine, and what they mean for a draft with this alpha.

    target, draft: names. form: what ran the passes. context: tokens of each text in the cache.
    alpha, temperature: the probability that a draft is accepted, and the temperature at which it
    was measured, or None if alpha was given. memory_seconds: the least time to read the target's
    weights, and the cache of one text. token_seconds: the least time of arithmetic for each token
    in a target pass. environment: machine and versions. times: by rising batch.
    """

    target: str
    draft: str
    form: str
    context: int
    alpha: float
    temperature: float | None
    memory_seconds: float
    token_seconds: float
    environment: dict[str, Any]
    times: tuple[BatchTimes, ...]

    @property
    def best(self) -> list[tuple[int, int, float]]:
        """The measured batches, each with its best gamma and the speed-up there."""
        return [(one.batch, *one.best(self.alpha)) for one in self.times]

    @property
    def break_even(self) -> float | None:
        """The batch at which the best speed-up falls to 1: None if it does not within the measured
        batches, the smallest batch if drafts do not pay even there.

        Between two batches it is interpolated, linear in the logarithm of the batch.
        """
        first, _, speedup = self.best[0]
        if speedup <= 1:
            return float(first)
        for (batch, _, high), (larger, _, low) in pairwise(self.best):
            if low <= 1:
                return float(batch * (larger / batch) ** ((high - 1) / (high - low)))
        return None

    def verdict(self) -> str:
        """One sentence that says up to which batch drafts pay here."""
        first, last, where = self.times[0].batch, self.times[-1].batch, self.break_even
        if where is None:
            return f"Drafts pay at every measured batch, up to {last}."
        if where == first:
            return f"Drafts do not pay here, even at batch {first}."
        return f"Drafts stop paying at a batch of about {where:.1f}."

    def to_dict(self) -> dict[str, Any]:
        """The measured values, and under "derived" what follows from them, ready for JSON."""
        named = [{"batch": n, "gamma": gamma, "speedup": most} for n, gamma, most in self.best]
        derived = {"break_even": self.break_even, "best": named}
        return {"schema": 1, **asdict(self), "derived": derived}

    def lines(self) -> Iterator[str]:
        """The measurement as a Markdown table, a bar for each batch, and a sentence."""
        alpha, widest = self.alpha, len(self.times[0].target) - 1
        where = "given" if self.temperature is None else f"temperature {self.temperature}"
        tau = predicted_tau(alpha, widest)
        yield f"{self.target} with {self.draft}, {self.form}, {self.context} tokens of context"
        yield f"alpha {alpha:.3f} ({where}): {tau:.2f} tokens per round at gamma {widest}\n"
        heads = [head.format(widest + 1) for head in HEADS]
        yield from markdown(heads, [one.cells(alpha) for one in self.times])
        yield ""
        for batch, gamma, speedup in self.best:
            yield f"{batch:5} │{'█' * round(BAR * speedup)} {speedup:.2f} at gamma {gamma}"
        yield f"{'':5} │{'─' * (BAR - 1)}┴ 1: no gain\n"
        # The longer of the two times is the bound (Williams et al. 2009, "Roofline").
        crossing = self.memory_seconds / self.token_seconds
        yield (
            f"The least time of a target pass: {shown_milliseconds(self.memory_seconds)} to read "
            f"its weights, {shown_milliseconds(self.token_seconds)} of arithmetic for each token; "
            f"from {crossing:.0f} tokens in a pass on, arithmetic is the limit."
        )
        yield self.verdict()


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
    settings = replace(settings, temperature=options.temperatures[0])
    batches = sorted(set(options.batch))
    _check(pair, settings)
    print(
        f"batches of {', '.join(map(str, batches))}, {options.repeats} turns of {PASSES} passes\n",
        flush=True,
    )
    header, alpha = _measured_alpha(pair, prompts, settings, options.acceptance)
    threads = options.threads[-1] if options.threads else most_threads()
    machine = {"device": header.device, "processor": header.processor, "threads": threads}
    with all_with(threads):
        its = in_fp32(pair)
        limits = filter(None, map(context_length, (its.target, its.draft_model)))
        context = max(1, min([CONTEXT, *(limit - settings.gamma - 1 for limit in limits)]))
        report = BatchReport(
            target=str(header.target["name"]),
            draft=model_name(its.draft_model),
            form=f"transformers' modules, {str(its.target.dtype).removeprefix('torch.')}",
            context=context,
            alpha=alpha,
            temperature=settings.temperature if options.acceptance is None else None,
            times=batch_times(its, batches, settings.gamma + 1, context, options.repeats),
            memory_seconds=floor(its.target, context, "eager", its.device).seconds,
            token_seconds=token_seconds(its.target, its.device),
            environment={**machine, **header.versions},
        )
    print(*report.lines(), sep="\n")
    print(", ".join(f"{name} {value}" for name, value in report.environment.items()))
    return report.to_dict()


def _check(pair: Pair, settings: Settings) -> None:
    if not isinstance(pair.target, torch.nn.Module):
        raise PairError("--batch times passes on this machine: load the target here, not a server.")
    drafts = drafter_kind(settings.drafter).needs == "draft"
    if pair.draft is None or settings.gamma < 1 or not drafts:
        raise PairError("--batch needs a draft model: choose a pair with one, and gamma 1 to 16.")


def _measured_alpha(
    pair: Pair, prompts: Sequence[str], settings: Settings, given: float | None
) -> tuple[Header, float]:
    """What a race says of pair and machine, and alpha: as `given`, or of races on all prompts."""
    raced = prompts if given is None else prompts[:1]
    traces = [Trace.from_events(race(pair, one, settings)) for one in raced]
    pooled = Trace(traces[0].header, [r for trace in traces for r in trace.rounds])
    alpha = compute_metrics(pooled).alpha if given is None else given
    if alpha is None:
        raise SpecvizError("no draft was judged: use a larger --max-new-tokens, or --acceptance.")
    return pooled.header, alpha


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
