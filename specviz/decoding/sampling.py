"""The old place of `specviz.sampling.verify`."""

from ..core.sampling import verify as verify
