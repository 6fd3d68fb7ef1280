"""Drafts from what reads the target's hidden states."""
