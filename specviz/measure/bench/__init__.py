"""Benchmarks: `python -m specviz bench`."""
