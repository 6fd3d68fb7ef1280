"""The rule that judges drafts, for programs: `sampling.verify`."""

from .core.tensor_verdict import verify as verify
from .core.types import Verdict as Verdict
