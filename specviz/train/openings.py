"""Prompts after which a target writes text to train on: those of a file, or questions that it
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
    """Prompts as ids."""

    train: list[list[int]]  # to learn from
    held_out: list[list[int]]  # to measure alpha on
    left_out: int  # the number of those too long for the context, or not encodable

    def width(self, new_tokens: int) -> int:
        """The most tokens of a prompt with its continuation."""
        prompts = [*self.train, *self.held_out]
        longest_prompt = max(map(len, prompts))
        return longest_prompt + new_tokens


def read_prompt_ids(
    file: Path, held_out: Path | None, pair: Pair, *, new_tokens: int, seed: int
) -> PromptIds:
    """Read and encode prompts; without a file of held-out ones, one in `HELD_OUT` is held out.

    Repeated prompts are left out, and so are prompts that leave less than `new_tokens` tokens of
    the context. Raises `PromptError`.
    """
    max_tokens = 2**31
    for model in (pair.target, pair.draft_model):
        max_tokens = min(max_tokens, context_length(model) or max_tokens)
    max_tokens -= new_tokens
    train_prompts = _prompts_in(file)
    test_prompts = _prompts_in(held_out) if held_out else []
    train = _fitting(train_prompts, pair, max_tokens)
    test = _fitting(test_prompts, pair, max_tokens)
    left_out = len(train_prompts) + len(test_prompts) - len(train) - len(test)
    if not held_out:
        train, test = _split(train, seed)
    for ids, purpose in ((train, "to train on"), (test, "to measure alpha on")):
        if len(ids) < MIN_PROMPTS:
            raise PromptError(
                f"only {len(ids)} prompts are left {purpose}, and {left_out} are too long for "
                f"{new_tokens} new tokens: add prompts, or lower --max-new-tokens."
            )
    return PromptIds(train, test, left_out)


def _prompts_in(path: Path) -> list[TextPrompt]:
    """The prompts of a file, each once."""
    prompts = prompts_file(path, OF_A_TRAINING)
    return list(dict.fromkeys(prompt.content for prompt in prompts))


def _fitting(prompts: Sequence[TextPrompt], pair: Pair, max_tokens: int) -> list[list[int]]:
    """The ids of those prompts that can be encoded and have at most `max_tokens` tokens."""
    fitting = []
    for prompt in prompts:
        try:
            ids = pair.encode(prompt)
        except PromptError:
            continue
        if len(ids) <= max_tokens:
            fitting.append(ids)
    return fitting


def _split(prompts: list[list[int]], seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """The prompts to train on, and those held out."""
    order = np.random.default_rng(seed).permutation(len(prompts))
    count = max(MIN_PROMPTS, len(prompts) // HELD_OUT)
    held_out = [prompts[i] for i in order[:count]]
    train = [prompts[i] for i in order[count:]]
    return train, held_out


def in_turn(prompts: Sequence[list[int]], chunk: int, rows: int) -> list[list[int]]:
    """The prompts of one chunk of text: the next ones, beginning again after the last."""
    first = chunk * rows
    return [prompts[number % len(prompts)] for number in range(first, first + rows)]


QUESTION_TOKENS = 96
QUESTION_TEMPERATURE = 0.9  # at 1 the questions of small models are noise
BOOK_SHARE = 0.3  # of the questions, if there are books
PASSAGE = (120, 900)  # characters
OPENING = 16  # tokens of a book that a target without a template continues
EXCERPT = 400  # characters of the book that these tokens are taken from
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
        self._max_tokens = args.row_tokens - args.new_tokens
        self._books: list[str] = []
        if args.corpus:
            self._books = read_books(args.corpus)
        self._prompts: list[list[int]] = []
        if args.prompts:
            prompts = [prompt.content for prompt in prompts_file(args.prompts, OF_A_TRAINING)]
            self._prompts = _fitting(prompts, pair, self._max_tokens)
        self._turn: tuple[list[int], Ids] | None = None
        if pair.is_chat and not self._prompts:
            self._turn = open_turn(pair)
        if not (self._prompts or self._turn or self._books):
            raise SpecvizError(
                "a target without a chat template needs texts to continue: pass --corpus, a folder "
                "of .txt books, or --prompts, a file."
            )

    def chunk(self, chunk: int) -> list[list[int]]:
        """The prompts of one chunk."""
        draws = np.random.default_rng((self._args.seed, chunk))
        if self._prompts:
            return in_turn(self._prompts, chunk, self._rows)
        if self._turn is None:
            return [self._opening(draws) for _ in range(self._rows)]
        prompts = []
        if self._books:
            task_count = round(BOOK_SHARE * self._rows)
            prompts = [self._task(draws) for _ in range(task_count)]
        while len(prompts) < self._rows:
            seed = int(draws.integers(2**31))
            prompts += self._questions(self._rows - len(prompts), seed)
        return prompts

    def _questions(self, count: int, seed: int) -> list[list[int]]:
        """Prompts whose question the target writes; unfinished questions are left out."""
        assert self._turn is not None
        before, after = self._turn
        writing = Writing.of(self._pair, QUESTION_TOKENS)
        texts = write(
            self._pair.target,
            [before] * count,
            writing,
            temperature=QUESTION_TEMPERATURE,
            seed=seed,
        )
        prompts = []
        for text in texts:
            question = text[len(before) :]
            is_finished = len(question) > 3 and question[-1] in writing.ends
            prompt = [*before, *question[:-1], *after]
            fits = len(prompt) <= self._max_tokens
            if is_finished and fits:
                prompts.append(prompt)
        if not prompts:
            empty_question = [*before, *after]
            return [empty_question]
        return prompts

    def _task(self, draws: np.random.Generator) -> list[int]:
        task = str(draws.choice(list(TASKS)))
        question = task.format(self._passage(draws))
        ids = self._pair.encode(question, chat="on")
        return ids[-self._max_tokens :]

    def _passage(self, draws: np.random.Generator) -> str:
        book = self._book(draws)
        shortest, longest = PASSAGE
        paragraphs = book.split("\n\n")
        passages = [text for text in paragraphs if shortest <= len(text) <= longest]
        passage = book[:longest]
        if passages:
            index = int(draws.integers(len(passages)))
            passage = passages[index]
        return " ".join(passage.split())

    def _opening(self, draws: np.random.Generator) -> list[int]:
        book = self._book(draws)
        last_begin = max(1, len(book) - EXCERPT)
        position = int(draws.integers(last_begin))
        word_begin = book.find(" ", position) + 1
        excerpt = book[word_begin : word_begin + EXCERPT]
        return self._pair.text_ids(excerpt)[:OPENING]

    def _book(self, draws: np.random.Generator) -> str:
        index = int(draws.integers(len(self._books)))
        return self._books[index]


def read_books(folder: Path) -> list[str]:
    """The texts of a folder. Raises `SpecvizError` if there are none."""
    books = []
    for path in sorted(folder.glob("*.txt")):
        text = path.read_text(encoding="utf-8-sig")
        if text.strip():
            books.append(text)
    if not books:
        raise SpecvizError(
            f"{str(folder)!r} has no .txt books: pass a folder of books as --corpus."
        )
    return books


def open_turn(pair: Pair) -> tuple[list[int], Ids]:
    """The ids before a question in the target's template, and those after it."""
    text = chat_text(pair.tokenizer, [Message("user", MARK)])
    before, _, after = text.partition(MARK)
    if not before or not after:
        raise SpecvizError("the target's chat template does not show the question: pass --prompts.")
    ids_before = pair.tokenizer(before, add_special_tokens=False)["input_ids"]
    ids_after = pair.tokenizer(after, add_special_tokens=False)["input_ids"]
    return list(ids_before), list(ids_after)
