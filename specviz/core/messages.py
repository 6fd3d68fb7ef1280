"""Read prompts of several turns: those of a system prompt, a user and an assistant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..base.errors import PromptError, shown

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Role: TypeAlias = Literal["system", "user", "assistant"]

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}
"""The roles of turns, by their names in OpenAI's protocol and ShareGPT's files."""

ROLE_FIELDS = ("role", "from")
CONTENT_FIELDS = ("content", "value")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. content: its text, not empty."""

    role: Role
    content: str


Messages: TypeAlias = tuple[Message, ...]
"""A conversation whose last turn is the user's."""

TextPrompt: TypeAlias = str | Messages
"""A prompt that no tokenizer has read yet."""


def is_conversation(prompt: object) -> TypeIs[Sequence[Mapping[str, Any] | Message]]:
    """Whether a prompt is a list of turns, and neither text nor ids."""
    if not isinstance(prompt, (list, tuple)) or not prompt:
        return False
    return isinstance(prompt[0], (Mapping, Message))


def checked_messages(turns: Iterable[Any]) -> Messages:
    """Check the turns of a prompt, each an object with "role" and "content".

    Content is a text or a list of parts, {"type": "text", "text": ...}. Raises `PromptError` for
    anything else, and unless the user has the last turn.
    """
    messages = tuple(read_message(turn, f"turn {n}") for n, turn in enumerate(turns, 1))
    last = messages[-1].role
    if last != "user":
        raise PromptError(
            f"the prompt's last turn has the role {last!r}: end the prompt with a user turn for "
            "the models to answer."
        )
    return messages


def read_message(turn: Any, where: str, *, skips_pictures: bool = False) -> Message:
    """Read one turn. where: its name in an error sentence. skips_pictures: leave out parts that are
    not text. Raises `PromptError`."""
    if isinstance(turn, Message):
        return turn
    if not isinstance(turn, Mapping):
        raise PromptError(
            f"{where} is {shown(turn)}: use objects with a 'role' and a 'content', such as "
            '{"role": "user", "content": "Why?"}.'
        )
    role = _role_of(turn, where)
    content = _text_of(_value_of(turn, CONTENT_FIELDS), where, skips_pictures)
    if not content.strip():
        raise PromptError(f"{where} ({role}) has no text: write some, or leave it out.")
    return Message(role, content)


def _role_of(turn: Mapping[str, Any], where: str) -> Role:
    """The role of a turn. Raises `PromptError`."""
    name = _value_of(turn, ROLE_FIELDS)
    if not isinstance(name, str):
        raise PromptError(f"{where} has no role: use 'system', 'user' or 'assistant'.")
    if name not in ROLES:
        raise PromptError(
            f"{where} has the role {name[:40]!r}: use 'system', 'user' or 'assistant'."
        )
    return ROLES[name]


def _value_of(turn: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The value of the first of these fields that a turn has; None if it has none."""
    for name in names:
        if name in turn:
            return turn[name]
    return None


def _text_of(content: Any, where: str, skips_pictures: bool) -> str:
    """The text of a turn's content, which may be in parts."""
    if content is None:
        return ""
    parts = content if isinstance(content, (list, tuple)) else [content]
    texts = []
    for part in parts:
        text = part
        if isinstance(part, Mapping):
            text = part.get("text")
        if isinstance(text, str):
            texts.append(text)
        elif not skips_pictures:
            raise PromptError(
                f"{where} has content that is not text: use a string, or a list of parts such as "
                '{"type": "text", "text": "Why?"}.'
            )
    return "".join(texts)
