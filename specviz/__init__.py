"""See speculative decoding: a target alone races the same target helped by a draft."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base.environment import collector_paused
from .base.errors import SpecvizError
from .base.version import __version__
from .core.events import Choice, End, Header, Round, Token
from .core.records import DrafterKind, VerdictKind
from .core.settings import Settings
from .kinds import fill_registry

if TYPE_CHECKING:
    from .audit.auditing import audit_server
    from .audit.report import AuditReport
    from .core.drafter import Drafter
    from .core.pair import Pair
    from .core.plugins import register
    from .core.race import race
    from .core.types import Draft
    from .pairs.load import load_pair
    from .runs.metrics import Metrics, compute_metrics
    from .runs.notebook import watch
    from .runs.result import Result, baseline, generate, speculate
    from .runs.trace import Trace

__all__ = [
    "AuditReport",
    "Choice",
    "Draft",
    "Drafter",
    "DrafterKind",
    "End",
    "Header",
    "Metrics",
    "Pair",
    "Result",
    "Round",
    "Settings",
    "SpecvizError",
    "Token",
    "Trace",
    "VerdictKind",
    "__version__",
    "audit_server",
    "baseline",
    "compute_metrics",
    "generate",
    "load_pair",
    "race",
    "register",
    "speculate",
    "watch",
]

fill_registry()

_MODULES = {
    "AuditReport": "audit.report",
    "Draft": "core.types",
    "Drafter": "core.drafter",
    "Metrics": "runs.metrics",
    "Pair": "core.pair",
    "Result": "runs.result",
    "Trace": "runs.trace",
    "audit_server": "audit.auditing",
    "baseline": "runs.result",
    "compute_metrics": "runs.metrics",
    "generate": "runs.result",
    "load_pair": "pairs.load",
    "race": "core.race",
    "register": "core.plugins",
    "speculate": "runs.result",
    "watch": "runs.notebook",
}
"""The modules of names that are imported on first use: most import torch, which takes seconds, and
a process that only shows traces does not need it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with collector_paused():
        module = import_module(f".{_MODULES[name]}", __name__)
    value = globals()[name] = getattr(module, name)  # from now on Python finds it here
    return value
