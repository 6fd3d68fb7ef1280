"""Runs as data: traces and their files, and what is derived from them."""
