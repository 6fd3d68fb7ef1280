"""A serving engine that speculates by itself, observed from outside: its stream becomes rounds."""
