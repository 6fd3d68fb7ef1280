"""Prompt sets: the built-in ones, and the user's files, which are read with limits."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from ..base.console import escaped
from ..base.environment import ASSETS, BUILTIN
from ..base.errors import PromptError
from ..base.text_lines import lines_of
from ..core.messages import ROLES, Messages, TextPrompt, is_conversation, read_message
from .table import named_pair

BUILTIN_SET = ASSETS / "pair" / "sweep.json"
OWN_SET = "prompts.json"  # in the folder of a pair
QUESTIONS = ASSETS / "smollm2-135m" / OWN_SET
CODE = ASSETS / "prompts" / "code.json"
COMPLETION = ASSETS / "prompts" / "completion.json"
# Name patterns of models for code, and of models tuned for chat.
_CODER = re.compile(r"coder|codellama|codegemma|codestral|starcoder|codegen", re.IGNORECASE)
_CHAT = re.compile(r"instruct|chat|assistant|(^|[-_.])it($|[-_.])", re.IGNORECASE)
MAX_CHARACTERS = 100_000  # characters of a prompt
MAX_KIND_LENGTH = 40  # characters; longer ones are cut
FORMS = (
    "use a text file with one prompt per line, a JSON list, JSONL with 'prompt', 'turns' or "
    "'messages', or CSV with a column 'prompt'"
)
SINGLE = ("prompt", "instruction", "question", "text")
"""Fields, and columns of a table, that hold a prompt; the first that exists is used."""
OF_TURNS = ("turns", "messages", "conversations")
"""Fields that hold the turns of a conversation, as MT-Bench, OpenAI and ShareGPT write them."""
KINDS = ("category", "kind")
TABLES = (".csv", ".tsv")
SEPARATORS = ",;\t"


@dataclass(frozen=True, slots=True)
class PromptOfKind:
    """A prompt of a set.

    kind: its category, such as "prose". text: at most `MAX_CHARACTERS`; the last turn of
    a conversation. messages: all turns of a conversation; empty for a plain text.
    """

    kind: str
    text: str
    messages: Messages = ()

    @property
    def content(self) -> TextPrompt:
        """The prompt for the models: the text, or all turns."""
        return self.messages or self.text


@dataclass(frozen=True, slots=True)
class PromptLimits:
    """Limits for a file: bytes, and prompts in it."""

    bytes: int
    prompts: int


OF_A_SWEEP = PromptLimits(4_000_000, 2_000)
OF_A_TRAINING = PromptLimits(256_000_000, 1_000_000)


def builtin_prompts(pair: str = BUILTIN) -> tuple[PromptOfKind, ...]:
    """The built-in prompts that suit this pair: three of each kind. A pair of the table may have
    its own prompts."""
    path = prompts_for(pair)
    return prompts_from(path.read_bytes(), path.name)


def prompts_for(pair: str) -> Path:
    """The file of built-in prompts that suits a pair: its own file; else questions for a target
    tuned for chat, code for a code model, texts to continue for others. The target's name decides
    for a pair that is not in the table."""
    if pair == BUILTIN:
        return BUILTIN_SET
    row = named_pair(pair)
    if row is None:
        target_part = re.split(r"[+@]", pair)[0]
        target = _without_folder(target_part)
        is_chat = bool(_CHAT.search(target))
    else:
        own_set = ASSETS / pair / OWN_SET
        if own_set.is_file():
            return own_set
        target = _without_folder(row.target.name)
        is_chat = row.target.chat
    is_coder = _CODER.search(target) is not None
    if is_coder and is_chat:
        return CODE
    if is_coder:
        return COMPLETION
    if is_chat:
        return QUESTIONS
    return BUILTIN_SET


def _without_folder(name: str) -> str:
    """A model's name without the owner, the folder or the server in front."""
    parts = re.split(r"[/\\#]", name.rstrip("/"))
    return parts[-1]


def in_turn(prompts: Sequence[PromptOfKind]) -> tuple[PromptOfKind, ...]:
    """Order the prompts so that kinds alternate: a run that ends early has seen every kind."""
    by_kind: dict[str, list[PromptOfKind]] = defaultdict(list)
    for prompt in prompts:
        by_kind[prompt.kind].append(prompt)
    ordered: list[PromptOfKind] = []
    for turn in zip_longest(*by_kind.values()):  # one of each kind, or None
        ordered += [prompt for prompt in turn if prompt is not None]
    return tuple(ordered)


def kinds_of(prompts: Iterable[PromptOfKind]) -> dict[str, int]:
    """The number of prompts by kind."""
    return dict(Counter(prompt.kind for prompt in prompts))


def prompts_file(path: str | Path, limits: PromptLimits = OF_A_SWEEP) -> tuple[PromptOfKind, ...]:
    """Read the prompts in a file, and no more of it than the limits allow. Raises `PromptError`
    with a sentence that says what to do."""
    path = Path(path)
    return prompts_from(_read(path, limits), path.name, limits)


def messages_file(path: str | Path) -> list[Any]:
    """Read the turns of the one conversation in a JSON file: a list, or an object with "messages".
    Raises `PromptError`."""
    path = Path(path)
    text = _text_of(_read(path, OF_A_SWEEP), path.name, OF_A_SWEEP)
    turns = _parsed(text, path.name)
    if isinstance(turns, dict):
        turns = turns.get("messages")
    if not isinstance(turns, list) or not turns:
        raise PromptError(
            f"{path.name} has no turns: use a JSON list such as "
            '[{"role": "user", "content": "Why?"}].'
        )
    return turns


def _read(path: Path, limits: PromptLimits) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limits.bytes + 1)
    except OSError as error:
        raise PromptError(f"{path.name} cannot be read: {error.strerror}.") from error


def prompts_from(
    raw: bytes, name: str, limits: PromptLimits = OF_A_SWEEP, *, suffix: str | None = None
) -> tuple[PromptOfKind, ...]:
    """Read the prompts in a file's bytes. name: the file's name, for errors. suffix: such as
    ".csv"; the name's own suffix if None.

    A JSON file is a list of texts or objects, or an object of lists by kind; a JSONL file has an
    object or a text in each line. Objects have one of `SINGLE` (and perhaps an "input", as Alpaca
    has it), or one of `OF_TURNS`, which is read up to the user's last turn; and perhaps a
    "category". A table has such columns, named in its first line. Any other file is text with a
    prompt in each line. Raises `PromptError`.
    """
    text = _text_of(raw, name, limits)
    if suffix is None:
        suffix = Path(name).suffix
    entries = _entries(text, name, suffix.lower())
    if len(entries) > limits.prompts:
        raise PromptError(f"{name} has {len(entries)} prompts: use {limits.prompts:,} or fewer.")
    return tuple(_from_entry(entry, name) for entry in entries)


def _text_of(raw: bytes, name: str, limits: PromptLimits) -> str:
    """Decode a file that is not empty and within the limits. Raises `PromptError`."""
    if len(raw) > limits.bytes:
        raise PromptError(
            f"{name} is larger than {limits.bytes // 1_000_000} MB: use a smaller set of prompts."
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(f"{name} is not text in UTF-8: {FORMS}.") from error
    if "\0" in text:
        raise PromptError(f"{name} contains bytes that are not text: {FORMS}.")
    if not text.strip():
        raise PromptError(f"{name} is empty: {FORMS}.")
    return text


class Entry(NamedTuple):
    """An unparsed prompt in a file. where: its position, such as "line 3". kind: the key of its
    list, or None."""

    where: str
    value: Any
    kind: str | None = None


def _entries(text: str, name: str, suffix: str) -> list[Entry]:
    """The prompts of a file. The suffix decides about its form, else its beginning."""
    first = text.lstrip()[0]
    begins_as_json = first in "[{" and suffix != ".jsonl"
    if suffix == ".json" or (begins_as_json and _is_json(text)):
        return _from_json(text, name)
    if suffix in TABLES or (not suffix and _begins_as_table(text)):
        return _from_table(text, name)
    is_jsonl = suffix == ".jsonl" or (suffix != ".txt" and first == "{")
    entries = []
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            continue
        where = f"line {number}"
        value: Any = line
        if is_jsonl:
            value = _parsed(line, f"{where} of {name}")
        entries.append(Entry(where, value))
    return entries


def _is_json(text: str) -> bool:
    try:
        _parsed(text, "")
    except PromptError:
        return False
    return True


def _from_json(text: str, name: str) -> list[Entry]:
    value = _parsed(text, name)
    prompts = [value]
    if isinstance(value, list):
        prompts = value
    has_groups = isinstance(value, dict) and not {*SINGLE, *OF_TURNS} & value.keys()
    if has_groups:
        entries = _from_groups(value, name)
    else:
        entries = [Entry(f"prompt {number}", prompt) for number, prompt in enumerate(prompts, 1)]
    if not entries:
        raise PromptError(f"{name} has no prompts: {FORMS}.")
    return entries


def _from_groups(groups: dict[str, Any], name: str) -> list[Entry]:
    """The prompts of an object of lists by kind."""
    are_lists = all(isinstance(group, list) for group in groups.values())
    if not groups or not are_lists:
        raise PromptError(f"{name} is an object without lists of prompts: {FORMS}.")
    entries = []
    for kind, group in groups.items():
        for number, prompt in enumerate(group, 1):
            where = f"prompt {number} of {kind[:MAX_KIND_LENGTH]!r}"
            entries.append(Entry(where, prompt, kind))
    return entries


def _begins_as_table(text: str) -> bool:
    """Whether the first line of a file without a suffix is the header of a table."""
    first = lines_of(text.lstrip())[0]
    headers = [first.split(separator) for separator in SEPARATORS]
    return any("prompt" in header and len(header) > 1 for header in headers)


def _separator(text: str) -> str:
    """The cell separator of a table whose first line names a column of prompts; empty if it names
    none."""
    first = lines_of(text.lstrip())[0]
    for separator in SEPARATORS:
        header = next(csv.reader([first], delimiter=separator))
        if set(SINGLE) & set(_column_names(header)):
            return separator
    return ""


def _column_names(header: Iterable[str]) -> list[str]:
    return [name.strip().lower() for name in header]


def _from_table(text: str, name: str) -> list[Entry]:
    separator = _separator(text)
    if not separator:
        raise PromptError(
            f"{name} is a table without a column of prompts: name one column 'prompt', and "
            "optionally another 'category'."
        )
    lines = io.StringIO(text.lstrip(), newline="")
    table = csv.reader(lines, delimiter=separator)
    entries: list[Entry] = []
    try:
        columns = _column_names(next(table))
        for cells in table:
            if any(cell.strip() for cell in cells):
                row = dict(zip(columns, cells, strict=False))
                entries.append(Entry(f"line {table.line_num}", row))
    except csv.Error as error:
        raise PromptError(
            f"line {table.line_num} of {name} is not a row of a table: {FORMS}."
        ) from error
    if not entries:
        raise PromptError(f"{name} has no prompts: {FORMS}.")
    return entries


def _parsed(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{source} is not JSON: {FORMS}.") from error


def _from_entry(entry: Entry, name: str) -> PromptOfKind:
    where = f"{entry.where} of {name}"
    prompt = entry.value
    kind = entry.kind
    if isinstance(entry.value, dict):
        kind = kind or _kind_in(entry.value)
        prompt = _prompt_of(entry.value, where)
    text = prompt
    size = 0
    messages: Messages = ()
    if isinstance(prompt, tuple):
        text = prompt[-1].content
        size = sum(len(message.content) for message in prompt)
        # A single user turn becomes a text, which models without a chat template can read too.
        if len(prompt) > 1:
            messages = prompt
    if not isinstance(text, str) or not text.strip():
        raise PromptError(f"{where} has no text: {FORMS}.")
    size = size or len(text)
    if size > MAX_CHARACTERS:
        raise PromptError(
            f"{where} has {size:,} characters: use prompts of up to {MAX_CHARACTERS:,}."
        )
    shown_kind = escaped(kind or "").strip()[:MAX_KIND_LENGTH]
    return PromptOfKind(shown_kind or "prompts", text, messages)


def _kind_in(entry: dict[str, Any]) -> str | None:
    """The kind that an object states."""
    for field in KINDS:
        if field in entry:
            kind = entry[field]
            if not isinstance(kind, str):
                return None
            return kind
    return None


def _prompt_of(entry: dict[str, Any], where: str) -> Any:
    """The prompt in an object: a text, or the turns of a conversation; None if it has none."""
    field = _prompt_field(entry)
    if field is None:
        return None
    value = entry[field]
    if isinstance(value, list):
        are_turns = field in OF_TURNS or isinstance(value[0], dict)
        if are_turns:
            return _turns_in(value, where)
    extra_input = entry.get("input")
    are_texts = isinstance(value, str) and isinstance(extra_input, str)
    if are_texts and "instruction" in entry:
        return f"{value}\n\n{extra_input}".strip()
    return value


def _prompt_field(entry: dict[str, Any]) -> str | None:
    """The first field of an object that holds a prompt; None if it has none."""
    for field in (*SINGLE, *OF_TURNS):
        if entry.get(field):
            return field
    return None


def _turns_in(turns: list[Any], where: str) -> Any:
    """The turns up to the user's last one: the models write the reply. Turns without roles, as in
    MT-Bench, have no replies, so only the first turn is used."""
    if not is_conversation(turns):
        return turns[0]
    messages = []
    for number, turn in enumerate(_up_to_user(turns), 1):
        message = read_message(turn, f"turn {number} of {where}", skips_pictures=True)
        messages.append(message)
    return tuple(messages) or None


def _up_to_user(turns: list[Any]) -> list[Any]:
    end = len(turns)
    while end and not _is_from_user(turns[end - 1]):
        end -= 1
    return turns[:end]


def _is_from_user(turn: Any) -> bool:
    if not isinstance(turn, dict):
        return False
    role = turn.get("role", turn.get("from"))
    return isinstance(role, str) and ROLES.get(role) == "user"
