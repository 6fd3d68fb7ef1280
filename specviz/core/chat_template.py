"""A tokenizer's chat template, which takes the content of a turn as a text, as a list of parts, or
as either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..base.errors import PromptError
from .messages import Message, Role

TEXT = "text"
PARTS = "parts"
FORMS = (TEXT, PARTS)
"""The forms in which templates take a turn's content, the usual one first."""


def turn(role: Role, content: str, form: str = TEXT) -> dict[str, Any]:
    """Return a turn in the form that a template takes."""
    if form == TEXT:
        return {"role": role, "content": content}
    return {"role": role, "content": [{"type": "text", "text": content}]}


def template_text(
    tokenizer: Any, turns: Sequence[dict[str, Any]], *, opens_reply: bool = False
) -> str | None:
    """Return the turns in the tokenizer's template; None if it refuses them.

    opens_reply: whether the text goes on to the beginning of the assistant's next turn.
    """
    try:
        text = tokenizer.apply_chat_template(
            list(turns), tokenize=False, add_generation_prompt=opens_reply
        )
    except Exception:  # a template is a program that may raise any error
        return None
    return str(text)


def chat_text(tokenizer: Any, messages: Sequence[Message]) -> str:
    """The turns in the tokenizer's chat template, up to where the assistant's reply begins.

    A template that is written for lists of parts drops a plain text without an error, so the form
    is used in which every turn arrives: as it is, else changed, as by a template that replaces
    words. Raises `PromptError` if there is no template, or if it does not take the turns.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError(
            f"this target has no chat template: {_way_out(messages)} or choose a target that was "
            "tuned for chat."
        )
    texts = []
    changed = []
    left_out: Message | None = None
    for form in FORMS:
        turns = [turn(message.role, message.content, form) for message in messages]
        text = template_text(tokenizer, turns, opens_reply=True)
        if text is None:
            continue
        texts.append(text)
        reads = [_read(tokenizer, messages, index, form, text) for index in range(len(messages))]
        unread = [message for message, read in zip(messages, reads, strict=True) if not read.at_all]
        if _is_printed_list(text, turns):
            unread.append(messages[0])
        if unread:
            left_out = left_out or unread[0]
            continue
        if all(read.as_it_is for read in reads):
            return text
        changed.append(text)
    if changed:
        return changed[0]
    if texts and not messages[-1].content.strip():
        return texts[0]
    if left_out is not None:
        raise PromptError(
            f"the target's chat template leaves {_name_of(left_out, messages)} out, as a text and "
            f"as a list of parts: {_way_out(messages)}."
        )
    if len(messages) > 1:
        raise PromptError(
            "the target's chat template does not take these turns: let user and assistant take "
            "turns, and leave out a system prompt if it knows none."
        )
    raise PromptError("the target's chat template does not take this prompt: set chat to 'off'.")


class _Read(NamedTuple):
    """Whether a template reads the content of a turn: as it is, and at all."""

    as_it_is: bool
    at_all: bool


def _read(tokenizer: Any, messages: Sequence[Message], index: int, form: str, text: str) -> _Read:
    """Compare the template's `text` with what it makes of another content of turn `index`."""
    message = messages[index]
    letter = "x" if message.content.strip("x") else "y"
    other_content = letter * len(message.content)
    turns = [turn(message.role, message.content, form) for message in messages]
    turns[index] = turn(message.role, other_content, form)
    other_text = template_text(tokenizer, turns, opens_reply=True)
    words = message.content.strip()
    # The template may have such words itself.
    as_it_is = text.count(words) > (other_text or "").count(words)
    return _Read(as_it_is, at_all=text != other_text)


def _name_of(message: Message, messages: Sequence[Message]) -> str:
    if len(messages) == 1:
        return "the prompt"
    return f"turn {messages.index(message) + 1} (of the {message.role})"


def _way_out(messages: Sequence[Message]) -> str:
    """Advice on a template that cannot be used, for the end of an error sentence."""
    if len(messages) == 1:
        return "set chat to 'off'"
    return "give the prompt as one text"


def text_after_reply(tokenizer: Any, reply: str) -> str | None:
    """Return the text after an assistant's turn; None if the template does not show `reply`."""
    for user_form in FORMS:
        for reply_form in FORMS:
            turns = [turn("user", "?", user_form), turn("assistant", reply, reply_form)]
            text = template_text(tokenizer, turns)
            if text is not None and reply in text and not _is_printed_list(text, turns):
                return text.rpartition(reply)[2]
    return None


def _is_printed_list(text: str, turns: Sequence[dict[str, Any]]) -> bool:
    """Whether a template for texts has printed a list of parts as Python does."""
    contents = [turn["content"] for turn in turns]
    return any(isinstance(content, list) and str(content) in text for content in contents)
