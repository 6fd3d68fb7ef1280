"""A target on a server."""
