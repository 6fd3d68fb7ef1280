"""Pairs of models that other programs keep on this machine, for visitors who may see them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..base.environment import may_have_gpu
from ..core.registry import drafters_for
from ..files.memory import free_ram
from ..pairs.matches import Match, find_local_pairs
from ..worker.tasks import Host
from .names import without_owner
from .security.owner import SEES_MODELS, may_show_models

log = logging.getLogger(__name__)

GROUP = "On this machine"
MAX_LISTED = 60  # pairs
LIFETIME = 10.0  # seconds for which a look at the machine is reused


class _Look(NamedTuple):
    """The result of a look at the machine. time: by the monotonic clock. cpu: whether it was for a
    processor."""

    time: float
    cpu: bool
    matches: Sequence[Match]


_lock = threading.Lock()
_last: list[_Look] = []


def listed_matches(machine: Host | None) -> Sequence[Match]:
    """The pairs of models on this machine, the best first; none for a visitor who may not see them.
    machine: None while it is not known."""
    if not SEES_MODELS.get():
        return ()
    return _looked(machine)


def look_ahead() -> None:
    """Read the headers of all models in a thread, so that no visitor waits for that."""
    if may_show_models():
        threading.Thread(target=_looked, args=(None,), name="local models", daemon=True).start()


def _looked(machine: Host | None) -> Sequence[Match]:
    """Look at the machine, or reuse the last look."""
    if machine is None:
        cpu = not may_have_gpu()
    else:
        cpu = machine.cpu
    with _lock:
        if _last and _last[0].cpu == cpu:
            age = time.monotonic() - _last[0].time
            if age < LIFETIME:
                return _last[0].matches
        if machine is None:
            free = free_ram()
        else:
            free = machine.free
        now = time.monotonic()
        matches = _find_matches(free, cpu=cpu)
        _last[:] = [_Look(time=now, cpu=cpu, matches=matches)]
        return matches


def _find_matches(free: int, *, cpu: bool) -> Sequence[Match]:
    try:
        return find_local_pairs(free, cpu=cpu).best[:MAX_LISTED]
    except Exception:  # a strange file must not keep the page from opening
        log.exception("the models on this machine could not be listed")
        return ()


def local_choices(matches: Sequence[Match]) -> list[tuple[str, str, str]]:
    """The choices of the control, as (label, value, group)."""
    return [(f"{match.shown} · {match.remark}", match.name, GROUP) for match in matches]


def local_models(matches: Sequence[Match]) -> dict[str, dict[str, Any]]:
    """The models of each pair, in the form of `choices.pair_models`."""
    models = {}
    for match in matches:
        models[match.name] = {
            "target": (without_owner(match.target.called), None),
            "draft": (without_owner(match.draft.called), None),
            "chat": match.target.is_chat,
        }
    return models


def local_titles(matches: Sequence[Match]) -> dict[str, str]:
    """The title of each pair."""
    return {match.name: match.title for match in matches}


def local_drafters(matches: Sequence[Match]) -> dict[str, tuple[str, ...]]:
    """The drafters of each pair."""
    drafters = drafters_for(["layers", "draft"])
    return {match.name: drafters for match in matches}
