"""Static caches, and passes as CUDA graphs."""
