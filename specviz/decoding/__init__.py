"""Speculative decoding: drafts, verdicts, and the race of both lanes."""
