"""The schedule of a sweep: which rows it tries, and which piece comes next after its findings.

The pair's own settings run first, then each drafter once at its largest gamma, which predicts its
other rows. Then as many rows as fit the time budget run on every prompt, in turns; a row that is
clearly slower is given up. A race that was delayed by something else on the machine is run again.
The last seconds are reserved for the best row.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ...base.errors import PairError, SettingsError
from ...core.messages import TextPrompt
from ...core.pair import Pair
from ...core.race import race
from ...core.registry import swept_drafters
from ...core.settings import GAMMA_POLICIES, RANGES, Settings
from ..samples import rotated
from .table import MIN_PROMISE, MIN_PROMPTS_TO_COMPARE, best_promise
from .types import Configuration, Row, SweepRequest

T = TypeVar("T")
MAX_ROWS = 200
MAX_REPEATS = 12
RETRIES = 2  # of a race that was delayed
SETTLED_REPEATS = 2  # repeats once each temperature has one row left


@dataclass(frozen=True, slots=True)
class Piece:
    """One race. key: of the configuration. prompt: the index of the prompt. repeat: from 0."""

    key: str
    prompt: int
    repeat: int = 0


def checked(request: SweepRequest) -> SweepRequest:
    """Check the request and remove repeated values. Raises `SettingsError`."""
    if not request.prompts:
        raise SettingsError("there are no prompts to sweep: give at least one.")
    _check_names("drafters", request.drafters, swept_drafters())
    _check_names("policies", request.policies, GAMMA_POLICIES)
    if not request.gammas:
        raise SettingsError("gammas is empty: use whole numbers of 1 or more.")
    for gamma in request.gammas:
        _check_gamma(gamma)
    if not request.temperatures:
        raise SettingsError("there is no temperature to sweep: give at least one, such as 0.")
    if not 1.0 <= request.seconds <= 86_400.0:
        raise SettingsError(f"seconds is {request.seconds:g}: use 1 to 86400.")
    for temperature in request.temperatures:
        replace(request.base, temperature=temperature)  # raises for what no run allows
    if request.base.max_new_tokens < 2:
        raise SettingsError(
            f"max_new_tokens is {request.base.max_new_tokens}: use 2 or more, so "
            "that there are texts to compare."
        )
    request = replace(
        request,
        drafters=_once(request.drafters),
        gammas=_once(request.gammas),
        policies=_once(request.policies),
        temperatures=_once(map(float, request.temperatures)),
    )
    count = len(request.configurations())
    if count > MAX_ROWS:
        raise SettingsError(f"these are {count} rows: sweep {MAX_ROWS} or fewer at once.")
    return request


def _check_gamma(gamma: Any) -> None:
    max_gamma = int(RANGES["gamma"][1])
    if type(gamma) is not int or not 1 <= gamma <= max_gamma:
        shown = str(gamma)[:40]
        raise SettingsError(f"gammas has {shown}: use whole numbers, 1 to {max_gamma}.")


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


def why_impossible(pair: Pair, prompt: TextPrompt, settings: Settings, drafter: str) -> str:
    """Begin a race with this drafter, which makes its engines. Returns the reason why the pair
    cannot use it, as a sentence, or an empty text."""
    short = replace(settings, drafter=drafter, gamma=max(1, settings.gamma), max_new_tokens=2)
    try:
        next(race(pair, prompt, short))
    except PairError as error:
        return str(error)
    return ""


def rows_to_begin_with(pair: Pair, rows: Sequence[Configuration]) -> frozenset[str]:
    """The keys of the rows, one of each temperature, that are nearest to the pair's own settings;
    none if its drafter is not swept."""
    usual = pair.settings()

    def distance(row: Configuration) -> tuple[bool, int]:
        return row.policy != usual.gamma_policy, abs(row.gamma - usual.gamma)

    nearest: dict[float, Configuration] = {}
    for row in rows:
        if row.drafter != usual.drafter:
            continue
        nearest_so_far = nearest.get(row.temperature)
        if nearest_so_far is None or distance(row) < distance(nearest_so_far):
            nearest[row.temperature] = row
    return frozenset(row.key for row in nearest.values())


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of a sweep, from which its schedule follows.

    table: its rows now. ran: runs without delays, by row and prompt. tried: all runs. prompts:
    the number of prompts. spent: of `seconds`. done: pieces. begins: the keys of the rows with the
    pair's own settings, which always run.
    """

    table: tuple[Row, ...]
    ran: Counter[tuple[str, int]]
    tried: Counter[tuple[str, int]]
    prompts: int
    spent: float
    seconds: float
    done: int
    begins: frozenset[str] = frozenset()

    @property
    def rows(self) -> list[Row]:
        """The rows that this pair can run."""
        return [row for row in self.table if row.status != "left out"]

    @property
    def pieces_in_all(self) -> float:
        """Pieces that fit the whole time budget."""
        if not self.spent:
            return math.inf
        return self.seconds * self.done / self.spent

    @property
    def time_for(self) -> float:
        """Pieces that still fit the time budget."""
        return self.pieces_in_all - self.done

    def is_new(self, key: str, prompt: int, repeat: int = 0) -> bool:
        """Whether this repeat of a row on a prompt was not tried."""
        return self.tried[key, prompt] <= repeat

    def is_due(self, key: str, prompt: int, repeat: int = 0) -> bool:
        """Whether this repeat of a row on a prompt has no undelayed run, and may be tried again."""
        is_missing = self.ran[key, prompt] <= repeat
        return is_missing and self.tried[key, prompt] <= repeat + RETRIES

    def prompts_of(self, key: str) -> int:
        """Count the prompts on which a row ran."""
        return sum(self.ran[key, prompt] > 0 for prompt in range(self.prompts))


def due(now: Standing) -> list[Piece]:
    """The next pieces in order; none if the time is spent, or no two rows are left to tell
    apart."""
    if now.done and now.spent >= now.seconds:
        return []
    owed = _owed(now)
    if now.done and now.time_for <= len(owed) + 1:
        return owed or _next_turn(now)
    return _scouting(now) or _next_turn(now)


def pieces_left(now: Standing) -> int:
    """Estimate how many pieces are left: those that are due, within the time budget."""
    next_pieces = due(now)
    if not next_pieces:
        return 0
    keys = [key for group in racing(now) for key in group]
    if not now.done:  # nothing is predicted yet: about half of the rows will be worth measuring
        keys = keys[: max(1, len(keys) // 2)]
    missing = 0
    for key in keys:
        for prompt in range(now.prompts):
            missing += max(0, SETTLED_REPEATS - now.ran[key, prompt])
    pieces = max(len(next_pieces), missing)
    return max(1, round(min(pieces, now.time_for)))


def _groups(now: Standing) -> list[list[Row]]:
    """The rows of each drafter at each temperature."""
    groups: dict[tuple[str, float], list[Row]] = defaultdict(list)
    for row in now.rows:
        groups[row.drafter, row.temperature].append(row)
    return list(groups.values())


def _scouting(now: Standing) -> list[Piece]:
    """On the first prompt the pair's own row, and each drafter at its largest gamma, at every
    temperature."""
    keys = [row.key for row in now.rows if row.key in now.begins]
    keys += [_largest(group) for group in _groups(now)]
    return [Piece(key, 0) for key in dict.fromkeys(keys) if now.is_new(key, 0)]


def _largest(group: Sequence[Row]) -> str:
    """The key of the row with the largest gamma, of fixed ones if there are any."""
    configurations = [row.configuration for row in group]
    fixed = [settings for settings in configurations if settings.policy == "fixed"]
    largest = max(fixed or configurations, key=lambda settings: settings.gamma)
    return largest.key


def _next_turn(now: Standing) -> list[Piece]:
    """Of the rows that are still racing, those that are missing on the first unfinished prompt.
    Delayed races are run again after all prompts, before any prompt is repeated."""
    groups = racing(now)
    keys = [key for group in groups for key in group]
    is_settled = all(len(group) <= 1 for group in groups)
    repeats = MAX_REPEATS
    if is_settled:
        repeats = min(SETTLED_REPEATS, MAX_REPEATS)
    for repeat in range(repeats):
        for is_missing in (now.is_new, now.is_due):
            for prompt in range(now.prompts):
                turn = repeat * now.prompts + prompt
                missing = [key for key in rotated(keys, turn) if is_missing(key, prompt, repeat)]
                if missing:
                    return [Piece(key, prompt, now.ran[key, prompt]) for key in missing]
    return []


def racing(now: Standing) -> list[list[str]]:
    """The keys of the rows to go on with, a list for each temperature.

    In a short time they are as many as can run on `MIN_PROMPTS_TO_COMPARE` prompts each. The pair's
    own row and those that are being measured come first, then those with the highest prediction,
    and those without a prediction, alternating between drafters. Rows that are clearly slower are
    left out.
    """
    temperatures = list(dict.fromkeys(row.temperature for row in now.rows))
    pieces = now.pieces_in_all - len(_groups(now))  # after each drafter ran once
    limit = pieces / MIN_PROMPTS_TO_COMPARE / max(1, len(temperatures))
    keys_by_temperature = []
    for temperature in temperatures:
        rows = [row for row in now.rows if row.temperature == temperature]
        chosen = _by_urgency(now, rows)
        if math.isfinite(limit):
            chosen = chosen[: max(1, int(limit))]
        racing_keys = {row.key for row in chosen if row.status != "eliminated"}
        in_table_order = [row.key for row in rows if row.key in racing_keys]
        keys_by_temperature.append(in_table_order)
    return keys_by_temperature


def _by_urgency(now: Standing, rows: Sequence[Row]) -> list[Row]:
    """The rows of a temperature that may be worth measuring, the most urgent first."""
    threshold = MIN_PROMISE * best_promise(rows)
    rising = sorted(rows, key=lambda row: row.promise or 0.0)
    leaders = list({row.drafter: row for row in rising}.values())  # the best one of each drafter
    rows_of_drafter: Counter[str] = Counter()
    urgency: dict[str, tuple[float, ...]] = {}
    candidates = []
    for row in rows:
        is_own = row.key in now.begins
        is_begun = now.prompts_of(row.key) > 1 or row.mark in ("best", "open")
        stays = is_own or is_begun or row in leaders
        if not stays and _is_behind(row, threshold):
            continue
        promise = row.promise or math.inf
        turn = 0
        if math.isinf(promise):  # those without a prediction alternate between drafters
            turn = rows_of_drafter[row.drafter]
        urgency[row.key] = (not is_own, not is_begun, -promise, turn)
        rows_of_drafter[row.drafter] += 1
        candidates.append(row)
    return sorted(candidates, key=lambda row: urgency[row.key])


def _is_behind(row: Row, threshold: float) -> bool:
    """Whether a row is predicted to be below a threshold. No row is given up for a prediction from
    few rounds."""
    promise = row.promise or math.inf
    return promise < threshold and row.predicted is not None and row.predicted.enough


def _owed(now: Standing) -> list[Piece]:
    """The pieces that an answer needs: at each temperature the row with the highest prediction
    above the best measured row, or else that row itself, runs on `MIN_PROMPTS_TO_COMPARE` prompts.
    Those that other rows ran on come first."""
    leaders: dict[float, str] = {}
    candidates = [row for row in now.rows if row.mark in ("best", "open")]
    candidates.sort(key=lambda row: (row.mark == "open", row.promise or 0.0))
    for row in candidates:
        leaders[row.temperature] = row.key
    prompts = [prompt for _, prompt in now.ran]  # those that other rows ran on come first
    prompts += range(now.prompts)
    order = dict.fromkeys(prompts)
    pieces = []
    for key in leaders.values():
        new = [prompt for prompt in order if now.is_due(key, prompt)]
        new.sort(key=lambda prompt: now.tried[key, prompt])  # delayed races come last
        missing = max(0, MIN_PROMPTS_TO_COMPARE - now.prompts_of(key))
        pieces += [Piece(key, prompt) for prompt in new[:missing]]
    return pieces
