"""Weights of few bits: kinds of blocks, and compiled code that unpacks, packs and reorders them."""

from pathlib import Path

from .stale_code import forget_stale_code

HERE = Path(__file__).resolve().parent

forget_stale_code(HERE)
