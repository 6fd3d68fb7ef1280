"""A serving engine that speculates on its own, observed from outside: its stream becomes rounds."""
