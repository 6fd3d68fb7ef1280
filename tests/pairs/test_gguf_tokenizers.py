"""Tokenizers of GGUF files split texts as llama.cpp does: each splitting rule, each order of
merges, each type of piece, and the tokens at the start and end of a text."""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import transformers
from gguf_models import (
    VOCAB,
    Keys,
    Piece,
    byte_pieces,
    described,
    sentence_piece_fields,
    vocabulary,
    write_described,
    write_vocabulary,
)
from llama_oracle import LlamaOracle
from sentences import Sentences
from test_gguf import texts
from tiny_files import SPECIAL
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from specviz import Pair, load_pair
from specviz.base.errors import PairError
from specviz.files.gguf.keys import checked_gguf
from specviz.files.gguf.splits import SPLITS
from specviz.files.gguf.tokenizer import end_ids_of, read_gguf_tokenizer
from specviz.pairs.doctor import examine

MARK = "<|im_start|>"
KINDS = gguf.TokenType

HARD = [
    "it's IT'S we'LL o'clock 'S 'Re 'vE don'T",
    "HelloWorld XMLHttp iPhone ÄÖü ΑΒΓ αβγ ǅungla ʰx ªº",
    "12345678 ½ ²³²³ ١٢٣٤ 12٣٤ 1234_ 12 123 1234 12345 1234567",
    "a  b   c    d\n\n\n e\r\n\r\n f\t\tg ",
    "http://a.b/c?d=e&f/g/ /// //x foo_bar-baz (x|y) [z]",
    "हिन्दी में पाठ वाक्य ไทย ภาษา 한국어 텍스트 中文123漢字 abc",
    "$+<=>^`|~ !!!??? \u00a0x\u3000y a\u0085b\u2028c x,y.z،w。v",
    "IMGIMGABZ <sentinel:12>",
    "'SOME 'drive 'desk !!\n\n?!\r\nx a  123   45\n\n\ny",
    "'SOME'SOME 'SOME",
    "a\n\n\nb\n\n\nc x !\n/y !\n/y",
    "x" + " " * 37 + "a",
]


@functools.cache
def all_texts() -> list[str]:
    """200 texts of several scripts, and texts that splitting rules cut differently."""
    return [text for text in texts() if text] + HARD


def parts(ids: list[int], mark: int) -> Iterator[list[int]]:
    """Split ids at a mark. Control tokens separate texts, so one request can hold many texts."""
    part: list[int] = []
    for token_id in [*ids, mark]:
        if token_id == mark:
            yield part
            part = []
        else:
            part.append(token_id)


def differences(path: Path, oracle: LlamaOracle, mark: str = MARK) -> list[str]:
    """The texts that a file's tokenizer cuts differently from llama.cpp."""
    tokenizer = read_gguf_tokenizer(checked_gguf(path))
    theirs = oracle.tokens(path, mark.join(all_texts()))
    assert theirs is not None, "llama.cpp refuses it"
    wanted = list(parts(theirs, tokenizer.convert_tokens_to_ids(mark)))
    found = tokenizer(all_texts(), add_special_tokens=False)["input_ids"]
    assert len(wanted) == len(found)
    return [text for text, *ids in zip(all_texts(), wanted, found, strict=True) if ids[0] != ids[1]]


@functools.cache
def across_words() -> Keys:
    """The fields of a byte-level vocabulary whose merges cross word boundaries, so that its tokens
    show where a text was cut. No merge makes its last piece."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=3000,
        min_frequency=1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    trained.train_from_iterator(all_texts() + 5 * HARD, trainer)
    state = json.loads(trained.to_str())["model"]
    pieces = sorted(state["vocab"], key=state["vocab"].get)
    kinds = [KINDS.CONTROL if piece in SPECIAL else KINDS.NORMAL for piece in pieces]
    return {
        "tokenizer.ggml.tokens": [*pieces, "zqzq"],
        "tokenizer.ggml.token_type": [*map(int, kinds), int(KINDS.NORMAL)],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in state["merges"]],
    }


@pytest.fixture(scope="module")
def split_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that writes a file with the named splitting rule."""
    folder = tmp_path_factory.mktemp("splits")

    @functools.cache
    def written(name: str) -> Path:
        fields = across_words() | {"tokenizer.ggml.pre": name}
        return write_vocabulary(folder / f"{name}.gguf", fields)

    return written


DISTINCT = {split.patterns: name for name, split in reversed(SPLITS.items())}


SAMPLE = "".join(HARD) + "zqzq" + MARK + "zqzq\n\n\n1234"
"""A text that distinguishes rules, shows whether whole words are looked up, and which tokens begin
a text."""


@pytest.mark.parametrize("name", DISTINCT.values())
def test_each_rule_cuts_texts_as_llama_cpp_does(
    name: str, split_file: Callable[[str], Path], oracle: LlamaOracle
) -> None:
    assert len(all_texts()) > 200
    path = split_file(name)
    assert differences(path, oracle) == []
    ids = read_gguf_tokenizer(checked_gguf(path))(SAMPLE)["input_ids"]
    assert ids == oracle.tokens(path, SAMPLE, add_special=True)


def test_each_other_name_has_the_rule_that_it_has_in_llama_cpp(
    split_file: Callable[[str], Path], oracle: LlamaOracle
) -> None:
    for name in SPLITS.keys() - {*DISTINCT.values()}:
        path = split_file(name)
        ids = read_gguf_tokenizer(checked_gguf(path))(SAMPLE)["input_ids"]
        assert ids == oracle.tokens(path, SAMPLE, add_special=True), name


def test_rules_are_told_apart_by_these_texts(split_file: Callable[[str], Path]) -> None:
    cut: dict[str, set[str]] = {}
    for name in DISTINCT.values():
        tokenizer = read_gguf_tokenizer(checked_gguf(split_file(name)))
        ids = tokenizer(all_texts()[-30:], add_special_tokens=False)["input_ids"]
        cut.setdefault(str(ids), set()).add(name)
    # These two rules are written differently, but match the same.
    assert [names for names in cut.values() if len(names) > 1] == [{"bailingmoe", "qwen2"}]


def test_a_rule_of_another_name_is_refused(
    split_file: Callable[[str], Path], oracle: LlamaOracle, sentences: Sentences
) -> None:
    path = split_file("invented")
    assert oracle.tokens(path, "a") is None
    with sentences.raises(PairError):
        load_pair(f"{path}+none")
    assert examine(f"{path}+none").verdict == "stop"


# Byte-level vocabularies


@functools.cache
def plain() -> tuple[list[str], list[str], list[int]]:
    """The pieces, merges and types of the usual small vocabulary."""
    state = json.loads(vocabulary().backend_tokenizer.to_str())
    pieces_by_id = {token_id: piece for piece, token_id in vocabulary().get_vocab().items()}
    pieces = [pieces_by_id.get(index, f"[PAD{index}]") for index in range(VOCAB)]
    merges = [" ".join(merge) for merge in state["model"]["merges"]]
    kinds = [KINDS.CONTROL if piece in SPECIAL else KINDS.NORMAL for piece in pieces]
    unused = [KINDS.UNUSED if index not in pieces_by_id else kinds[index] for index in range(VOCAB)]
    return pieces, merges, [int(kind) for kind in unused]


def byte_level_fields(
    renamed: dict[str, str] | None = None,
    typed: dict[str, int] | None = None,
    merges: list[str] | None = None,
    **fields: Any,
) -> Keys:
    """The fields of the usual vocabulary, with other names and types of pieces, and more merges."""
    pieces, known, kinds = plain()
    names = renamed or {}
    types = typed or {}
    changed = [names.get(piece, piece) for piece in pieces]
    return {
        "tokenizer.ggml.tokens": changed,
        "tokenizer.ggml.merges": [*known, *(merges or ())],
        "tokenizer.ggml.token_type": [
            int(types.get(piece, kind)) for piece, kind in zip(changed, kinds, strict=True)
        ],
        **{f"tokenizer.ggml.{name}": value for name, value in fields.items()},
    }


def made(index: int, *, ascii_only: bool) -> str:
    """The piece that one of the merges makes."""
    return [m.replace(" ", "") for m in plain()[1] if m.isascii() == ascii_only][index]


BYTE_LEVEL: dict[str, Callable[[], Keys]] = {
    "as it is": byte_level_fields,
    "a merge without its piece": lambda: byte_level_fields({made(0, ascii_only=True): "@@"}),
    "a merge with a space without it": lambda: byte_level_fields({"Ġthe": "@@"}),
    "merges that no text reaches": lambda: byte_level_fields(merges=["zz qq", "qqz t"]),
    "merges that become no piece": lambda: byte_level_fields(merges=["z q", "zq z"]),
    "a merge twice": lambda: byte_level_fields(merges=plain()[1][:2]),
    "an unused piece in a merge": lambda: byte_level_fields(
        typed={made(0, ascii_only=True): KINDS.UNUSED}
    ),
    "an unused letter": lambda: byte_level_fields(typed={"q": KINDS.UNUSED}),
    "an end that is typed as text": lambda: (
        byte_level_fields(typed={MARK: KINDS.NORMAL})
        | byte_level_fields(typed={"<|im_end|>": KINDS.NORMAL})
    ),
    "gaps that are typed as text": lambda: byte_level_fields(
        {"[PAD323]": "<fim_prefix>", "[PAD324]": "<|fim_pad|>"},
        {"<fim_prefix>": KINDS.NORMAL, "<|fim_pad|>": KINDS.NORMAL},
    ),
    "a gap that the file names otherwise": lambda: byte_level_fields(
        {"[PAD324]": "<fim_prefix>"}, {"<fim_prefix>": KINDS.NORMAL}, fim_pre_token_id=5
    ),
    "messages": lambda: byte_level_fields(
        {"[PAD323]": "<|channel|>"}, {"<|channel|>": KINDS.CONTROL}
    ),
    "a space before texts": lambda: byte_level_fields(add_space_prefix=True),
    "spaces taken out": lambda: byte_level_fields(remove_extra_whitespaces=True),
    "no types": lambda: byte_level_fields(token_type=None),
    "a begin": lambda: byte_level_fields(add_bos_token=True, bos_token_id=7),
    "a begin that is not named": lambda: byte_level_fields(add_bos_token=True),
    "an end of each text": lambda: byte_level_fields(add_eos_token=True, eos_token_id=3),
    "an empty piece": lambda: byte_level_fields({"[PAD323]": ""}),
}
MORE = (
    "the the cat the other zzqq zqzqz<|im_end|>b<fim_prefix>c<|fim_pad|>[PAD321]<|channel|> at he "
    "on"
)


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_a_byte_level_vocabulary_is_read_as_llama_cpp_reads_it(
    name: str, tmp_path: Path, oracle: LlamaOracle
) -> None:
    model = described("llama", layers=1)
    path = write_described(tmp_path / "model.gguf", model, fields=BYTE_LEVEL[name]())
    tokenizer = read_gguf_tokenizer(checked_gguf(path))
    for text in (MORE, *all_texts()[::7]):
        theirs = oracle.tokens(path, text, add_special=True)
        assert tokenizer(text)["input_ids"] == theirs, text


def test_signs_of_messages_are_always_shown(tmp_path: Path) -> None:
    fields = BYTE_LEVEL["messages"]()
    path = write_described(tmp_path / "model.gguf", described("llama"), fields=fields)
    tokenizer = read_gguf_tokenizer(checked_gguf(path))
    text = "<|channel|>a<|im_end|>"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text[:-10]


def test_an_end_of_turn_that_is_typed_as_text_ends_a_text(tmp_path: Path) -> None:
    fields = byte_level_fields(typed={"<|im_end|>": KINDS.NORMAL}, eot_token_id=9, eom_token_id=10)
    path = write_described(tmp_path / "model.gguf", described("llama"), fields=fields)
    pair = load_pair(f"{path}+none")
    assert isinstance(pair, Pair)
    end = pair.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert {end, 9, 10} <= pair.eos_ids == {*end_ids_of(checked_gguf(path))}


REFUSED: dict[str, Callable[[], Keys]] = {
    "a piece twice": lambda: byte_level_fields({"[PAD324]": "q"}),
    "another tokenizer": lambda: byte_level_fields(model="t5"),
    "fewer types": lambda: byte_level_fields(token_type=[1, 1]),
    "what is never said": lambda: byte_level_fields(suppress_tokens=[4]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_vocabulary_that_is_not_understood_is_refused(
    name: str, tmp_path: Path, sentences: Sentences
) -> None:
    path = write_described(tmp_path / "model.gguf", described("llama"), fields=REFUSED[name]())
    with sentences.raises(PairError):
        load_pair(f"{path}+none")
    assert examine(f"{path}+none").verdict == "stop"


# Vocabularies of SentencePiece


@functools.cache
def words() -> list[str]:
    """Substrings of the texts, the most frequent first, and runs of spaces."""
    counts: Counter[str] = Counter()
    for text in all_texts():
        whole = f"▁{text.replace(' ', '▁')}"
        for length in range(1, 6):
            counts.update(whole[i : i + length] for i in range(len(whole) - length + 1))
    known = {piece.text for piece in byte_pieces()}
    runs = ["▁" * length for length in range(2, 32)]
    frequent = [word for word, _ in counts.most_common(1500)]
    return [word for word in dict.fromkeys([*frequent, *runs]) if word not in known]


def pieces_with(score: Callable[[int, str], float], *more: Piece) -> list[Piece]:
    scored = [Piece(word, score(index, word)) for index, word in enumerate(words())]
    return [*byte_pieces(), *scored, *more]


def by_rank(index: int, _: str) -> float:
    return -float(index)


SENTENCE_PIECE: dict[str, Callable[[], Keys]] = {
    "scores by rank": lambda: sentence_piece_fields(pieces_with(by_rank)),
    "equal scores": lambda: sentence_piece_fields(pieces_with(lambda *_: 0.0)),
    "few scores": lambda: sentence_piece_fields(
        pieces_with(lambda index, _: -float(random.Random(index).randrange(5)))
    ),
    "short pieces first": lambda: sentence_piece_fields(pieces_with(lambda _, w: -float(len(w)))),
    "long pieces first": lambda: sentence_piece_fields(pieces_with(lambda _, w: float(len(w)))),
    "no space before texts": lambda: sentence_piece_fields(
        pieces_with(by_rank), add_space_prefix=False
    ),
    "spaces taken out": lambda: sentence_piece_fields(
        pieces_with(by_rank), remove_extra_whitespaces=True
    ),
    "no begin": lambda: sentence_piece_fields(pieces_with(by_rank), add_bos_token=False),
    "an end": lambda: sentence_piece_fields(pieces_with(by_rank), add_eos_token=True),
    "other ids": lambda: sentence_piece_fields(
        pieces_with(by_rank), bos_token_id=5, eos_token_id=6
    ),
    "pieces of the user": lambda: sentence_piece_fields(
        pieces_with(
            by_rank,
            Piece("the house", 0, KINDS.USER_DEFINED),
            Piece("    ", 0, KINDS.USER_DEFINED),
            Piece("  ", 0, KINDS.USER_DEFINED),
            Piece("<end_of_turn>", 0, KINDS.NORMAL),
        )
    ),
}


@pytest.mark.parametrize("name", SENTENCE_PIECE)
def test_a_vocabulary_of_sentencepiece_is_read_as_llama_cpp_reads_it(
    name: str, tmp_path: Path, oracle: LlamaOracle
) -> None:
    path = write_vocabulary(tmp_path / "model.gguf", SENTENCE_PIECE[name]())
    assert differences(path, oracle, "<s>") == []
    tokenizer = read_gguf_tokenizer(checked_gguf(path))
    more = ["<unk> x", "a</s>b <s> c", "aaaaaaa", "x <end_of_turn> y", "<0x41>", "  ", ""]
    for text in (*more, *(f"{' ' * count}a" for count in (1, 2, 3, 5, 37, 64))):
        theirs = oracle.tokens(path, text, add_special=True)
        assert tokenizer(text)["input_ids"] == theirs, text


@pytest.mark.parametrize("has_prefix", [True, False])
def test_texts_come_back_from_their_ids(has_prefix: bool, tmp_path: Path) -> None:
    fields = sentence_piece_fields(pieces_with(by_rank), add_space_prefix=has_prefix)
    path = write_vocabulary(tmp_path / "model.gguf", fields)
    tokenizer = read_gguf_tokenizer(checked_gguf(path))
    for text in all_texts():
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text


def test_a_file_with_sentencepiece_is_unpacked_with_its_own_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    fields = sentence_piece_fields(pieces_with(lambda *_: 0.0))
    rows = len(fields["tokenizer.ggml.tokens"])
    table = np.zeros((rows, 64), np.float32)
    model = described("gemma2", layers=1)
    path = write_described(
        tmp_path / "model.gguf", model, tensors={"token_embd.weight": table}, fields=fields
    )
    for _ in range(2):  # newly unpacked, then from the cache
        pair = load_pair(f"{path}+none")
        assert isinstance(pair, Pair)
        ids = pair.tokenizer(" " * 37 + "a", add_special_tokens=False)["input_ids"]
        assert pair.tokenizer.convert_ids_to_tokens(ids) == ["▁" * 31, "▁" * 7, "a"]


def test_a_tokenizer_that_merges_in_its_own_way_is_not_saved(
    tmp_path: Path, sentences: Sentences
) -> None:
    path = write_vocabulary(tmp_path / "model.gguf", SENTENCE_PIECE["scores by rank"]())
    tokenizer = read_gguf_tokenizer(checked_gguf(path))
    assert isinstance(tokenizer, transformers.PreTrainedTokenizerFast)
    with sentences.raises(PairError):
        tokenizer.save_pretrained(tmp_path)
