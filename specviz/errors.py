"""The errors that users can cause. Each message is one sentence that says what to do."""

from __future__ import annotations


class SpecvizError(Exception):
    """Base of all errors that specviz raises on purpose; the page may show `str(error)`."""


class SettingsError(SpecvizError, ValueError):
    """A setting has the wrong type or lies outside its range."""


class PromptError(SpecvizError, ValueError):
    """The prompt is empty, too long, or holds ids that the tokenizer does not know."""


class PairError(SpecvizError, ValueError):
    """The two models do not form a pair, or cannot be loaded."""


class ModelError(SpecvizError, RuntimeError):
    """A model cannot run: its logits are not finite, or its cache is not supported."""


class TraceError(SpecvizError, ValueError):
    """A trace or a recording is invalid, or its file cannot be read or written."""


class NoGpuError(SpecvizError, RuntimeError):
    """A shared GPU was not available, or was withdrawn during the run."""
