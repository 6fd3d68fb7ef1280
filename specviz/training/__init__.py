"""Training a target and a draft from a folder of books: corpus, tokenizer, loop, distillation."""
