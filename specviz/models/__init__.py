"""Models: checks before a download, loading, and what a pair needs."""
