"""A serving engine that speculates by itself, watched from outside: its stream as rounds."""
