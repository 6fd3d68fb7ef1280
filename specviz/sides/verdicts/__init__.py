"""Verdicts besides the token rule."""
