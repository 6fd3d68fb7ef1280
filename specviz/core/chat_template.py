"""A tokenizer's chat template, which takes the content of a turn as a text, as a list of parts, or
as either."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
            f"this target has no chat template: {_advice(messages)} or choose a target that was "
            "tuned for chat."
        )
    trials = []
    for trial in _trials(tokenizer, messages):
        if trial.left_out is None and not trial.is_changed:
            return trial.text
        trials.append(trial)
    for trial in trials:
        if trial.left_out is None:
            return trial.text
    if trials and not messages[-1].content.strip():
        return trials[0].text
    left_out = trials[0].left_out if trials else None
    if left_out is not None:
        raise PromptError(
            f"the target's chat template drops {_name_of(left_out, messages)}, both as a string "
            f"and as a list of parts: {_advice(messages)}."
        )
    if len(messages) > 1:
        raise PromptError(
            "the target's chat template rejects these turns: alternate user and assistant, and "
            "leave out the system prompt if the template does not support one."
        )
    raise PromptError("the target's chat template rejects this prompt: set chat to 'off'.")


class _Trial(NamedTuple):
    """The text that a template makes of turns in one form.

    left_out: a turn whose content the template does not read; None if it reads all.
    is_changed: whether the text has some content otherwise than it is.
    """

    text: str
    left_out: Message | None
    is_changed: bool


def _trials(tokenizer: Any, messages: Sequence[Message]) -> Iterator[_Trial]:
    """Put the turns into the template in each form that it does not refuse."""
    for form in FORMS:
        trial = _trial(tokenizer, messages, form)
        if trial is not None:
            yield trial


def _trial(tokenizer: Any, messages: Sequence[Message], form: str) -> _Trial | None:
    """Put the turns into the template in this form; return None if it refuses them."""
    turns = [turn(message.role, message.content, form) for message in messages]
    text = template_text(tokenizer, turns, opens_reply=True)
    if text is None:
        return None
    left_out = None
    is_changed = False
    for index, message in enumerate(messages):
        other_turns = list(turns)
        other_turns[index] = turn(message.role, _other_content(message), form)
        other_text = template_text(tokenizer, other_turns, opens_reply=True)
        if text == other_text and left_out is None:
            left_out = message
        words = message.content.strip()
        # The template may have such words itself.
        if text.count(words) <= (other_text or "").count(words):
            is_changed = True
    if left_out is None and _is_printed_list(text, turns):
        left_out = messages[0]
    return _Trial(text, left_out, is_changed)


def _other_content(message: Message) -> str:
    """A content of the same length, to see whether a template reads the message's own."""
    letter = "x" if message.content.strip("x") else "y"
    return letter * len(message.content)


def _name_of(message: Message, messages: Sequence[Message]) -> str:
    if len(messages) == 1:
        return "the prompt"
    return f"turn {messages.index(message) + 1} ({message.role})"


def _advice(messages: Sequence[Message]) -> str:
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
