"""GGUF files: headers, keys, config, tokenizer and weights."""
