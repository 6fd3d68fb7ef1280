"""The rule that judges drafts, for programs: `sampling.verify`."""

from .core.verdict import Verdict as Verdict
from .core.verdict import verify as verify
