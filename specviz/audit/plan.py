"""Options and plan of an audit: turns, simultaneous requests, lengths, samples, and the expected
duration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.errors import SettingsError
from . import greedy, sampled
from .paying import MIN_TURNS, TURNS_AT_ONCE, texts_at_once
from .report import QUESTIONS, PlanReport, Question

PREPARATION = 80
"""The most requests before the plan: the servers' identities, one short text each, and lists."""
MAX_TURNS = 24
CHECKED_TEXTS = 4  # greedy texts whose every token is compared with a list
LENGTH_SHARES = (0.25, 0.5, 0.75)  # of the context
SHARE_OF_TURNS = 0.3  # of the time
SHARE_OF_LOADS = 0.2
SHARE_OF_LENGTHS = 0.1
USUAL_SAMPLES = 400
SPARE = 1.05  # requests that are repeated after a server closed an idle connection


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The options of an audit.

    server: "http://HOST:8000/v1#MODEL".
    baseline: the same target without speculation.
    draft: a model's name for the commands that are recommended.
    prompts: a file of prompts; None for the built-in ones that suit the model.
    minutes: the time budget.
    questions: those to answer.
    at_once: the most requests at once.
    context: the longest prompt, in tokens.
    tokens: of each text.
    temperature: of sampled texts.
    answer_seconds: the longest silence of a server.
    """

    server: str
    baseline: str | None = None
    draft: str | None = None
    prompts: str | Path | None = None
    minutes: float = 5.0
    questions: tuple[Question, ...] = tuple(QUESTIONS)
    at_once: int = 4
    context: int = 2048
    tokens: int = 48
    temperature: float = sampled.TEMPERATURE
    answer_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.minutes > 0:
            raise SettingsError(f"minutes is {self.minutes:g}: use more than 0.")
        are_known = set(self.questions) <= set(QUESTIONS)
        if not self.questions or not are_known:
            raise SettingsError(f"this is not a question of an audit: use {', '.join(QUESTIONS)}.")
        if self.tokens < sampled.SAMPLED_TOKENS or self.at_once < 1 or self.context < 1:
            raise SettingsError(
                "--tokens, --at-once or --context is too small: use "
                f"{sampled.SAMPLED_TOKENS} or more --tokens, and at least 1 for the others."
            )
        if not 0.1 <= self.temperature <= 2.0:
            raise SettingsError(
                f"temperature is {self.temperature:g}: use 0.1 to 2 for sampled texts."
            )

    @property
    def servers(self) -> int:
        """The number of servers: the audited one, and perhaps the baseline."""
        if self.baseline is None:
            return 1
        return 2

    def asks(self, question: Question) -> bool:
        """Whether this question is to be answered."""
        return question in self.questions


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that both servers together take for one text each: until the first token, and for
    each further token."""

    first: float
    token: float

    def seconds(self, tokens: int) -> float:
        """The seconds for a text of `tokens` tokens from each server."""
        return self.first + self.token * tokens


@dataclass(frozen=True, slots=True)
class Agenda:
    """What the audit will do.

    levels: numbers of requests at once.
    lengths: of prompts, in tokens.
    samples: the most sampled texts of each server.
    fitting: the samples expected to fit the time budget.
    needed: the samples that catch the control; None if unknown.
    lists: whether a server lists log-probabilities by token id.
    draws_control: whether the control is drawn from the baseline.
    """

    turns: int
    levels: tuple[int, ...]
    lengths: tuple[int, ...]
    samples: int
    fitting: int
    needed: int | None
    lists: bool
    draws_control: bool

    def sampling_parts(self, servers: int) -> int:
        """The number of times that texts are drawn."""
        if self.draws_control:
            return 3
        return servers


def agenda_of(
    options: AuditOptions, pace: Pace, needed: int | None, lists: bool, context: int | None
) -> Agenda:
    """Build the agenda that fits the time budget."""
    seconds = 60.0 * options.minutes
    text_seconds = pace.seconds(options.tokens)
    turns = int(SHARE_OF_TURNS * seconds / text_seconds)
    turns = max(MIN_TURNS, min(MAX_TURNS, turns))
    levels: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    if options.asks("paying"):
        texts_of_loads = SHARE_OF_LOADS * seconds / text_seconds
        levels = _levels(options.at_once, texts_of_loads)
        longest = min(options.context, context or options.context)
        lengths = tuple(int(share * longest) for share in LENGTH_SHARES)
    samples = 0
    fitting = 0
    draws_control = False
    if options.asks("lossless") and (lists or options.servers == 2):
        used = turns * text_seconds + _texts_of(levels) * text_seconds
        unused = seconds - used - SHARE_OF_LENGTHS * seconds
        left = max(unused, 0.1 * seconds)
        draw_seconds = pace.seconds(sampled.SAMPLED_TOKENS)
        if not lists:  # the control is drawn from the baseline
            draws_control = True
            draw_seconds *= 1.5
        samples = needed or USUAL_SAMPLES
        fitting = min(samples, int(left / draw_seconds))
    return Agenda(
        turns=turns,
        levels=levels,
        lengths=lengths,
        samples=samples,
        fitting=fitting,
        needed=needed,
        lists=lists,
        draws_control=draws_control,
    )


def _levels(max_at_once: int, texts: float) -> tuple[int, ...]:
    """1, 2, 4, ... requests at once, up to `max_at_once` and within a budget of texts: a server
    that works on one at a time takes as long as for all one after the other."""
    levels = [1]
    while True:
        level = 2 * levels[-1]
        with_level = [*levels, level]
        if level > max_at_once or _texts_of(with_level) > texts:
            return tuple(levels)
        levels = with_level


def _texts_of(levels: Sequence[int]) -> int:
    """Texts of each server at these numbers of requests at once."""
    return TURNS_AT_ONCE * sum(map(texts_at_once, levels))


def plan_report(options: AuditOptions, agenda: Agenda, pace: Pace) -> PlanReport:
    """Say in numbers and in words what the agenda costs."""
    servers = options.servers
    requests = servers * agenda.turns + 8  # and counters, slots
    seconds = agenda.turns * pace.seconds(options.tokens)
    sentences = [
        f"{agenda.turns} turns: a greedy text of {options.tokens} tokens from each server."
    ]
    if agenda.levels:
        texts = _texts_of(agenda.levels)
        requests += servers * texts + servers * len(agenda.lengths)
        seconds += texts * pace.seconds(options.tokens)
        levels = ", ".join(map(str, agenda.levels))
        lengths = ", ".join(map(str, agenda.lengths))
        sentences.append(f"{levels} requests at once, and prompts of about {lengths} tokens.")
    if options.asks("lossless"):
        if agenda.lists:
            checks = greedy.requests_for(CHECKED_TEXTS, options.tokens)
            # And the lists and texts of tokens at faulty positions.
            requests += 4 * checks + 3 * CHECKED_TEXTS + 4 * MAX_TURNS
            sentences.append(f"The log-probabilities at every token of {CHECKED_TEXTS} texts.")
        parts = agenda.sampling_parts(servers)
        requests += parts * agenda.samples
        draws = parts * agenda.fitting / servers
        seconds += draws * pace.seconds(sampled.SAMPLED_TOKENS)
        sentences.append(_of_samples(agenda, options))
    requests = int(SPARE * requests) + 4
    sentences.append(f"At most {requests} requests, in about {seconds / 60:.1f} minutes.")
    return PlanReport(
        seconds=seconds,
        requests=requests,
        turns=agenda.turns,
        tokens=options.tokens,
        samples=agenda.samples,
        needed=agenda.needed,
        sentences=tuple(sentences),
    )


def _of_samples(agenda: Agenda, options: AuditOptions) -> str:
    if not agenda.samples:
        return (
            "No sampled texts: the server lists no log-probabilities to judge them by, and "
            "there is no baseline."
        )
    sentence = f"{agenda.samples} sampled texts from each server"
    if agenda.needed is not None:
        colder = sampled.COLDER * options.temperature
        sentence += (
            f", enough to reveal a temperature of {colder:.2g} instead of {options.temperature:.2g}"
        )
    if agenda.fitting < agenda.samples:
        sentence += f"; about {agenda.fitting} of them fit the time"
    return f"{sentence}."


def cut_to(ids: Sequence[int], length: int) -> tuple[int, ...]:
    """Make a prompt of `length` tokens by repeating these ids."""
    times = -(-length // max(1, len(ids)))
    return tuple((list(ids) * times)[:length])
