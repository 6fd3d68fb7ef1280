"""Which models there are, whether two of them can race here, and how they come into memory."""
