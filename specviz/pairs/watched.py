"""Load servers that speculate by themselves."""

from __future__ import annotations

from ..base.errors import PairError
from ..files.progress import Progress, Watcher
from ..remote.address import server_address
from ..sides.watched.watching import Watched, recognised
from .spec import WatchedSpec


def load_watched(spec: WatchedSpec, on_progress: Watcher | None = None) -> Watched:
    """Connect to the servers that a watched pair names. Raises `PairError` and `ServerError`."""
    if on_progress is not None:
        on_progress(Progress("querying the target's server"))
    stream = recognised(server_address(spec.engine.url), spec.engine.model)
    if spec.alone is None:
        return Watched(stream.model, stream)
    alone = recognised(server_address(spec.alone.url), spec.alone.model)
    if alone.identity.speculates:
        raise PairError(
            f"{alone.server.shown} speculates too, but a baseline serves the target alone: start "
            "it without speculation."
        )
    return Watched(stream.model, stream, alone)
