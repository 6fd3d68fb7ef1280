"""Pairs: their names, the table of them, checks before a download, and loading."""
