"""The version, in its own module so that anything may import it."""

__version__ = "0.1.0"
