"""Drafts from heads on the target: what drafts with a head, and a module for each kind of head."""
