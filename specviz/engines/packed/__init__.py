"""A faster form of small Llama models on a processor."""
