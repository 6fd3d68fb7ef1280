"""Measurements: `python -m specviz bench` and `python -m specviz sweep`."""
