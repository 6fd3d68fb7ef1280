"""The points of the charts of a run, from its rounds.

The page computes the same for a running race (`series` of `assets/page/facts/metrics.js`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.events import Round
from ..core.lanes import BASELINE, LANES, Lane, label_of
from ..core.policy import predicted_tau

Points = dict[str, list[Any]]
"""The points of one line of a chart: {"x": [...], "y": [...]}."""


def series(rounds: Sequence[Round], names: Sequence[Lane] = LANES) -> dict[str, list[Points]]:
    """The points of every chart, one entry for each of its lines; times are in seconds, but in
    milliseconds in the charts "parts" and "requests".

    names: the lanes, the baseline last. With several speculative lanes, "rates", "tau" and
    "positions" have a line for each of them, of what was measured.
    """
    lanes = {lane: [r for r in rounds if r.lane == lane] for lane in names}
    speculative = [lane_rounds for lane, lane_rounds in lanes.items() if lane != BASELINE]
    so_far = [_so_far(lane_rounds) for lane_rounds in speculative]
    if len(speculative) == 1:
        rates, tau = so_far[0]
    else:  # the measured line, without the predicted one
        rates = [rates_of_lane[0] for rates_of_lane, _ in so_far]
        tau = [tau_of_lane[0] for _, tau_of_lane in so_far]
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
    x = [0.0]
    y = [0]
    for r in rounds:
        x.append(r.clock)
        y.append(y[-1] + len(r.emitted))
    return {"x": x, "y": y}


def _speed(rounds: Sequence[Round]) -> Points:
    points = _tokens(rounds)
    timed = [(x, y / x) for x, y in zip(points["x"], points["y"], strict=True) if x > 0]
    return {"x": [x for x, _ in timed], "y": [y for _, y in timed]}


def _so_far(rounds: Sequence[Round]) -> tuple[list[Points], list[Points]]:
    """The charts "rates" (alpha, efficiency) and "tau" (measured, predicted): after each round,
    the values over all speculative rounds up to it; None if a server tells no drafts."""
    accepted = 0
    judged = 0
    emitted = 0
    lengths: Counter[int] = Counter()  # drafted per round -> rounds
    x: list[int] = []
    alphas: list[float | None] = []
    efficiencies: list[float | None] = []
    measured: list[float] = []
    predicted: list[float | None] = []
    is_told = not any(r.untold for r in rounds)
    for passes, r in enumerate((r for r in rounds if not r.reads_prompt), start=1):
        lengths[len(r.drafted)] += 1
        accepted += sum(t.outcome == "accepted" for t in r.drafted)
        judged += sum(t.outcome != "ignored" for t in r.drafted)
        emitted += len(r.emitted)
        drafted = sum(length * count for length, count in lengths.items())
        alpha = accepted / judged if judged and is_told else None
        x.append(passes)
        alphas.append(alpha)
        efficiencies.append(accepted / drafted if drafted and is_told else None)
        measured.append(emitted / passes)
        predicted.append(None if alpha is None else _predicted(alpha, lengths))
    return (
        [{"x": x, "y": alphas}, {"x": x, "y": efficiencies}],
        [{"x": x, "y": measured}, {"x": x, "y": predicted}],
    )


def _predicted(alpha: float, lengths: Counter[int]) -> float:
    tokens = sum(predicted_tau(alpha, length) * count for length, count in lengths.items())
    return tokens / lengths.total()


def _parts(lanes: Mapping[Lane, Sequence[Round]]) -> list[Points]:
    """Mean milliseconds per round of each part, one bar per lane; the baseline is the lowest."""
    traces: list[Points] = []
    upwards = list(lanes)[::-1]
    parts = ["draft_seconds", "verify_seconds", "overhead_seconds"]
    if any(r.reads_prompt for rounds in lanes.values() for r in rounds):
        parts = ["overhead_seconds"]  # for a watched server, which reports no parts
    for part in parts:
        means = []
        for lane in upwards:
            rounds = lanes[lane]
            total = sum(getattr(r, part) for r in rounds)
            means.append(1000 * total / len(rounds) if rounds else 0.0)
        traces.append({"x": means, "y": [label_of(lane) for lane in upwards]})
    return traces


def _requests(rounds: Sequence[Round]) -> Points:
    """The requests of each round: kB sent and received, and milliseconds of the pass."""
    requests = [r for r in rounds if r.exchanged]
    return {
        "x": [(r.exchanged or 0) / 1000 for r in requests],
        "y": [1000 * r.verify_seconds for r in requests],
    }


def _positions(rounds: Sequence[Round]) -> Points:
    """alpha of the tokens judged at each position of a draft, counted from 1."""
    accepted: list[int] = []
    judged: list[int] = []
    if any(r.untold for r in rounds):
        return {"x": [], "y": []}
    for r in rounds:
        for i, token in enumerate(r.drafted):
            if i == len(judged):
                accepted.append(0)
                judged.append(0)
            accepted[i] += token.outcome == "accepted"
            judged[i] += token.outcome != "ignored"
    positions = [i for i in range(len(judged)) if judged[i]]
    return {
        "x": [i + 1 for i in positions],
        "y": [accepted[i] / judged[i] for i in positions],
    }
