"""The rule that judges drafts, for programs: `sampling.verify`."""

from .core.types import Verdict as Verdict
from .core.verdicts import verify as verify
