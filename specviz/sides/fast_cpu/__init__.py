"""Small models on a processor: one compiled call per pass."""
