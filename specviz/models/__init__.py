"""Models: the table of pairs, checks before a download, loading, and what a pair needs."""
