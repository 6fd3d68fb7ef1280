"""The core: how speculative decoding works, without any of the ways to make it faster."""
