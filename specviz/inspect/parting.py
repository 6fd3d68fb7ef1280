"""Where two greedy lanes part, and what was found out about it, as data.

`inspect.difference` finds it out, with the models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

from ..core.events import agreement_of
from ..errors import SettingsError
from ..lanes import BASELINE, Lane
from ..runs.terminal import printable
from ..runs.trace import Trace


@dataclass(frozen=True, slots=True)
class Parting:
    """Where the texts of two greedy lanes first differ, and how the lane with drafts came there.

    prompt: ids. passes: the drafted and the emitted ids of each round of that lane, up to the one
    that wrote the difference. theirs: the baseline's emitted ids, up to and with the difference.
    gamma: of the run. target, dtype: its model, as the header names it.
    """

    prompt: tuple[int, ...]
    passes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    theirs: tuple[int, ...]
    gamma: int
    target: str
    dtype: str

    @property
    def index(self) -> int:
        """The place of the difference among the emitted tokens, from 0."""
        return len(self.theirs) - 1

    @property
    def ours(self) -> tuple[int, ...]:
        """The emitted ids of the lane with drafts, up to and with the difference."""
        return tuple(i for _, emitted in self.passes for i in emitted)[: len(self.theirs)]


class Scored(NamedTuple):
    """What one way of scoring says of the place. p_ours, p_theirs: the probabilities of both
    candidates at temperature 1. apart: the logit of `theirs` minus that of `ours`, in nats."""

    name: str
    p_ours: float
    p_theirs: float
    apart: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The answer, and what it rests on.

    index: as in `Parting`. ours, theirs: the texts of both candidates. scored: the ways of
    scoring: both lanes' own passes repeated, then fresh caches. rounding: the most, in nats, that
    rounding can move two logits apart here. behind: how far the worse candidate is behind the
    first choice in fresh passes, at least. held, judged: guesses of the control, a run in which
    the target drafts for itself, that were kept, and all that were judged. reasons: what rounding
    cannot explain; empty if the verdict is "tie".
    """

    index: int
    ours: str
    theirs: str
    scored: tuple[Scored, ...]
    rounding: float
    behind: float
    held: int
    judged: int
    reasons: tuple[str, ...]

    @property
    def verdict(self) -> Literal["tie", "bug"]:
        """Whether rounding explains the difference."""
        return "bug" if self.reasons else "tie"

    @property
    def summary(self) -> str:
        """The answer in one sentence."""
        if self.reasons:
            return "A bug: report it, with this recording."
        return (
            f"A tie within rounding: the candidates are {self.behind:.2g} nats apart, and rounding "
            f"moves logits by up to {self.rounding:.2g} here."
        )


def parting_of(trace: Trace, lane: Lane | None = None) -> Parting | None:
    """Where a speculative lane (None: the first) parts from the baseline; None if it does not.

    Raises `SettingsError` if the run was sampled, where texts may differ by chance.
    """
    header, name = trace.header, trace.speculative_lane(lane)
    if not header.settings.greedy:
        raise SettingsError(
            "this run was sampled, so its texts may differ by chance: use temperature 0."
        )
    rounds, alone = trace.lane(name), trace.lane(BASELINE)
    parted = agreement_of(rounds, alone).divergence
    if parted is None:
        return None
    begins = accumulate((len(r.emitted) for r in rounds), initial=0)
    passes = tuple(
        (tuple(t.id for t in r.drafted), tuple(t.id for t in r.emitted))
        for r, begin in zip(rounds, begins, strict=False)
        if begin <= parted.index
    )
    theirs = tuple(t.id for r in alone for t in r.emitted)[: parted.index + 1]
    gamma, target = header.settings_of(name).gamma, str(header.target["name"])
    return Parting(header.prompt_ids, passes, theirs, gamma, target, header.dtype)


def difference_lines(found: Difference) -> Iterator[str]:
    """Why two greedy lanes part: each way of scoring the place, the control, the answer."""
    ours, theirs = (printable(text) for text in (found.ours, found.theirs))
    yield f"token {found.index + 1}: “{ours}” with drafts, “{theirs}” from the target alone"
    for one in found.scored:
        yield (
            f"  {one.name:32} “{ours}” {one.p_ours:.4f}  “{theirs}” {one.p_theirs:.4f}  "
            f"apart {one.apart:+.2g} nats"
        )
    yield f"  rounding moves logits by up to {found.rounding:.2g} nats here"
    yield f"  control, the target drafting for itself: {found.held} of {found.judged} guesses held"
    yield found.summary
    yield from (f"  since {reason}" for reason in found.reasons)
