"""The position where the two greedy lanes of a run diverge, and its explanation, as data.
`inspect.difference` computes the explanation with the models. Whether a run is the same as another
one is another question: `runs.rerun`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..base.errors import SettingsError
from ..core.events import Token, agreement_of, emitted_tokens
from ..core.lanes import BASELINE, Lane
from ..runs.terminal import printable
from ..runs.trace import Trace


class Pass(NamedTuple):
    """The ids that a round drafted, and those that it emitted."""

    drafted: tuple[int, ...]
    emitted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parting:
    """The first difference of the texts of two greedy lanes, and the passes that led to it.

    prompt: ids.
    passes: of the lane with drafts, up to the one that wrote the difference.
    baseline: the emitted ids of the baseline, up to and including the difference.
    gamma: of the run.
    target, dtype: the run's model, as the header names it.
    """

    prompt: tuple[int, ...]
    passes: tuple[Pass, ...]
    baseline: tuple[int, ...]
    gamma: int
    target: str
    dtype: str

    @property
    def index(self) -> int:
        """The position of the difference among the emitted tokens, from 0."""
        return len(self.baseline) - 1

    @property
    def speculative(self) -> tuple[int, ...]:
        """The emitted ids of the lane with drafts, up to and including the difference."""
        emitted: list[int] = []
        for target_pass in self.passes:
            emitted += target_pass.emitted
        return tuple(emitted[: len(self.baseline)])


class Scored(NamedTuple):
    """The scores of the position by one way of scoring.

    p_speculative, p_baseline: the probabilities of both lanes' candidates at temperature 1.
    apart: the logit of the baseline's candidate minus that of the other, in nats.
    """

    name: str
    p_speculative: float
    p_baseline: float
    apart: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The explanation of a difference, with its evidence.

    index: as in `Parting`.
    speculative, baseline: the texts of both lanes' candidates.
    scored: the ways of scoring: both lanes' own passes repeated, then fresh caches.
    rounding: the most, in nats, that rounding can move two logits apart here.
    behind: the least distance of the worse candidate from the first choice in fresh passes.
    held, judged: the guesses that were kept, and all that were judged, of the control: a run in
        which the target drafts for itself.
    reasons: what rounding cannot explain; empty if the verdict is "tie".
    """

    index: int
    speculative: str
    baseline: str
    scored: tuple[Scored, ...]
    rounding: float
    behind: float
    held: int
    judged: int
    reasons: tuple[str, ...]

    @property
    def verdict(self) -> Literal["tie", "bug"]:
        """Whether rounding explains the difference."""
        if self.reasons:
            return "bug"
        return "tie"

    @property
    def summary(self) -> str:
        """The answer in one sentence."""
        if self.reasons:
            return "A bug: report it and attach this recording."
        return (
            f"A tie within rounding: the candidates are {self.behind:.2g} nats apart, and rounding "
            f"shifts logits by up to {self.rounding:.2g} here."
        )


def parting_of(trace: Trace, lane: Lane | None = None) -> Parting | None:
    """Where a speculative lane (None: the first) diverges from the baseline; None if it does not.

    Raises `SettingsError` if the run was sampled, where texts may differ by chance.
    """
    header = trace.header
    name = trace.speculative_lane(lane)
    if not header.settings.greedy:
        raise SettingsError(
            "this run was sampled, so its texts may differ by chance: use temperature 0."
        )
    rounds = trace.lane(name)
    baseline_rounds = trace.lane(BASELINE)
    divergence = agreement_of(rounds, baseline_rounds).divergence
    if divergence is None:
        return None
    passes: list[Pass] = []
    emitted = 0
    for r in rounds:
        if emitted > divergence.index:
            break
        passes.append(Pass(_ids(r.drafted), _ids(r.emitted)))
        emitted += len(r.emitted)
    baseline_tokens = emitted_tokens(baseline_rounds)
    return Parting(
        prompt=header.prompt_ids,
        passes=tuple(passes),
        baseline=_ids(baseline_tokens[: divergence.index + 1]),
        gamma=header.settings_of(name).gamma,
        target=str(header.target["name"]),
        dtype=header.arithmetic,
    )


def _ids(tokens: Iterable[Token]) -> tuple[int, ...]:
    return tuple(token.id for token in tokens)


def difference_lines(difference: Difference) -> Iterator[str]:
    """Why two greedy lanes diverge: each way of scoring the position, the control, the answer."""
    drafted = f"“{printable(difference.speculative)}”"
    alone = f"“{printable(difference.baseline)}”"
    yield f"token {difference.index + 1}: {drafted} with drafts, {alone} from the target alone"
    for scored in difference.scored:
        yield (
            f"  {scored.name:32} {drafted} {scored.p_speculative:.4f}  "
            f"{alone} {scored.p_baseline:.4f}  apart {scored.apart:+.2g} nats"
        )
    yield f"  rounding shifts logits by up to {difference.rounding:.2g} nats here"
    yield (
        f"  control, the target drafting for itself: {difference.held} of {difference.judged} "
        "guesses accepted"
    )
    yield difference.summary
    for reason in difference.reasons:
        yield f"  because {reason}"
