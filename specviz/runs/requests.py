"""What a target on a server costs in requests: bytes, the client's time, the server's own time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..core.events import Header
from ..lanes import Lane, label_of
from .trace import Trace

PER_REQUEST = (
    "The target is on a server: times are those of requests, with the network, the server's queue "
    "and its other users. The ratio is per request, and says nothing of the server's own speed."
)


@dataclass(frozen=True, slots=True)
class RequestCosts:
    """Means over the rounds of one lane. exchanged: bytes that went and came. seconds: of the
    target pass, as this machine sees it. server_seconds: of these, what the server says that it
    worked; None if it does not tell."""

    exchanged: float
    seconds: float
    server_seconds: float | None


def request_costs(trace: Trace, lane: Lane) -> RequestCosts | None:
    """What a round of a lane asked of the server; None if it asked none."""
    asked = [r for r in trace.lane(lane) if r.exchanged]
    if not asked:
        return None
    told = [r.server_seconds for r in asked if r.server_seconds is not None]
    return RequestCosts(
        sum(r.exchanged or 0 for r in asked) / len(asked),
        sum(r.verify_seconds for r in asked) / len(asked),
        sum(told) / len(asked) if len(told) == len(asked) else None,
    )


def request_lines(trace: Trace) -> Iterator[str]:
    """What to say in a terminal of a run whose target is on a server."""
    for lane in trace.lanes:
        costs = request_costs(trace, lane)
        if costs is not None:
            own = costs.server_seconds
            told = "" if own is None else f", of which the server worked {own * 1e3:.1f} ms"
            yield (
                f"{label_of(lane):15} {costs.exchanged / 1e3:.1f} kB and "
                f"{costs.seconds * 1e3:.1f} ms per request{told}"
            )
    if trace.header.streaming_rate is not None:
        yield f"{'the server':15} {own_speed(trace.header)}"
    yield PER_REQUEST


def own_speed(header: Header) -> str:
    """How fast the server streams by itself, as a clause."""
    return f"streams {header.streaming_rate or 0.0:.1f} tokens/s by itself"
