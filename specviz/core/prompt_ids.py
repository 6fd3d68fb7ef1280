"""The ids of prompts and of other texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..base.errors import PromptError, shown
from .chat_template import chat_text
from .messages import Messages

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

MARK = "specviz"
"""A placeholder for a turn while the template around it is searched."""


def text_ids(tokenizer: Tokenizer, text: str, what: str = "a text", **options: Any) -> list[int]:
    """Encode a text, without special tokens unless `options` say so. what: the text's name in an
    error sentence. Raises `PromptError`."""
    try:
        return list(tokenizer(text, **{"add_special_tokens": False, **options})["input_ids"])
    except (TypeError, UnicodeError) as error:
        raise PromptError(
            f"{what} contains characters that are not valid Unicode: remove them."
        ) from error


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Encode a prompt as plain text. Raises `PromptError`."""
    ids = text_ids(tokenizer, prompt, "the prompt", add_special_tokens=True)
    # If the text itself begins with the first special token, that token comes twice.
    if len(ids) > 1 and ids[0] == ids[1] == getattr(tokenizer, "bos_token_id", None):
        return ids[1:]
    return ids


def chat_ids(tokenizer: Any, messages: Messages) -> list[int]:
    """Encode turns in the tokenizer's chat template, up to where the reply begins.

    Raises `PromptError` if there is no template, or if it does not take them.
    """
    # The template already contains the first special token.
    return text_ids(tokenizer, chat_text(tokenizer, messages), "the prompt")


def literal_chat_ids(tokenizer: Any, messages: Messages) -> list[int]:
    """Encode turns as `chat_ids` does, but read control tokens in the turns as plain text.

    Raises `PromptError` also if the template changes such turns, or if the tokenizer does not read
    a text in parts as it reads the whole.
    """
    pieces = [tokenizer.convert_ids_to_tokens(i) for i in special_ids(tokenizer)]
    control = re.compile("|".join(map(re.escape, sorted(pieces, key=len, reverse=True))))
    if not pieces or not any(control.search(message.content) for message in messages):
        return chat_ids(tokenizer, messages)
    marks = [f"{MARK}{number}" for number in range(len(messages))]
    marked = tuple(
        replace(message, content=mark) for message, mark in zip(messages, marks, strict=True)
    )
    frame = _split_at(chat_text(tokenizer, marked), marks)
    contents = _contents_in(frame, messages, chat_text(tokenizer, messages))
    if contents is not None:
        # In parts, the marked turns must give the ids that they give as one text.
        in_parts = _literal_ids(tokenizer, frame, marks, control)
        if in_parts == chat_ids(tokenizer, marked):
            return _literal_ids(tokenizer, frame, contents, control)
    raise PromptError(
        "this target's chat template cannot take the prompt's control tokens as plain text: "
        "remove them, or set chat to 'on'."
    )


def _contents_in(frame: Sequence[str], messages: Messages, text: str) -> list[str] | None:
    """The contents that fill the frame to give `text`: those of the messages, or all trimmed alike.

    None if neither does.
    """
    if len(frame) != len(messages) + 1:
        return None
    for trim in (str, str.strip, str.rstrip, str.lstrip):
        contents = [trim(message.content) for message in messages]
        if _joined(frame, contents) == text:
            return contents
    return None


def _split_at(text: str, marks: Sequence[str]) -> list[str]:
    """Split a text into the parts before, between and after the marks that come in order."""
    frame = []
    for mark in marks:
        before, separator, text = text.partition(mark)
        if not separator:
            return []
        frame.append(before)
    return [*frame, text]


def _joined(frame: Sequence[str], contents: Sequence[str]) -> str:
    parts = [before + content for before, content in zip(frame, contents, strict=False)]
    return "".join(parts) + "".join(frame[-1:])


def _literal_ids(
    tokenizer: Any, frame: Sequence[str], contents: Sequence[str], control: re.Pattern[str]
) -> list[int]:
    """Encode contents in their frame, where only the frame has control tokens."""
    # A tokenizer splits at control tokens first, so the text between two of them is read on its
    # own: a turn with its surroundings, up to the template's nearest ones.
    ids: list[int] = []
    plain = ""
    for number, part in enumerate(frame):
        begin = 0
        for match in control.finditer(part):
            plain += part[begin : match.start()]
            ids += text_ids(tokenizer, plain, "the prompt", split_special_tokens=True)
            ids += text_ids(tokenizer, match.group())
            plain = ""
            begin = match.end()
        plain += part[begin:]
        if number < len(contents):
            plain += contents[number]
    return ids + text_ids(tokenizer, plain, "the prompt", split_special_tokens=True)


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """The ids of special tokens, which stand for no text."""
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    special = {i for i, token in added.items() if getattr(token, "special", False)}
    return special | set(getattr(tokenizer, "all_special_ids", ()))


def checked_ids(ids: Any, vocab: int) -> list[int]:
    """Return `ids` as a list. Raises `PromptError` unless all are from 0 to `vocab` - 1."""
    numbers = _whole_numbers(ids)
    if numbers is None:
        raise PromptError(
            f"the prompt is {shown(ids)}: use text, or a list of token ids (whole numbers)."
        )
    for number in numbers:
        if not 0 <= number < vocab:
            raise PromptError(
                f"the prompt contains the unknown token id {number}: use ids from 0 to {vocab - 1}."
            )
    return numbers


def _whole_numbers(values: Any) -> list[int] | None:
    """The values of a collection as whole numbers; None if it has others, or is none."""
    if not hasattr(values, "__len__") or isinstance(values, (bytes, bytearray, Mapping)):
        return None
    numbers = []
    try:
        for value in values:
            number = int(value)
            if isinstance(value, bool) or value != number:
                return None
            numbers.append(number)
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers
