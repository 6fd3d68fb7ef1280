"""The corpus and its tokenizer: reads books and returns arrays of token ids.

Whole books are held out, so no paragraph is used both for training and for evaluation. The
tokenizer is a byte-level BPE, which encodes any text without loss.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ..errors import SpecvizError
from .models import CONTEXT

# Three books by authors whose other books are in the training set, and one by another author.
DEFAULT_HELD_OUT = (
    "arthur-conan-doyle_the-sign-of-the-four",
    "h-g-wells_the-time-machine",
    "kenneth-grahame_the-wind-in-the-willows",
    "p-g-wodehouse_love-among-the-chickens",
)


Books: TypeAlias = dict[str, str]
"""The name of a book, that of its file without .txt, and its text."""


def read_corpus(folder: Path, held_out: Sequence[str] = ()) -> tuple[Books, Books]:
    """The books for training and those for evaluation, from the `*.txt` files of a folder.

    held_out: the names of the latter. Without names they are `DEFAULT_HELD_OUT`, or one book in
    twenty if the folder does not contain these. Raises `SpecvizError` if the folder is missing, has
    too few books, or does not contain a named one.
    """
    if not folder.is_dir():
        raise SpecvizError(
            f"There is no corpus folder {str(folder)!r}: pass --corpus a folder of .txt books."
        )
    books = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))}
    books = {name: text for name, text in books.items() if text.strip()}
    if len(books) < 2:
        raise SpecvizError(
            f"The corpus folder {str(folder)!r} holds {len(books)} non-empty .txt books: "
            "add at least two, since one is held out."
        )
    usual = DEFAULT_HELD_OUT if books.keys() >= set(DEFAULT_HELD_OUT) else [*books][::20]
    chosen = set(held_out or usual)
    if missing := chosen - books.keys():
        raise SpecvizError(
            f"--held-out names {sorted(missing)}, which the corpus lacks: use file names without "
            "their .txt."
        )
    if chosen == books.keys():
        raise SpecvizError("--held-out names every book: leave at least one to train on.")
    learnt = {name: text for name, text in books.items() if name not in chosen}
    return learnt, {name: text for name, text in books.items() if name in chosen}


def encode_books(books: Books, tokenizer: Tokenizer, end_id: int, seed: int) -> np.ndarray:
    """All books in a random order, each after an end-of-text id: uint16 ids `[tokens]`. seed: of
    the order."""
    order = list(books.values())
    random.Random(seed).shuffle(order)
    pieces = [np.array([end_id, *one.ids], np.uint16) for one in tokenizer.encode_batch(order)]
    return np.concatenate(pieces)


class Windows:
    """Training windows of a text.

    A batch depends only on the seed, the length and the number of tokens trained before, so a
    resumed training gets the same batches. Each epoch has every window once, in a new order and
    from a new offset.
    """

    def __init__(self, tokens: np.ndarray, seed: int) -> None:
        self.tokens = tokens  # [tokens]
        self.seed = seed

    def batch(self, length: int, seen: int, rows: int, progress: float = 0.0) -> torch.Tensor:
        """The next batch after `seen` trained tokens: ids `[rows, length + 1]`, for inputs and
        shifted labels. progress: plays no part. Raises `SpecvizError` if the text is shorter than
        two windows."""
        per_epoch = (len(self.tokens) - 1 - length) // length
        if per_epoch < 1:
            raise SpecvizError(
                f"The training text has {len(self.tokens)} tokens, fewer than two windows of "
                f"{length}: add text or pass shorter --lengths."
            )
        picked: list[np.ndarray] = []
        for row in range(seen // length, seen // length + rows):
            epoch, place = divmod(row, per_epoch)
            if not picked or place == 0:
                draws = np.random.default_rng((self.seed, length, epoch))
                offset, order = int(draws.integers(length)), draws.permutation(per_epoch)
            start = offset + int(order[place]) * length
            picked.append(self.tokens[start : start + length + 1])
        return torch.from_numpy(np.stack(picked).astype(np.int64))


END_OF_TEXT = "<|endoftext|>"

# A word includes the space before it. Digits are single pieces. Line breaks are pieces of their
# own, so the end of a paragraph does not depend on its last punctuation mark.
_SPLIT = (
    r"'(?i:s|t|m|d|ll|ve|re)(?!\p{L})"
    r"| ?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+"
    r"|[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], *, vocabulary: int) -> PreTrainedTokenizerFast:
    """Train a tokenizer with up to `vocabulary` pieces on `texts`.

    Id 0 is the end of text, which separates books and is also the padding; encoding a text never
    adds it. Raises `SpecvizError` if `vocabulary` is out of range.
    """
    if not 257 <= vocabulary <= 65_536:
        raise SpecvizError(
            f"--vocabulary is {vocabulary}: choose 257 to 65536, the bytes and one special piece "
            "at least."
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer in `folder`; raises `SpecvizError` if it does not exist yet."""
    if not (folder / "tokenizer.json").is_file():
        raise SpecvizError(
            f"There is no tokenizer in {str(folder)!r}: run the stage `tokenizer` first."
        )
    loaded: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    return loaded
