"""The old name of `specviz.core`: `decoding.sampling.verify` is public."""
