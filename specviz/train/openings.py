"""Prompts after which a target writes text to learn from: those of a file, or questions that it
writes itself."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..base.errors import PromptError, SpecvizError
from ..core.chat_template import chat_text
from ..core.messages import Message, TextPrompt
from ..core.model_facts import context_length
from ..core.pair import Pair
from ..pairs.prompts import OF_A_TRAINING, prompts_file
from .writing import Ids, Writing, write

HELD_OUT = 10  # one in 10 prompts is held out, unless a file has others
MIN_PROMPTS = 2  # prompts of each kind


@dataclass(frozen=True)
class PromptIds:
    """Prompts as ids: those to learn from, and held-out ones to measure alpha on.

    left_out: the number of prompts that were too long for the models' context, or could not be
    encoded.
    """

    train: list[list[int]]
    held_out: list[list[int]]
    left_out: int

    def width(self, new_tokens: int) -> int:
        """The most tokens of a prompt with its continuation."""
        return max(map(len, [*self.train, *self.held_out])) + new_tokens


def read_prompt_ids(
    file: Path, held_out: Path | None, pair: Pair, *, new_tokens: int, seed: int
) -> PromptIds:
    """Read and encode prompts; without a file of held-out ones, one in `HELD_OUT` is held out.

    Repeated prompts are left out, and so are prompts that leave less than `new_tokens` tokens of
    the context. Raises `PromptError`.
    """
    limits = [context_length(model) for model in (pair.target, pair.draft_model)]
    room = min([limit for limit in limits if limit] or [2**31]) - new_tokens
    files = [file]
    if held_out:
        files.append(held_out)
    prompts_by_file = [_prompts_in(path) for path in files]
    ids_by_file = [_fitting(prompts, pair, room) for prompts in prompts_by_file]
    left_out = sum(map(len, prompts_by_file)) - sum(map(len, ids_by_file))
    learn, held = ids_by_file if held_out else _split(ids_by_file[0], seed)
    for prompts, purpose in ((learn, "to learn from"), (held, "to measure alpha on")):
        if len(prompts) < MIN_PROMPTS:
            raise PromptError(
                f"only {len(prompts)} prompts are left {purpose}, and {left_out} are too long "
                f"beside {new_tokens} new tokens: add prompts, or lower --max-new-tokens."
            )
    return PromptIds(learn, held, left_out)


def _prompts_in(path: Path) -> list[TextPrompt]:
    """The prompts of a file, each once."""
    return list(dict.fromkeys(question.prompt for question in prompts_file(path, OF_A_TRAINING)))


def _fitting(prompts: Sequence[TextPrompt], pair: Pair, room: int) -> list[list[int]]:
    """The ids of those prompts that can be encoded and have at most `room` tokens."""
    fitting = []
    for prompt in prompts:
        try:
            ids = pair.encode(prompt)
        except PromptError:
            continue
        if len(ids) <= room:
            fitting.append(ids)
    return fitting


def _split(prompts: list[list[int]], seed: int) -> tuple[list[list[int]], list[list[int]]]:
    order = np.random.default_rng(seed).permutation(len(prompts))
    count = max(MIN_PROMPTS, len(prompts) // HELD_OUT)
    return [prompts[i] for i in order[count:]], [prompts[i] for i in order[:count]]


def in_turn(prompts: Sequence[list[int]], chunk: int, rows: int) -> list[list[int]]:
    """The prompts of one chunk of text: the next ones, beginning again after the last."""
    return [prompts[i % len(prompts)] for i in range(chunk * rows, (chunk + 1) * rows)]


QUESTION_TOKENS = 96
QUESTION_TEMPERATURE = 0.9  # at 1 the questions of small models are noise
BOOK_SHARE = 0.3  # of the questions, if there are books
PASSAGE = (120, 900)  # characters
OPENING = 16  # tokens of a book that a target without a template continues
MARK = "specviz-question"
TASKS = (
    "Summarize this passage:\n\n{}",
    "Rewrite this passage in simple modern English:\n\n{}",
    "Continue this story:\n\n{}",
    "What happens in this passage?\n\n{}",
    "{}\n\nWho are the people in this text, and what do they want?",
    "Make this text shorter and clearer:\n\n{}",
)


class Openings:
    """Prompts as ids, in any number.

    They are the file's (`--prompts`) if there is one. Otherwise a target that was tuned for chat
    writes the question too, from the open user turn of its template, and works on passages of the
    books (`--corpus`); another target continues the books. Raises `SpecvizError`.
    """

    def __init__(self, pair: Pair, args: argparse.Namespace) -> None:
        self._pair = pair
        self._args = args
        self._rows = args.write_rows
        self._most = args.row_tokens - args.new_tokens
        self._books = read_books(args.corpus) if args.corpus else []
        self._prompts: list[list[int]] = []
        if args.prompts:
            questions = prompts_file(args.prompts, OF_A_TRAINING)
            prompts = [question.prompt for question in questions]
            self._prompts = _fitting(prompts, pair, self._most)
        self._turn = open_turn(pair) if pair.is_chat and not self._prompts else None
        if not (self._prompts or self._turn or self._books):
            raise SpecvizError(
                "a target without a chat template needs something to go on from: pass --corpus, a "
                "folder of .txt books, or --prompts, a file."
            )

    def chunk(self, chunk: int) -> list[list[int]]:
        """The prompts of one chunk."""
        draws = np.random.default_rng((self._args.seed, chunk))
        if self._prompts:
            return in_turn(self._prompts, chunk, self._rows)
        if self._turn is None:
            return [self._opening(draws) for _ in range(self._rows)]
        of_books = round(BOOK_SHARE * self._rows) if self._books else 0
        prompts = [self._task(draws) for _ in range(of_books)]
        while len(prompts) < self._rows:
            prompts += self._questions(self._rows - len(prompts), int(draws.integers(2**31)))
        return prompts

    def _questions(self, count: int, seed: int) -> list[list[int]]:
        """Prompts whose question the target writes; unfinished questions are left out."""
        assert self._turn is not None
        begin, rest = self._turn
        writing = Writing.of(self._pair, QUESTION_TOKENS)
        texts = write(
            self._pair.target, [begin] * count, writing, temperature=QUESTION_TEMPERATURE, seed=seed
        )
        prompts = []
        for text in texts:
            question = text[len(begin) :]
            has_end = len(question) > 3 and question[-1] in writing.ends
            if has_end and len(begin) + len(question) - 1 + len(rest) <= self._most:
                prompts.append([*begin, *question[:-1], *rest])
        return prompts or [[*begin, *rest]]

    def _task(self, draws: np.random.Generator) -> list[int]:
        text = str(draws.choice(list(TASKS))).format(self._passage(draws))
        ids = self._pair.encode(text, chat="on")
        return ids if len(ids) <= self._most else ids[-self._most :]

    def _passage(self, draws: np.random.Generator) -> str:
        book = self._book(draws)
        least, most = PASSAGE
        passages = [part for part in book.split("\n\n") if least <= len(part) <= most]
        passage = passages[int(draws.integers(len(passages)))] if passages else book[:most]
        return " ".join(passage.split())

    def _opening(self, draws: np.random.Generator) -> list[int]:
        book = self._book(draws)
        at = book.find(" ", int(draws.integers(max(1, len(book) - 400)))) + 1
        return self._pair.text_ids(book[at : at + 400])[:OPENING]

    def _book(self, draws: np.random.Generator) -> str:
        return self._books[int(draws.integers(len(self._books)))]


def read_books(folder: Path) -> list[str]:
    """The texts of a folder. Raises `SpecvizError` if there are none."""
    texts = (path.read_text(encoding="utf-8-sig") for path in sorted(folder.glob("*.txt")))
    books = [text for text in texts if text.strip()]
    if not books:
        raise SpecvizError(f"{str(folder)!r} has no .txt books: pass --corpus a folder of some.")
    return books


def open_turn(pair: Pair) -> tuple[list[int], Ids]:
    """The ids before a question in the target's template, and those after it."""
    before, _, after = chat_text(pair.tokenizer, [Message("user", MARK)]).partition(MARK)
    if not before or not after:
        raise SpecvizError("the target's chat template hides the question: pass --prompts.")
    ids = [pair.tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before, after)]
    return list(ids[0]), list(ids[1])
