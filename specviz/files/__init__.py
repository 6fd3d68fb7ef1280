"""Models as files: finding them, their metadata, their memory and their weights."""
