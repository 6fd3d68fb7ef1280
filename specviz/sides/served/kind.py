"""The record of the engine "server". It has no maker, since such a target has its own
engine."""

from __future__ import annotations

from ...core.events import SERVER as NAME
from ...core.records import EngineKind

SERVER = EngineKind(name=NAME, label="on a server")
