"""A tokenizer's chat template, which takes what is said in a turn as a text, as a list of parts, or
as either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from ..base.errors import PromptError

Role: TypeAlias = Literal["user", "assistant"]

TEXT = "text"
PARTS = "parts"
FORMS = (TEXT, PARTS)
"""How the content of a turn is given, the usual form first."""


def turn(role: Role, content: str, form: str = TEXT) -> dict[str, Any]:
    """A turn as a template takes it."""
    if form == TEXT:
        return {"role": role, "content": content}
    return {"role": role, "content": [{"type": "text", "text": content}]}


def template_text(
    tokenizer: Any, turns: Sequence[dict[str, Any]], *, opens_reply: bool = False
) -> str | None:
    """The turns in the tokenizer's template; None if it refuses them. opens_reply: up to where the
    assistant's next turn begins."""
    try:
        text = tokenizer.apply_chat_template(
            list(turns), tokenize=False, add_generation_prompt=opens_reply
        )
    except Exception:  # a template is a program that may raise any error
        return None
    return str(text)


def chat_text(tokenizer: Any, prompt: str) -> str:
    """A text as the user's turn in the tokenizer's chat template, up to where the reply begins.

    A template that is written for lists of parts drops a plain text without an error, so the form
    is used in which the prompt arrives: as it is, else changed, as by a template that replaces
    words. Raises `PromptError` if there is no template, or if it does not take the text.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError(
            "this target has no chat template: set chat to 'off' or choose a target that was "
            "tuned for chat."
        )
    other = ("x" if prompt.strip("x") else "y") * len(prompt)
    texts = []
    changed = []
    for form in FORMS:
        turns = [turn("user", prompt, form)]
        text = template_text(tokenizer, turns, opens_reply=True)
        if text is None:
            continue
        texts.append(text)
        text_of_other = template_text(tokenizer, [turn("user", other, form)], opens_reply=True)
        if text == text_of_other or _is_printed_list(text, turns):
            continue  # the template does not read the content
        words = prompt.strip()
        if text.count(words) > (text_of_other or "").count(words):  # it may have such words itself
            return text
        changed.append(text)
    if changed:
        return changed[0]
    if texts and not prompt.strip():
        return texts[0]
    if texts:
        raise PromptError(
            "the target's chat template leaves the prompt out, as a text and as a list of parts: "
            "set chat to 'off'."
        )
    raise PromptError("the target's chat template does not take this prompt: set chat to 'off'.")


def text_after_reply(tokenizer: Any, reply: str) -> str | None:
    """What the template puts behind a turn of the assistant; None if it does not show `reply`."""
    for user_form in FORMS:
        for reply_form in FORMS:
            turns = [turn("user", "?", user_form), turn("assistant", reply, reply_form)]
            text = template_text(tokenizer, turns)
            if text is not None and reply in text and not _is_printed_list(text, turns):
                return text.rpartition(reply)[2]
    return None


def _is_printed_list(text: str, turns: Sequence[dict[str, Any]]) -> bool:
    """Whether a template for texts has printed a list of parts as Python does."""
    return any(isinstance(said["content"], list) and str(said["content"]) in text for said in turns)
