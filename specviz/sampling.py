"""The rule that judges drafts, for programs: `sampling.verify`."""

from .core.sampling import Verdict as Verdict
from .core.sampling import verify as verify
