"""The ids of prompts and of other texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.errors import PromptError, shown
from .chat_template import chat_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

MARK = "specviz"
"""Stands for a turn while the template around it is looked for."""


def text_ids(tokenizer: Tokenizer, text: str, what: str = "a text", **options: Any) -> list[int]:
    """The ids of a text, without special tokens unless `options` say so. what: how a sentence calls
    the text. Raises `PromptError`."""
    try:
        return list(tokenizer(text, **{"add_special_tokens": False, **options})["input_ids"])
    except (TypeError, UnicodeError) as error:
        raise PromptError(f"{what} holds characters that are not valid text.") from error


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The ids of a prompt as plain text. Raises `PromptError`."""
    ids = text_ids(tokenizer, prompt, "the prompt", add_special_tokens=True)
    # If the text itself begins with the first special token, that token comes twice.
    twice = len(ids) > 1 and ids[0] == ids[1] == getattr(tokenizer, "bos_token_id", None)
    return ids[1:] if twice else ids


def chat_ids(tokenizer: Any, prompt: str) -> list[int]:
    """The ids of a text as the user's turn in the tokenizer's chat template.

    Raises `PromptError` if there is no template, or if it does not take the text.
    """
    # The template already contains the first special token.
    return text_ids(tokenizer, chat_text(tokenizer, prompt), "the prompt")


def literal_chat_ids(tokenizer: Any, prompt: str) -> list[int]:
    """As `chat_ids`, but control tokens that the prompt spells are plain text: only the template
    sets them.

    Raises `PromptError` also if the template changes such a prompt, or if the tokenizer does not
    read a turn in parts as it reads the whole.
    """
    pieces = [tokenizer.convert_ids_to_tokens(i) for i in special_ids(tokenizer)]
    control = re.compile("|".join(map(re.escape, sorted(pieces, key=len, reverse=True))))
    if not pieces or not control.search(prompt):
        return chat_ids(tokenizer, prompt)
    before, _, behind = chat_text(tokenizer, MARK).partition(MARK)
    # A tokenizer splits at control tokens first, so what stands between two of them is read on its
    # own: the turn with its surroundings, up to the template's nearest ones.
    begin = max((match.end() for match in control.finditer(before)), default=0)
    next_control = control.search(behind)
    end = next_control.start() if next_control else len(behind)

    def ids_with(turn: str) -> list[int]:
        middle = before[begin:] + turn + behind[:end]
        return [
            *text_ids(tokenizer, before[:begin]),
            *text_ids(tokenizer, middle, "the prompt", split_special_tokens=True),
            *text_ids(tokenizer, behind[end:]),
        ]

    text = chat_text(tokenizer, prompt)
    turn = text[len(before) : len(text) - len(behind)]
    is_whole = text == before + turn + behind and turn.strip() == prompt.strip()
    if not is_whole or ids_with(MARK) != chat_ids(tokenizer, MARK):
        raise PromptError(
            "this target's chat template cannot take the prompt's control tokens as plain text: "
            "remove them, or set chat to 'on'."
        )
    return ids_with(turn)


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """The ids that stand for no text."""
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    special = {i for i, token in added.items() if getattr(token, "special", False)}
    return special | set(getattr(tokenizer, "all_special_ids", ()))


def checked_ids(ids: Any, vocab: int) -> list[int]:
    """`ids` as a list; raises `PromptError` unless they are numbers from 0 to `vocab` - 1."""
    try:
        numbers = [int(i) for i in ids if not isinstance(i, bool) and i == int(i)]
        are_ids = len(numbers) == len(ids) and not isinstance(ids, (bytes, bytearray, Mapping))
    except (TypeError, ValueError, OverflowError):
        are_ids = False
    if not are_ids:
        raise PromptError(
            f"a prompt is text or a list of token ids (whole numbers), not {shown(ids)}."
        )
    for number in numbers:
        if not 0 <= number < vocab:
            raise PromptError(
                f"the prompt holds the id {number}: this tokenizer has the ids 0 to {vocab - 1}."
            )
    return numbers
