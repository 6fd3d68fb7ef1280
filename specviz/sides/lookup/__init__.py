"""Drafts from text that was seen before."""
