"""Models over caches that stay in place, so that whole passes can be CUDA graphs."""
