"""Foundations that every room uses: errors, environment variables, package data, terminal text,
options."""
