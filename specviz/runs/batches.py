"""What a draft brings when several texts are decoded at once, derived from measured passes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from ..core.theory import predicted_tau, speedup_at
from ..errors import TraceError
from .intervals import Spread
from .terminal import shown_milliseconds

SCHEMA = 1
MOST = 1e6  # for every number in a file
MOST_WIDTH, MOST_BATCHES = 64, 64  # in a file
LONGEST = 300  # characters of a name in a file
BAR = 20  # characters of a bar in the terminal for a speed-up of 1


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The seconds of passes over `batch` texts.

    target: of the target's passes over 1, 2, ... tokens of each text. draft: of a draft step.
    """

    batch: int
    target: tuple[Spread, ...]
    draft: Spread

    def speedup(self, alpha: float, gamma: int) -> float:
        """The expected speed-up at this gamma, from the median times: `theory.speedup_at`."""
        return speedup_at(
            alpha,
            gamma,
            step=self.draft.median,
            one=self.target[0].median,
            wide=self.target[gamma].median,
        )

    def best(self, alpha: float) -> tuple[int, float]:
        """The gamma from 1 on with the highest expected speed-up, and that speed-up."""
        found = {gamma: self.speedup(alpha, gamma) for gamma in range(1, len(self.target))}
        gamma = max(found, key=found.__getitem__)
        return gamma, found[gamma]

    def rates(self, alpha: float) -> tuple[float, float]:
        """Expected tokens per second of all texts together: alone, and at the best gamma."""
        alone = self.batch / self.target[0].median
        return alone, alone * self.best(alpha)[1]


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
    def widest(self) -> int:
        """The largest measured gamma."""
        return len(self.times[0].target) - 1

    def bound(self, tokens: float) -> float:
        """The least seconds of a target pass over `tokens` tokens in all texts together: the longer
        one of reading the weights and of the arithmetic (Williams et al. 2009, "Roofline")."""
        return max(self.memory_seconds, tokens * self.token_seconds)

    @property
    def break_even(self) -> float | None:
        """The batch at which the best speed-up falls to 1: None if it does not within the measured
        batches, the smallest batch if drafts do not pay even there.

        Between two batches it is interpolated, linear in the logarithm of the batch.
        """
        points = [(one.batch, one.best(self.alpha)[1]) for one in self.times]
        if points[0][1] <= 1:
            return float(points[0][0])
        for (batch, high), (larger, low) in pairwise(points):
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

    def to_json(self) -> str:
        """The measured values, and under "derived" what follows from them, as JSON."""
        values = {"schema": SCHEMA, **asdict(self)}
        derived = [
            {"batch": one.batch, "gamma": gamma, "speedup": speedup}
            for one in self.times
            for gamma, speedup in [one.best(self.alpha)]
        ]
        values["derived"] = {"break_even": self.break_even, "best": derived}
        return json.dumps(values, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> BatchReport:
        """Read what `to_json` wrote. Raises `TraceError` for anything else."""
        try:
            values = json.loads(text)
            if values.pop("schema") != SCHEMA:
                raise ValueError
            values.pop("derived", None)
            times = tuple(_times(one) for one in values.pop("times"))
            report = cls(**values, times=times)
            _check(report)
        except (*_INVALID, RecursionError) as error:
            raise TraceError(
                "this is no measurement of batches: choose a file that `bench --batch ... --out` "
                "wrote."
            ) from error
        return report


_INVALID = (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError)


def _times(values: Mapping[str, Any]) -> BatchTimes:
    target = tuple(Spread(**one) for one in values["target"])
    return BatchTimes(values["batch"], target, Spread(**values["draft"]))


def _check(report: BatchReport) -> None:
    """Raise `ValueError` or `TypeError` unless all values are of their type and possible."""
    texts = (report.target, report.draft, report.form)
    counts = (report.context, *(one.batch for one in report.times))
    spreads = [spread for one in report.times for spread in (*one.target, one.draft)]
    seconds = [value for one in spreads for value in (one.median, one.low, one.high)]
    seconds += [report.memory_seconds, report.token_seconds]
    batches = [one.batch for one in report.times]
    temperature = 0.0 if report.temperature is None else report.temperature
    if not (
        all(isinstance(text, str) and len(text) <= LONGEST for text in texts)
        and all(type(count) is int and 0 < count < MOST for count in counts)
        and all(isinstance(value, (int, float)) and 0 < value < MOST for value in seconds)
        and isinstance(report.environment, dict)
        and 0 <= report.alpha <= 1
        and 0 <= temperature < MOST
        and batches == sorted(set(batches))
        and {len(one.target) for one in report.times} <= {*range(2, MOST_WIDTH + 1)}
        and 0 < len(report.times) <= MOST_BATCHES
        and len({len(one.target) for one in report.times}) == 1
    ):
        raise ValueError


def batch_lines(report: BatchReport) -> Iterator[str]:
    """The measurement as a Markdown table, a bar for each batch, and a sentence."""
    alpha, wide = report.alpha, report.widest + 1
    where = "given" if report.temperature is None else f"temperature {report.temperature}"
    tau = predicted_tau(alpha, report.widest)
    yield f"{report.target} with {report.draft}, {report.form}, {report.context} tokens of context"
    yield f"alpha {alpha:.3f} ({where}): {tau:.2f} tokens per round at gamma {report.widest}"
    yield ""
    yield (
        f"| batch | target pass, 1 token | {wide} tokens | ratio | draft step | c | best gamma | "
        "speed-up | tokens/s alone | with drafts |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for one in report.times:
        yield _table_row(one, alpha)
    yield ""
    for one in report.times:
        gamma, speedup = one.best(alpha)
        yield f"{one.batch:5} │{'█' * round(BAR * speedup)} {speedup:.2f} at gamma {gamma}"
    yield f"{'':5} │{'─' * (BAR - 1)}┴ 1: no gain"
    yield ""
    crossing = report.memory_seconds / report.token_seconds
    yield (
        f"The least time of a target pass: {shown_milliseconds(report.memory_seconds)} to read its "
        f"weights, {shown_milliseconds(report.token_seconds)} of arithmetic for each token; from "
        f"{crossing:.0f} tokens in a pass on, arithmetic is the limit."
    )
    yield report.verdict()


def _table_row(one: BatchTimes, alpha: float) -> str:
    first, last = one.target[0].median, one.target[-1].median
    gamma, speedup = one.best(alpha)
    alone, drafted = one.rates(alpha)
    cells = [
        str(one.batch),
        shown_milliseconds(first),
        shown_milliseconds(last),
        f"{last / first:.2f}",
        shown_milliseconds(one.draft.median),
        f"{one.draft.median / first:.3f}",
        str(gamma),
        f"{speedup:.2f}",
        f"{alone:,.0f}",
        f"{drafted:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"
