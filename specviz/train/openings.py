"""What a target is asked when it writes text to train a head on."""

from __future__ import annotations

import argparse

import numpy as np

from ..errors import SpecvizError
from ..pairs.pair import Pair
from ..prompts import OF_A_TRAINING, prompts_file
from .corpus import Book, read_corpus
from .writing import Ids, Writing, write

QUESTION_TOKENS = 96
QUESTION_TEMPERATURE = 0.9  # at 1 the questions of small models are noise
BOOK_SHARE = 0.3  # of the questions, if there are books
PASSAGE = (120, 900)  # characters
OPENING = 16  # tokens of a book that a target without a template goes on from
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
    """Prompts as ids, as many as are asked for.

    They are the file's (`--prompts`) if there is one. Else a target that was tuned for chat writes
    the question too, from the open user turn of its template, and works on passages of the books
    (`--corpus`); another target goes on from the books. Raises `SpecvizError`.
    """

    def __init__(self, pair: Pair, args: argparse.Namespace) -> None:
        self._pair, self._args = pair, args
        self._rows = args.write_rows
        self._most = args.row_tokens - args.new_tokens
        self._books = read_corpus(args.corpus).train if args.corpus else ()
        self._prompts: list[list[int]] = []
        if args.prompts:
            encoded = (pair.encode(one.text) for one in prompts_file(args.prompts, OF_A_TRAINING))
            self._prompts = [ids for ids in encoded if len(ids) <= self._most]
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
            first = chunk * self._rows
            return [self._prompts[i % len(self._prompts)] for i in range(first, first + self._rows)]
        if self._turn is None:
            return [self._opening(draws) for _ in range(self._rows)]
        of_books = round(BOOK_SHARE * self._rows) if self._books else 0
        asked = [self._task(draws) for _ in range(of_books)]
        while len(asked) < self._rows:
            asked += self._questions(self._rows - len(asked), int(draws.integers(2**31)))
        return asked

    def _questions(self, count: int, seed: int) -> list[list[int]]:
        """Prompts whose question the target writes; those that do not end are left out."""
        assert self._turn is not None
        begin, rest = self._turn
        how = Writing.of(self._pair, QUESTION_TOKENS)
        written = write(
            self._pair.target, [begin] * count, how, temperature=QUESTION_TEMPERATURE, seed=seed
        )
        asked = [text[len(begin) :] for text in written]
        whole = [ids[:-1] for ids in asked if ids and ids[-1] in how.ends and len(ids) > 3]
        found = [[*begin, *ids, *rest] for ids in whole]
        return [ids for ids in found if len(ids) <= self._most] or [[*begin, *rest]]

    def _task(self, draws: np.random.Generator) -> list[int]:
        text = str(draws.choice(list(TASKS))).format(self._passage(draws))
        ids = self._pair.encode(text, chat="on")
        return ids if len(ids) <= self._most else ids[-self._most :]

    def _passage(self, draws: np.random.Generator) -> str:
        book = self._book(draws)
        least, most = PASSAGE
        for _ in range(100):
            at = int(draws.integers(max(1, len(book.text) - most)))
            begin = book.text.find("\n\n", at)
            end = book.text.find("\n\n", begin + least)
            if 0 <= begin < end and end - begin <= most:
                return " ".join(book.text[begin:end].split())
        return " ".join(book.text[:most].split())

    def _opening(self, draws: np.random.Generator) -> list[int]:
        book = self._book(draws)
        at = book.text.find(" ", int(draws.integers(max(1, len(book.text) - 400)))) + 1
        return self._pair.text_ids(book.text[at : at + 400])[:OPENING]

    def _book(self, draws: np.random.Generator) -> Book:
        return self._books[int(draws.integers(len(self._books)))]


def open_turn(pair: Pair) -> tuple[list[int], Ids]:
    """What stands before a question in the target's template, and what stands behind it, as ids."""
    text = pair.tokenizer.apply_chat_template(
        [{"role": "user", "content": MARK}], tokenize=False, add_generation_prompt=True
    )
    before, _, after = text.partition(MARK)
    if not before or not after:
        raise SpecvizError("the target's chat template hides the question: pass --prompts.")
    ids = [pair.tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before, after)]
    return list(ids[0]), list(ids[1])
