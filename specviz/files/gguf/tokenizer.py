"""The tokenizer of a GGUF file, made from its header, and the ids that end its texts.

llama.cpp's tokenizer: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE

from ...base.errors import PairError
from ...core.ends import ENDS, spelled_ends
from ...core.pair import remember_size
from .header import GgufHeader, unreadable
from .merges import ListedMerges, ScoreMerges
from .splits import DEFAULT, SPLITS, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

BYTE_LEVEL = "gpt2"
"""The name of byte-level BPE in files."""

SENTENCE_PIECE = "llama"
"""The name of SentencePiece's BPE in files."""

# Types of pieces.
NORMAL = 1
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5

SPECIAL = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
}
"""Special tokens: transformers' name -> the name in files."""

TEMPLATE = "tokenizer.chat_template"

SPACE = "\u2581"
"""The sign for a space in SentencePiece's pieces."""

_DEFAULT_IDS = {
    SENTENCE_PIECE: {"bos": 1, "eos": 2, "unknown": 0},
    BYTE_LEVEL: {"bos": 11, "eos": 11},
}
"""llama.cpp's ids of special tokens that a file does not name."""

_FILL_IN_MIDDLE: dict[str, set[str]] = {
    "fim_pre": {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "▁<PRE>", "<|prefix|>"},
    "fim_suf": {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "▁<SUF>", "<|suffix|>"},
    "fim_mid": {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "▁<MID>", "<|middle|>"},
    "fim_pad": {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"},
    "fim_rep": {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
    "fim_sep": {"<|file_sep|>"},
}
"""Pieces that frame a gap to be filled, by the keys that name their ids. They are control tokens
whatever their type, unless the file names another piece."""

_HARMONY = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}
"""Pieces that are always read as a whole, and always shown."""

_AS_WRITTEN = {"<unk>", "<s>", "<|endoftext|>"}
"""Special pieces of Phi-3 that keep the spaces after them."""

_last: tuple[dict[str, Any], Any] | None = None


class _Types(NamedTuple):
    """The corrected types of a file's pieces. file_types: the types in the file."""

    pieces: list[str]
    file_types: object
    kinds: list[int]


_last_types: list[_Types] = []


def read_gguf_tokenizer(header: GgufHeader) -> Any:
    """The tokenizer of a file in transformers' form, without padding of the vocabulary.

    Making one takes a second, and files of one family have the same pieces: the last tokenizer is
    kept. Raises `PairError` for a vocabulary that llama.cpp does not read.
    """
    global _last
    fields = tokenizer_fields(header)
    if "phi" in header.name.lower():  # its special tokens depend on the name
        fields["general.name"] = header.text("general.name")
    if _last is None or _last[0] != fields:
        check_vocabulary(header)
        make = _sentence_piece
        if header.text(MODEL) == BYTE_LEVEL:
            make = _byte_level
        _last = fields, make(header)
    tokenizer = copy(_last[1])
    remember_size(tokenizer, used_ids(header))
    tokenizer.chat_template = header.text(TEMPLATE)
    return tokenizer


MODEL = "tokenizer.ggml.model"
MERGES = "tokenizer.ggml.merges"
SCORES = "tokenizer.ggml.scores"
SUPPRESSED = "tokenizer.ggml.suppress_tokens"


def check_vocabulary(header: GgufHeader) -> None:
    """Raise `PairError` for a vocabulary that cannot be read as llama.cpp reads it."""
    shown = header.path.name
    values = header.values
    model = header.text(MODEL)
    if model not in (BYTE_LEVEL, SENTENCE_PIECE):
        raise PairError(
            f"{shown} has a tokenizer of type {model!r}: use a file with {BYTE_LEVEL!r} or "
            f"{SENTENCE_PIECE!r}, or the model's own repository."
        )
    pieces = values.get("tokenizer.ggml.tokens")
    if not isinstance(pieces, list) or not pieces or not isinstance(pieces[0], str):
        raise PairError(unreadable(header))
    if model == BYTE_LEVEL:
        split_of(header)  # raises for an unknown rule
        _check_merges(header)
    if len(set(pieces)) < len(pieces):
        raise PairError(f"{shown} has the same piece twice in its vocabulary: download it again.")
    for key in ("tokenizer.ggml.token_type", SCORES):
        numbers = values.get(key, pieces)
        if not isinstance(numbers, list) or len(numbers) < len(pieces):
            raise PairError(f"{shown} has fewer entries in {key} than pieces: download it again.")
    if values.get(SUPPRESSED):
        raise PairError(
            f"{shown} has {SUPPRESSED}, which is not supported here: use the model's own "
            "repository."
        )


def _check_merges(header: GgufHeader) -> None:
    """Raise `PairError` for merges that are not pairs of pieces. A file may have none: each
    character is then a piece."""
    merges = header.values.get(MERGES, [])
    if not isinstance(merges, list):
        raise PairError(unreadable(header))
    if merges and not isinstance(merges[0], str):
        raise PairError(unreadable(header))
    are_pairs = all(" " in merge[1:] for merge in merges)
    if not are_pairs:
        raise PairError(unreadable(header))


def split_of(header: GgufHeader) -> Split:
    """The rule by which a byte-level tokenizer cuts texts into words. Raises `PairError` for an
    unknown name."""
    name = header.text("tokenizer.ggml.pre") or DEFAULT
    if name not in SPLITS:
        raise PairError(
            f"{header.path.name} splits text by the rule {name[:40]!r}, which is not known here: "
            "use the model's own repository."
        )
    return SPLITS[name]


def tokenizer_fields(header: GgufHeader) -> dict[str, Any]:
    """All fields of a header about its tokenizer, without the chat template."""
    fields = {}
    for key, value in header.values.items():
        if key.startswith("tokenizer.") and key != TEMPLATE:
            fields[key] = value
    return fields


def used_ids(header: GgufHeader) -> int:
    """The highest id of the tokenizer plus 1."""
    kinds = kinds_of(header)
    used = len(kinds)
    while used and kinds[used - 1] == UNUSED:
        used -= 1
    return used


def end_ids_of(header: GgufHeader) -> list[int]:
    """The ids that end a text or a turn: those that the file names, and all control pieces with a
    known end's spelling."""
    ids = set()
    for name in ("eos", "eot", "eom"):
        token_id = _special_id(header, name)
        if token_id is not None:
            ids.add(token_id)
    return sorted(ids | spelled_ends(added_pieces(header)))


def added_pieces(header: GgufHeader) -> dict[int, str]:
    """The pieces that are not plain text, by their ids."""
    added = {}
    for token_id, (piece, kind) in enumerate(pieces_of(header)):
        if kind in (CONTROL, USER_DEFINED):
            added[token_id] = piece
    return added


def pieces_of(header: GgufHeader) -> Iterator[tuple[str, int]]:
    """The pieces of the vocabulary, each with its type."""
    pieces = header.values.get("tokenizer.ggml.tokens") or []
    return zip(pieces, kinds_of(header), strict=False)


def kinds_of(header: GgufHeader) -> list[int]:
    """The types of the pieces with llama.cpp's corrections: ends of texts and of turns, and pieces
    that frame a gap, are control tokens. `UNUSED` is padding alone: a piece that a merge may give
    is not padding."""
    pieces = header.values.get("tokenizer.ggml.tokens") or []
    file_types = header.values.get("tokenizer.ggml.token_type")
    for known in _last_types:
        if known.pieces is pieces and known.file_types is file_types:
            return known.kinds
    kinds = [NORMAL] * len(pieces)
    if isinstance(file_types, list):
        kinds = list(file_types)
    control = _control_spellings(header)
    for token_id, piece in enumerate(pieces[: len(kinds)]):
        if piece in control and kinds[token_id] != UNUSED:
            kinds[token_id] = CONTROL
        elif piece in _HARMONY:
            kinds[token_id] = USER_DEFINED
    used = _without_padding(pieces, kinds, header.values.get(MERGES))
    for token_id, kind in enumerate(kinds[:used]):
        if kind == UNUSED:
            kinds[token_id] = NORMAL
    _last_types.append(_Types(pieces, file_types, kinds))
    del _last_types[:-2]
    return kinds


def _control_spellings(header: GgufHeader) -> set[str]:
    """The pieces that are control tokens, whatever type the file gives them."""
    spellings = set(ENDS)
    for key, names in _FILL_IN_MIDDLE.items():
        if _named_id(header, key) is None:
            spellings |= names
    return spellings


def _without_padding(pieces: list[str], kinds: list[int], merges: object) -> int:
    """The number of pieces without those at the end that only pad the vocabulary."""
    used = min(len(pieces), len(kinds))
    while used and kinds[used - 1] == UNUSED and PADDING.fullmatch(pieces[used - 1]):
        used -= 1
    if not used or kinds[used - 1] != UNUSED or not isinstance(merges, list):
        return used
    merged_pieces = {str(merge).replace(" ", "", 1) for merge in merges}
    while used and kinds[used - 1] == UNUSED:
        piece = pieces[used - 1]
        if len(piece) == 1 or piece in merged_pieces:
            break
        used -= 1
    return used


def _named_id(header: GgufHeader, name: str) -> int | None:
    """The id of a special token that the file names, or None."""
    token_id = header.values.get(f"tokenizer.ggml.{name}_token_id")
    pieces = header.values.get("tokenizer.ggml.tokens") or []
    if not isinstance(token_id, int) or isinstance(token_id, bool):
        return None
    if not 0 <= token_id < len(pieces):
        return None
    return token_id


def _special_id(header: GgufHeader, name: str) -> int | None:
    """The id of a special token: the file's, or SentencePiece's default if the file names none."""
    named = _named_id(header, name)
    if named is not None or header.text(MODEL) != SENTENCE_PIECE:
        return named
    return _default_id(header, name)


def _default_id(header: GgufHeader, name: str) -> int | None:
    """llama.cpp's id of a special token that the file does not name, or None."""
    model = header.text(MODEL) or ""
    token_id = _DEFAULT_IDS.get(model, {}).get(name)
    pieces = header.values.get("tokenizer.ggml.tokens") or []
    if token_id is None or token_id >= len(pieces):
        return None
    is_glm = header.text("tokenizer.ggml.pre") in ("glm4", "chatglm-bpe")
    if is_glm and name == "bos":
        return None
    return token_id


def can_be_saved(tokenizer: Any) -> bool:
    """Whether transformers can save a tokenizer: it cannot if Python code makes the merges."""
    try:
        tokenizer.backend_tokenizer.to_str()
    except Exception:  # the library raises its base class
        return False
    return True


def _byte_level(header: GgufHeader) -> PreTrainedTokenizerFast:
    split = split_of(header)
    vocab = _vocab(header)
    merges = _listed_merges(header)
    tokenizer = _empty_tokenizer()
    inner = tokenizer.backend_tokenizer
    steps: list[Any] = []
    for pattern in split.patterns:
        steps.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    model = None
    if split.raw:
        inner.normalizer = normalizers.Replace(" ", SPACE)
        inner.decoder = _sentence_piece_decoder(False)
    else:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        model = _model_of(merges, vocab, split)
        if split.composes:
            inner.normalizer = normalizers.NFC()
        inner.decoder = decoders.ByteLevel()
    if model is None:
        ranks = {pair: rank for rank, pair in enumerate(merges)}
        own_merges = ListedMerges(ranks, vocab, whole=split.ignores_merges, is_raw=split.raw)
        steps.append(pre_tokenizers.PreTokenizer.custom(own_merges))
        model = BPE(vocab=vocab, merges=[], ignore_merges=True, byte_fallback=split.raw)
    inner.model = model
    inner.pre_tokenizer = pre_tokenizers.Sequence(steps)
    _add_special(header, tokenizer, adds_bos=split.adds_bos)
    return tokenizer


def _listed_merges(header: GgufHeader) -> list[tuple[str, str]]:
    """The merges of a byte-level vocabulary, each once, in their order."""
    listed: list[str] = header.values.get(MERGES, [])
    if len(set(listed)) < len(listed):  # the first of two counts
        listed = list(dict.fromkeys(listed))
    return [_halves(merge) for merge in listed]


def _halves(merge: str) -> tuple[str, str]:
    """The two sides of a merge. As in llama.cpp, a space at its beginning belongs to the left
    one."""
    left, _, right = merge.partition(" ")
    if not left:
        left, _, right = merge[1:].partition(" ")
        left = f" {left}"
    return left, right


def _model_of(merges: list[tuple[str, str]], vocab: dict[str, int], split: Split) -> BPE | None:
    """The library's model of these merges without unreachable ones; None if a reachable merge has
    a side or a result that is not a piece."""
    try:
        return BPE(vocab=vocab, merges=merges, ignore_merges=split.ignores_merges)
    except Exception:  # the library raises its base class for a merge of what is no piece
        merged_texts = {left + right for left, right in merges}

    def is_made(side: str) -> bool:
        """Whether a side of a merge is a character or the result of a merge."""
        return len(side) == 1 or side in merged_texts

    usable = []
    for left, right in merges:
        are_pieces = left in vocab and right in vocab and left + right in vocab
        is_reachable = is_made(left) and is_made(right)
        if is_reachable and not are_pieces:
            return None
        if are_pieces:
            usable.append((left, right))
    return BPE(vocab=vocab, merges=usable, ignore_merges=split.ignores_merges)


def _sentence_piece(header: GgufHeader) -> PreTrainedTokenizerFast:
    values = header.values
    vocab = _vocab(header)
    pieces = values["tokenizer.ggml.tokens"]
    scores = values.get(SCORES) or [0.0] * len(pieces)
    has_prefix = values.get("tokenizer.ggml.add_space_prefix", True) is True
    tokenizer = _empty_tokenizer()
    inner = tokenizer.backend_tokenizer
    unknown_id = _special_id(header, "unknown")
    unknown_token = None
    if unknown_id is not None:
        unknown_token = pieces[unknown_id]
    inner.model = BPE(
        vocab=vocab,
        merges=[],
        ignore_merges=True,
        byte_fallback=True,
        unk_token=unknown_token,
    )
    spaces = normalizers.Replace(" ", SPACE)
    if has_prefix:
        inner.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces])
    else:
        inner.normalizer = spaces
    score_merges = ScoreMerges(dict(zip(pieces, scores, strict=False)))
    inner.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(score_merges)
    inner.decoder = _sentence_piece_decoder(has_prefix)
    _add_special(header, tokenizer, adds_bos=True)
    return tokenizer


def _sentence_piece_decoder(has_prefix: bool) -> Any:
    steps: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if has_prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)


def _empty_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer without pieces, which gets its model later. transformers copies a model that it
    is given, which takes a second for a large vocabulary."""
    from transformers import PreTrainedTokenizerFast  # a header is read without it

    class GgufTokenizer(PreTrainedTokenizerFast):
        """A tokenizer of a GGUF file, which transformers may be unable to save."""

        def save_pretrained(self, *values: Any, **options: Any) -> Any:
            if not can_be_saved(self):
                raise PairError(
                    "the tokenizer of this GGUF file cannot be saved, because it merges pieces "
                    "as llama.cpp does: use the model's own repository instead of the file."
                )
            return super().save_pretrained(*values, **options)

    make: Any = GgufTokenizer
    tokenizer: PreTrainedTokenizerFast = make(tokenizer_object=Tokenizer(BPE()))
    return tokenizer


def _vocab(header: GgufHeader) -> dict[str, int]:
    """The ids of all pieces without padding."""
    vocab = {}
    for token_id, (piece, kind) in enumerate(pieces_of(header)):
        if kind != UNUSED:
            vocab[piece or f"[EMPTY_{token_id}]"] = token_id
    return vocab


def _add_special(header: GgufHeader, tokenizer: Any, *, adds_bos: bool) -> None:
    """Tell a tokenizer its special tokens, and which of them begin and end a text. adds_bos:
    whether a text begins with the BOS token if the file does not say it. Raises `PairError`."""
    inner = tokenizer.backend_tokenizer
    pieces = list(pieces_of(header))
    special_pieces = [piece for piece, kind in pieces if kind in (UNKNOWN, CONTROL)]
    user_pieces = [piece for piece, kind in pieces if kind == USER_DEFINED]
    model_name = (header.text("general.name") or "").lower()
    is_phi = "phi-3" in model_name or "phi3" in model_name

    def added(piece: str, is_special: bool) -> AddedToken:
        strips = is_phi and piece not in _AS_WRITTEN
        return AddedToken(piece, normalized=False, special=is_special, rstrip=strips)

    inner.add_special_tokens([added(piece, True) for piece in special_pieces])
    inner.add_tokens([added(piece, False) for piece in user_pieces])
    for name, key in SPECIAL.items():
        token_id = _named_id(header, key)
        if token_id is not None:
            setattr(tokenizer, name, pieces[token_id][0])
    _add_begin_and_end(header, tokenizer, adds_bos=adds_bos)


def _add_begin_and_end(header: GgufHeader, tokenizer: Any, *, adds_bos: bool) -> None:
    """Let a tokenizer begin and end texts as the file says. Raises `PairError`."""
    values = header.values
    pieces = values["tokenizer.ggml.tokens"]
    begins = values.get("tokenizer.ggml.add_bos_token", adds_bos)
    if header.text("tokenizer.ggml.pre") in _ALWAYS_BEGIN:
        begins = True
    ends = values.get("tokenizer.ggml.add_eos_token", False)
    template: list[str] = ["$A"]
    special_tokens: list[tuple[str, int]] = []
    if begins is True:
        token_id = _added_id(header, "bos")
        tokenizer.bos_token = pieces[token_id]
        template.insert(0, tokenizer.bos_token)
        special_tokens.append((tokenizer.bos_token, token_id))
    if ends is True:
        token_id = _added_id(header, "eos")
        tokenizer.eos_token = pieces[token_id]
        template.append(tokenizer.eos_token)
        special_tokens.append((tokenizer.eos_token, token_id))
    if special_tokens:
        processor = processors.TemplateProcessing(single=template, special_tokens=special_tokens)
        tokenizer.backend_tokenizer.post_processor = processor


def _added_id(header: GgufHeader, name: str) -> int:
    """The id of the token that begins or ends each text. Raises `PairError` if there is none."""
    token_id = _named_id(header, name)
    if token_id is None:
        token_id = _default_id(header, name)
    if token_id is None:
        raise PairError(
            f"{header.path.name} adds a token to each text, but tokenizer.ggml.{name}_token_id "
            "does not name one: download it again."
        )
    return token_id


_ALWAYS_BEGIN = ("gemma4", "granite-embed-multi-311m")
"""Rules whose texts begin with the BOS token whatever the file says."""

PADDING = re.compile(r"\[PAD\d+\]")
