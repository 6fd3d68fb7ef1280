"""Drafts of a model with another tokenizer than the target's."""
