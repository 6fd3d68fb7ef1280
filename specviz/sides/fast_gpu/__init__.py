"""Caches that stay in place, and passes as CUDA graphs."""
