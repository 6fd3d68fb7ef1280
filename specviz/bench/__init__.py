"""Measured comparisons: `python -m specviz bench`."""
