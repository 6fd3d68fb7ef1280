"""What a sweep tries, and which piece comes next, as far as its findings say.

Each drafter runs at its largest gamma on a few prompts, which predicts all rows. Then the rows that
are still in the race run by turns; the last seconds are kept for the one that promises most.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeVar

from ...core.pair import Pair
from ...core.race import race
from ...core.registry import swept_drafters
from ...errors import PairError, SettingsError
from ...settings import GAMMA_POLICIES, RANGES, Settings
from .table import ENOUGH, KEEP, best_promise
from .types import Configuration, Row, SweepRequest

T = TypeVar("T")
MOST_ROWS = 200
SCOUTED = 6  # prompts that are run at the largest gamma before anything is decided
SCOUT_SHARE = 0.5  # of the time: after it no further prompt is run at the largest gamma first
MOST_REPEATS = 12
SETTLED_REPEATS = 2  # repeats after which a sweep with one row left for a temperature is done


@dataclass(frozen=True, slots=True)
class Piece:
    """One race. key: of the configuration. question: the index of the prompt. timing: whether it
    only measures what rounds of this gamma cost, with a few of them. repeat: from 0."""

    key: str
    question: int
    repeat: int = 0
    timing: bool = False


def checked(request: SweepRequest) -> SweepRequest:
    """The request, without repetitions. Raises `SettingsError` for what cannot be swept."""
    if not request.prompts:
        raise SettingsError("there are no prompts to sweep: give at least one.")
    _check_names("drafters", request.drafters, swept_drafters())
    _check_names("policies", request.policies, GAMMA_POLICIES)
    if not request.gammas:
        raise SettingsError("gammas is empty: use whole numbers from 1 on.")
    most = int(RANGES["gamma"][1])
    for gamma in request.gammas:
        if type(gamma) is not int or not 1 <= gamma <= most:
            raise SettingsError(f"gammas has {str(gamma)[:40]}: use whole numbers, 1 to {most}.")
    if not request.temperatures:
        raise SettingsError("there is no temperature to sweep: give at least one, such as 0.")
    if not 1.0 <= request.seconds <= 86_400.0:
        raise SettingsError(f"seconds is {request.seconds:g}: use 1 to 86400.")
    for temperature in request.temperatures:
        replace(request.base, temperature=temperature)  # raises for what no run allows
    if request.base.max_new_tokens < 2:
        raise SettingsError("max_new_tokens is below 2: a sweep needs texts to compare.")
    request = replace(
        request,
        drafters=_once(request.drafters),
        gammas=_once(request.gammas),
        policies=_once(request.policies),
        temperatures=_once(map(float, request.temperatures)),
    )
    count = len(request.configurations())
    if count > MOST_ROWS:
        raise SettingsError(f"these are {count} rows: sweep {MOST_ROWS} or fewer at once.")
    return request


def _check_names(field: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    hint = f"use some of {', '.join(allowed)}."
    if not names:
        raise SettingsError(f"{field} is empty: {hint}")
    for name in names:
        if name not in allowed:
            raise SettingsError(f"{field} has {str(name)[:40]!r}: {hint}")


def _once(values: Iterable[T]) -> tuple[T, ...]:
    """The values in order, without repetitions."""
    return tuple(dict.fromkeys(values))


def impossible_drafters(
    pair: Pair, prompt: str, settings: Settings, drafters: Sequence[str]
) -> dict[str, str]:
    """Why this pair cannot use some drafters, as sentences by drafter."""
    reasons = {}
    for drafter in drafters:
        short = replace(settings, drafter=drafter, gamma=max(1, settings.gamma), max_new_tokens=2)
        try:
            next(race(pair, prompt, short))
        except PairError as error:
            reasons[drafter] = str(error)
    return reasons


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a sweep is. table: its rows as they are known now. ran: how often a row ran on a
    prompt. timed: the rows whose rounds were timed. questions: the number of prompts. spent: of
    `seconds`. done: pieces."""

    table: tuple[Row, ...]
    ran: Counter[tuple[str, int]]
    timed: AbstractSet[str]
    questions: int
    spent: float
    seconds: float
    done: int

    @property
    def rows(self) -> list[Row]:
        """Those that this pair can run."""
        return [row for row in self.table if row.status != "left out"]

    @property
    def time_for(self) -> float:
        """For about how many pieces the time is enough."""
        if not self.spent:
            return math.inf
        return (self.seconds - self.spent) * self.done / self.spent


def due(now: Standing) -> list[Piece]:
    """The next pieces in their order; none if the budget is spent, or nothing is left to tell
    apart."""
    if now.done and now.spent >= now.seconds:
        return []
    owed = _owed(now)
    if now.done and now.time_for <= len(owed) + 1:
        return owed or _confirming(now)
    return _scouting(now, owed) or owed or _confirming(now)


def pieces_left(now: Standing) -> int:
    """About how many pieces are left: as many as are due, or as the time is enough for."""
    next_pieces = due(now)
    if not next_pieces:
        return 0
    keys = [key for group in _in_the_race(now) for key in group]
    if not now.done:  # nothing is predicted yet: about half of the rows will be worth measuring
        keys = keys[: max(1, len(keys) // 2)]
    missing = 0
    for key in keys:
        for question in range(now.questions):
            missing += max(0, SETTLED_REPEATS - now.ran[key, question])
    pieces = max(len(next_pieces), missing)
    return max(1, round(min(pieces, now.time_for)))


def _scouting(now: Standing, owed: Sequence[Piece]) -> list[Piece]:
    """On the first prompts each drafter at its largest gamma, at every temperature. On the very
    first also the costs of the other gammas, with the first drafter, which always drafts if it is a
    model: the pass that judges does not know who drafted."""
    groups: dict[tuple[str, float], list[Configuration]] = defaultdict(list)
    for row in now.rows:
        configuration = row.configuration
        groups[configuration.drafter, configuration.temperature].append(configuration)
    largest = [_largest(group).key for group in groups.values()]
    for question in range(min(SCOUTED, now.questions)):
        pieces = [
            Piece(key, question) for key in rotated(largest, question) if not now.ran[key, question]
        ]
        if question == 0:
            pieces += _timing(now, groups.values())
        if not pieces:
            continue
        if question > 0 and now.spent > SCOUT_SHARE * now.seconds:
            return []
        # What leads runs on each prompt before the next one is scouted.
        return [piece for piece in owed if piece.question < question] or pieces
    return []


def _largest(group: Sequence[Configuration]) -> Configuration:
    """The configuration with the largest gamma, a fixed one if there is one."""
    fixed = [configuration for configuration in group if configuration.policy == "fixed"]
    return max(fixed or group, key=lambda configuration: configuration.gamma)


def _timing(now: Standing, groups: Iterable[Sequence[Configuration]]) -> list[Piece]:
    """The pieces that time the rounds of the other gammas, of the first drafter with fixed ones."""
    for group in groups:
        fixed = [configuration for configuration in group if configuration.policy == "fixed"]
        if fixed:
            keys = [configuration.key for configuration in fixed[:-1]]
            return [Piece(key, 0, timing=True) for key in keys if key not in now.timed]
    return []


def _confirming(now: Standing) -> list[Piece]:
    """Of the rows that are still in the race, those that have not run on the first prompt, or
    repeat, that is not done."""
    groups = _in_the_race(now)
    keys = [key for group in groups for key in group]
    is_settled = all(len(group) <= 1 for group in groups)
    repeats = min(SETTLED_REPEATS, MOST_REPEATS) if is_settled else MOST_REPEATS
    for turn in range(repeats * now.questions):
        repeat, question = divmod(turn, now.questions)
        left = [key for key in rotated(keys, turn) if now.ran[key, question] <= repeat]
        if left:
            return [Piece(key, question, now.ran[key, question]) for key in left]
    return []


def _in_the_race(now: Standing) -> list[list[str]]:
    """The keys of the rows to go on with, a list for each temperature: those that were measured and
    are not slower beyond noise; those predicted to be near the best one; the best of each drafter;
    and those of which nothing is predicted."""
    groups: list[list[str]] = []
    for temperature in dict.fromkeys(row.configuration.temperature for row in now.rows):
        rows = [row for row in now.rows if row.configuration.temperature == temperature]
        bar = KEEP * best_promise(rows)
        rising = sorted(rows, key=lambda row: row.promise or 0.0)
        # The last one of a drafter stays.
        leaders = list({row.configuration.drafter: row for row in rising}.values())
        groups.append([row.configuration.key for row in rows if _is_racing(row, leaders, bar)])
    return groups


def _is_racing(row: Row, leaders: Sequence[Row], bar: float) -> bool:
    if row.status == "eliminated":
        return False
    if row.measured or row.mark or row in leaders:
        return True
    return not row.promise or row.promise >= bar


def _owed(now: Standing) -> list[Piece]:
    """The pieces without which there is no answer: of each temperature the row that promises most
    of those that promise more than the best measured one, or else the best one itself, until it ran
    on `ENOUGH` prompts, on those of the other rows first."""
    leaders: dict[float, str] = {}
    candidates = [row for row in now.rows if row.mark in ("best", "open")]
    for row in sorted(candidates, key=lambda row: (row.mark == "open", row.promise or 0.0)):
        leaders[row.configuration.temperature] = row.configuration.key
    questions = [question for _, question in now.ran]  # those on which other rows ran come first
    questions += range(now.questions)
    order = dict.fromkeys(questions)
    pieces = []
    for key in leaders.values():
        new = [question for question in order if not now.ran[key, question]]
        ran = len(order) - len(new)
        pieces += [Piece(key, question) for question in new[: max(0, ENOUGH - ran)]]
    return pieces


def rotated(keys: Sequence[str], by: int) -> list[str]:
    """The keys in order, beginning with another one each time, so that none is always first."""
    if not keys:
        return []
    begin = by % len(keys)
    return [*keys[begin:], *keys[:begin]]
