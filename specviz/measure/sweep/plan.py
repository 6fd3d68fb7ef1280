"""What a sweep tries: its rows, and the order of its pieces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.race import race
from ...errors import PairError, PromptError, SettingsError
from ...kinds import swept_drafters
from ...pairs.pair import Pair
from ...prompts import Question
from ...settings import GAMMA_POLICIES, RANGES, Settings
from .types import Configuration, SweepRequest

MOST_ROWS = 200
SWEPT = ("drafters", "gammas", "policies", "temperatures")
SCOUTED = 6  # prompts that are run at the largest gamma before anything is decided
KEEP = 0.8  # of the best predicted speed-up: a row predicted to be below it is not measured


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
    for name, allowed in (("drafters", swept_drafters()), ("policies", GAMMA_POLICIES)):
        given, words = getattr(request, name), f"use some of {', '.join(allowed)}."
        if not given:
            raise SettingsError(f"{name} is empty: {words}")
        for one in given:
            if one not in allowed:
                raise SettingsError(f"{name} has {str(one)[:40]!r}: {words}")
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
    request = replace(request, temperatures=tuple(map(float, request.temperatures)))
    once: dict[str, Any] = {name: tuple(dict.fromkeys(getattr(request, name))) for name in SWEPT}
    request = replace(request, **once)
    if (count := len(configurations(request))) > MOST_ROWS:
        raise SettingsError(f"these are {count} rows: sweep {MOST_ROWS} or fewer at once.")
    return request


def configurations(request: SweepRequest) -> tuple[Configuration, ...]:
    """Every row, in the order of the table. A policy that adapts gamma has one row, up to the
    largest."""
    rows = []
    for temperature in request.temperatures:
        for drafter in request.drafters:
            for policy in request.policies:
                gammas = sorted(request.gammas)
                for gamma in gammas if policy == "fixed" else gammas[-1:]:
                    rows.append(Configuration(drafter, gamma, policy, temperature))
    return tuple(rows)


def impossible_drafters(
    pair: Pair, prompt: str, settings: Settings, drafters: Sequence[str]
) -> dict[str, str]:
    """Why this pair cannot use some drafters, as sentences by drafter."""
    found = {}
    for drafter in drafters:
        few = replace(settings, drafter=drafter, gamma=max(1, settings.gamma), max_new_tokens=2)
        try:
            next(race(pair, prompt, few))
        except PairError as error:
            found[drafter] = str(error)
    return found


def readable(
    pair: Pair, questions: Sequence[Question], chat: str
) -> tuple[tuple[Question, ...], tuple[str, ...]]:
    """The prompts that the target can read, and a sentence for each of the others. Raises
    `PromptError` if there is none."""
    kept, notes = [], []
    for question in questions:
        try:
            pair.encode(question.text, chat=chat)
        except PromptError as error:
            notes.append(f"A prompt of {question.kind} was left out: {error}")
            last = error
        else:
            kept.append(question)
    if not kept:
        raise last
    return tuple(kept), tuple(notes)


def scouts(rows: Sequence[Configuration], question: int) -> list[Piece]:
    """The first pieces on a prompt: each drafter at its largest gamma, at every temperature; after
    the first prompt, the costs of the other gammas, with the first drafter, which always drafts if
    it is a model: the pass that judges does not know who drafted."""
    groups: dict[tuple[str, float], list[Configuration]] = defaultdict(list)
    for row in rows:
        groups[row.drafter, row.temperature].append(row)
    largest = [
        max(own, key=lambda row: (row.policy == "fixed", row.gamma)) for own in groups.values()
    ]
    pieces = [Piece(key, question) for key in rotated([row.key for row in largest], question)]
    fixed = [[row for row in own if row.policy == "fixed"] for own in groups.values()]
    first = next((own for own in fixed if own), [])
    return pieces if question else pieces + [Piece(row.key, 0, timing=True) for row in first[:-1]]


def promising(
    rows: Sequence[Configuration], predicted: Mapping[str, float | None]
) -> dict[float, list[str]]:
    """The rows worth measuring, by temperature: those predicted to be near the best one, the best
    of each drafter, and those of which nothing is predicted."""
    chosen: dict[float, list[str]] = {}
    for temperature in dict.fromkeys(row.temperature for row in rows):
        group = [row for row in rows if row.temperature == temperature]
        speeds = {row.key: predicted.get(row.key) for row in group}
        bar = KEEP * max((speed for speed in speeds.values() if speed is not None), default=0.0)
        leaders: dict[str, str] = {}
        for row in sorted(group, key=lambda row: speeds[row.key] or 0.0, reverse=True):
            leaders.setdefault(row.drafter, row.key)
        chosen[temperature] = [
            key
            for key, speed in speeds.items()
            if speed is None or speed >= bar or key in leaders.values()
        ]
    return chosen


def rotated(keys: Sequence[str], by: int) -> list[str]:
    """The keys in order, beginning with another one each time, so that none is always first."""
    begin = by % len(keys) if keys else 0
    return [*keys[begin:], *keys[:begin]]
