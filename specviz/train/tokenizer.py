"""The tokenizer: a byte-level BPE, which encodes any text without loss."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ..errors import SpecvizError

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


def train_tokenizer(
    texts: Iterable[str], *, vocabulary: int, context: int
) -> PreTrainedTokenizerFast:
    """Train a tokenizer with up to `vocabulary` pieces on `texts`.

    context: the longest input in tokens. Id 0 is the end of text, which separates books and is
    also the padding; encoding a text never adds it. Raises `SpecvizError` if `vocabulary` is out
    of range.
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
        model_max_length=context,
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
