"""The report of an audit: three verdicts with their evidence, the figures, and advice."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from ..runs.uncertainty import Estimate, Spread

Question: TypeAlias = Literal["speculating", "paying", "lossless"]
QUESTIONS: dict[Question, str] = {
    "speculating": "Is it speculating?",
    "paying": "Is it paying?",
    "lossless": "Is it lossless?",
}
Answer: TypeAlias = Literal["yes", "no", "cannot be told"]

GOOD = 0
BAD = 1
UNTOLD = 3
STOPPED = 130
"""Exit statuses. 2 is a mistake in the command line, or a server that cannot be audited.
"""

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """A fact behind a verdict. source: its origin, such as "/metrics"."""

    source: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one question. sentence: the answer with its reason. doubt: a reason why it
    could be wrong; empty if none is known."""

    question: Question
    answer: Answer
    sentence: str
    evidence: tuple[Evidence, ...] = ()
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Drafting:
    """The server's speculation over the texts of the audit.

    tokens, chunks: of the streams.
    steps, drafted, accepted: as the server reported them, else None.
    by_position: the share of steps that kept their first draft, their first two drafts, ..., of the
        steps that drafted as many.
    is_loaded: whether the server reports a loaded draft; None if it does not say.
    """

    tokens: int
    chunks: int
    steps: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    by_position: tuple[float, ...] = ()
    is_loaded: bool | None = None

    @property
    def acceptance(self) -> float | None:
        """The share of drafts that were kept."""
        if not self.drafted or self.accepted is None:
            return None
        return self.accepted / self.drafted


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second without the first ones, and seconds to the first token.

    kind: of the prompts; "all" for all of them together.
    turns: their number; each streamed one text from each server.
    ours: of the audited server. theirs: of the baseline. ratio: ours / theirs, turn by turn.
    gain: the geometric mean of the ratios with its 95% interval.
    """

    kind: str
    turns: int
    ours: Spread
    ours_first: Spread
    theirs: Spread | None = None
    theirs_first: Spread | None = None
    ratio: Spread | None = None
    gain: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Tokens per second of simultaneous requests, all together. Fields as in `Speed`."""

    at_once: int
    ours: Spread
    theirs: Spread | None = None
    ratio: Spread | None = None


@dataclass(frozen=True, slots=True)
class Length:
    """Speed after a prompt of about `tokens` tokens. Fields as in `Speed`."""

    tokens: int
    ours: float
    ours_first: float
    theirs: float | None = None
    theirs_first: float | None = None

    @property
    def ratio(self) -> float | None:
        """The speed of the audited server over that of the baseline."""
        if not self.theirs:
            return None
        return self.ours / self.theirs


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A position where a greedy text is not the first choice of the log-probabilities, or where the
    texts of both servers diverge.

    prompt: number of the prompt, from 1.
    index: of the token, from 0.
    ours, expected: the texts of the server's token and of the other candidate.
    behind: how far the server's token is behind the first choice, in nats; None if unknown.
    verdict: "tie" within rounding, "fault", or "cannot be told".
    """

    prompt: int
    index: int
    ours: str
    expected: str
    behind: float | None
    verdict: Literal["tie", "fault", "cannot be told"]


@dataclass(frozen=True, slots=True)
class Greedy:
    """Judged greedy texts. tokens: the number compared. against: the reference. rounding: the
    largest gap of candidates in a tie, in nats."""

    against: str
    prompts: int
    tokens: int
    rounding: float
    places: tuple[Mismatch, ...]

    @property
    def faults(self) -> int:
        """Positions that rounding cannot explain."""
        return sum(mismatch.verdict == "fault" for mismatch in self.places)


@dataclass(frozen=True, slots=True)
class Control:
    """A sampler that is wrong on purpose, judged by the same test with as many samples. wrong: its
    fault. caught: the share of its trials that the test rejected. trials: of the control.
    """

    wrong: str
    caught: float
    trials: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chi-square test of sampled texts. name: the compared sources. length: tokens of a text.
    p_value: None if all texts fell into one cell."""

    name: str
    length: int
    samples: int
    cells: int
    statistic: float
    degrees: int
    p_value: float | None
    control: Control


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation. sentence: the finding, and the action. engine: the engine whose commands
    the lines are; empty without lines."""

    sentence: str
    engine: str = ""
    lines: str = ""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The plan of an audit as announced. `plan.Agenda` has all of its parts.

    requests: the most that are sent to both servers together. samples: the most sampled texts of
    each server. needed: samples that catch the control; None if it is not known. sentences: the
    plan in words.
    """

    seconds: float
    requests: int
    turns: int
    tokens: int
    samples: int
    needed: int | None
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The verdicts on a server, with their evidence.

    server, baseline: host and port; the baseline is None if none was named. The key is in no field.
    stopped: whether the audit was stopped early. requests: the number sent.
    """

    server: str
    model: str
    software: str
    baseline: str | None
    baseline_software: str | None
    date: str
    version: str
    seconds: float
    requests: int
    stopped: bool
    plan: PlanReport | None
    verdicts: tuple[Verdict, ...]
    drafting: Drafting | None
    speeds: tuple[Speed, ...]
    loads: tuple[Load, ...]
    lengths: tuple[Length, ...]
    greedy: tuple[Greedy, ...]
    sampled: tuple[Sampled, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]

    @property
    def deployment(self) -> str:
        """The server, its software, and the baseline if there is one."""
        server = f"{self.server}, {self.software}"
        if self.baseline is None:
            return server
        return f"{server}, baseline {self.baseline}"

    def verdict(self, question: Question) -> Verdict:
        """The verdict on a question of the audit. Raises `KeyError` for any other."""
        for verdict in self.verdicts:
            if verdict.question == question:
                return verdict
        raise KeyError(question)

    @property
    def exit_status(self) -> int:
        """0 if every answer is yes; 1 if one is no; 3 if none is no and one cannot be told; 130 if
        the audit was stopped and no answer is no."""
        answers = [verdict.answer for verdict in self.verdicts]
        if "no" in answers:
            return BAD
        if self.stopped:
            return STOPPED
        if "cannot be told" in answers:
            return UNTOLD
        return GOOD

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {"schema": SCHEMA, "exit_status": self.exit_status, **asdict(self)}

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
