"""Prompts in a chat template."""

from __future__ import annotations

from typing import Any

from ..errors import PromptError


def chat_ids(tokenizer: Any, prompt: str) -> list[int]:
    """The ids of a text as the user's turn in the tokenizer's chat template.

    Raises `PromptError` if there is no template, or if it does not take the text.
    """
    if not prompt:
        return []
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError(
            "this target has no chat template: set chat to 'off' or choose a target that was "
            "tuned for chat."
        )
    try:
        turns = [{"role": "user", "content": prompt}]
        # The template already contains the first special token.
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    except UnicodeError as error:
        raise PromptError("the prompt holds characters that are not valid text.") from error
    except Exception as error:  # a template is a program that may raise any error
        raise PromptError(
            "the target's chat template does not take this prompt: set chat to 'off'."
        ) from error
