"""Drafts from heads on the target."""
