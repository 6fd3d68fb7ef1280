"""Drafts from heads on the target: the drafters, and a module for each kind of head."""
