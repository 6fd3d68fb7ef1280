"""The version, in a module of its own that anything may import."""

__version__ = "0.1.0"
