"""One model on one device: timed passes over a cache that can be rolled back."""
