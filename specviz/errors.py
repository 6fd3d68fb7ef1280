"""Every failure that a user can cause, each with one sentence that says what to do."""

from __future__ import annotations


class SpecvizError(Exception):
    """Base of all errors that specviz raises on purpose; `str(error)` is fit for the page."""


class SettingsError(SpecvizError, ValueError):
    """A setting has the wrong type or lies outside its range."""


class PromptError(SpecvizError, ValueError):
    """The prompt is empty, too long, or holds ids that the tokenizer does not know."""


class PairError(SpecvizError, ValueError):
    """The two models do not form a pair, or cannot be loaded."""


class ModelError(SpecvizError, RuntimeError):
    """A model misbehaved while running: non-finite logits, an unsupported cache."""


class TraceError(SpecvizError, ValueError):
    """A trace or a recording is not what its schema promises."""


class NoGpuError(SpecvizError, RuntimeError):
    """A GPU that is shared with others could not be had, or was taken away."""
