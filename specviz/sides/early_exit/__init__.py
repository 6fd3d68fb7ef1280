"""Drafts from the target's own first layers."""
