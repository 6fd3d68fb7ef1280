"""Drafts from a small model."""
