"""The points of the charts of a run, from its rounds.

The page computes the same for a running race (`series` of `assets/page/facts/metrics.js`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.events import Round
from ..core.lanes import BASELINE, LANES, Lane, label_of
from ..core.policy import predicted_tau

Points = dict[str, list[Any]]
"""The points of one line of a chart: {"x": [...], "y": [...]}."""


def series(rounds: Sequence[Round], names: Sequence[Lane] = LANES) -> dict[str, list[Points]]:
    """The points of every chart, one entry for each of its lines; times are in seconds, but in
    milliseconds in the charts "parts" and "requests".

    names: the lanes, the baseline last. With several speculative lanes, "rates", "tau" and
    "positions" have a line for each of them, with measured values.
    """
    lanes: dict[Lane, list[Round]] = {}
    for lane in names:
        lanes[lane] = [r for r in rounds if r.lane == lane]
    speculative = [lane_rounds for lane, lane_rounds in lanes.items() if lane != BASELINE]
    so_far = [_so_far(lane_rounds) for lane_rounds in speculative]
    if len(speculative) == 1:
        rates = [so_far[0].alpha, so_far[0].efficiency]
        tau = [so_far[0].tau, so_far[0].tau_predicted]
    else:
        rates = [lines.alpha for lines in so_far]
        tau = [lines.tau for lines in so_far]
    return {
        "tokens": [_tokens(lane_rounds) for lane_rounds in lanes.values()],
        "rates": rates,
        "tau": tau,
        "speed": [_speed(lane_rounds) for lane_rounds in lanes.values()],
        "parts": _parts(lanes),
        "positions": [_positions(lane_rounds) for lane_rounds in speculative],
        "requests": [_requests(lane_rounds) for lane_rounds in lanes.values()],
    }


def _tokens(rounds: Sequence[Round]) -> Points:
    clocks = [0.0]
    counts = [0]
    tokens = 0
    for r in rounds:
        tokens += len(r.emitted)
        clocks.append(r.clock)
        counts.append(tokens)
    return {"x": clocks, "y": counts}


def _speed(rounds: Sequence[Round]) -> Points:
    clocks = []
    speeds = []
    tokens = 0
    for r in rounds:
        tokens += len(r.emitted)
        if r.clock > 0:
            clocks.append(r.clock)
            speeds.append(tokens / r.clock)
    return {"x": clocks, "y": speeds}


class _SoFar(NamedTuple):
    """The lines of a lane's figures after each target pass, over all of its rounds until then."""

    alpha: Points
    efficiency: Points
    tau: Points
    tau_predicted: Points


def _so_far(rounds: Sequence[Round]) -> _SoFar:
    """alpha, efficiency and the predicted tau are None if a server does not report its drafts."""
    accepted = 0
    judged = 0
    drafted = 0
    emitted = 0
    lengths: Counter[int] = Counter()  # drafted per round -> rounds
    alphas: list[float | None] = []
    efficiencies: list[float | None] = []
    measured: list[float] = []
    predicted: list[float | None] = []
    is_told = not any(r.untold for r in rounds)
    timed_rounds = [r for r in rounds if not r.reads_prompt]
    for passes, r in enumerate(timed_rounds, 1):
        lengths[len(r.drafted)] += 1
        accepted += sum(t.outcome == "accepted" for t in r.drafted)
        judged += sum(t.outcome != "ignored" for t in r.drafted)
        drafted += len(r.drafted)
        emitted += len(r.emitted)
        alpha: float | None = None
        efficiency: float | None = None
        if is_told and judged:
            alpha = accepted / judged
        if is_told and drafted:
            efficiency = accepted / drafted
        alphas.append(alpha)
        efficiencies.append(efficiency)
        measured.append(emitted / passes)
        predicted.append(_predicted(alpha, lengths))
    passes_so_far = list(range(1, len(timed_rounds) + 1))
    return _SoFar(
        alpha={"x": passes_so_far, "y": alphas},
        efficiency={"x": passes_so_far, "y": efficiencies},
        tau={"x": passes_so_far, "y": measured},
        tau_predicted={"x": passes_so_far, "y": predicted},
    )


def _predicted(alpha: float | None, lengths: Counter[int]) -> float | None:
    """Tokens per target pass by the formula. lengths: the numbers of rounds, by drafted tokens."""
    if alpha is None:
        return None
    tokens = sum(predicted_tau(alpha, length) * count for length, count in lengths.items())
    return tokens / lengths.total()


def _parts(lanes: Mapping[Lane, Sequence[Round]]) -> list[Points]:
    """Mean milliseconds per round of each part, one bar per lane; the baseline is the lowest."""
    upwards = list(lanes)[::-1]
    labels = [label_of(lane) for lane in upwards]
    parts = ["draft_seconds", "verify_seconds", "overhead_seconds"]
    for rounds in lanes.values():
        if any(r.reads_prompt for r in rounds):
            parts = ["overhead_seconds"]  # for a watched server, which reports no parts
    bars: list[Points] = []
    for part in parts:
        means = [_mean_milliseconds(lanes[lane], part) for lane in upwards]
        bars.append({"x": means, "y": labels})
    return bars


def _mean_milliseconds(rounds: Sequence[Round], part: str) -> float:
    if not rounds:
        return 0.0
    total: float = sum(getattr(r, part) for r in rounds)
    return 1000 * total / len(rounds)


def _requests(rounds: Sequence[Round]) -> Points:
    """The requests of each round: kB sent and received, and milliseconds of the pass."""
    kilobytes = []
    milliseconds = []
    for r in rounds:
        if r.exchanged:
            kilobytes.append(r.exchanged / 1000)
            milliseconds.append(1000 * r.verify_seconds)
    return {"x": kilobytes, "y": milliseconds}


def _positions(rounds: Sequence[Round]) -> Points:
    """alpha of the tokens judged at each position of a draft, counted from 1."""
    if any(r.untold for r in rounds):
        return {"x": [], "y": []}
    accepted: Counter[int] = Counter()
    judged: Counter[int] = Counter()
    for r in rounds:
        for position, token in enumerate(r.drafted, 1):
            accepted[position] += token.outcome == "accepted"
            judged[position] += token.outcome != "ignored"
    positions = [position for position in sorted(judged) if judged[position]]
    alphas = [accepted[position] / judged[position] for position in positions]
    return {"x": positions, "y": alphas}
