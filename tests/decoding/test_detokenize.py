"""The texts of tokens join to the decoded whole, for every tokenizer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import byte_level, emitted_text, examples, metaspace, mini, pair_of, words

from specviz import Settings, baseline, speculate
from specviz.core.text import Pieces, TextStream

TOKENIZERS = {"byte level": byte_level(), "metaspace": metaspace(), "words": words(9)}
TEXTS = [
    "the cat sat",
    "naïve café",
    "日本語 日本",
    "🙂🙃👩‍👩‍👧 family",
    "  two  spaces ",
    "a\n\tb",
    "e\u0301 é",  # a letter with a combining accent, and the composed letter
    "\ufffd is a character too",
]  # fmt: skip


def decoded(tokenizer: Any, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def joined(tokenizer: Any, prompt: list[int], ids: list[int]) -> list[str]:
    stream = TextStream(tokenizer, prompt)
    return [*(stream.push(i) for i in ids), stream.flush()]


def encoded(tokenizer: Any, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["byte level", "metaspace"])
def test_texts_join_to_the_decoded_whole_from_any_cut(kind: str, text: str):
    tokenizer = TOKENIZERS[kind]
    ids = encoded(tokenizer, text)
    for cut in range(len(ids) + 1):
        before = decoded(tokenizer, ids[:cut]).rstrip("\ufffd")
        assert before + "".join(joined(tokenizer, ids[:cut], ids[cut:])) == decoded(tokenizer, ids)


@examples(150)
@given(st.text(max_size=12), st.integers(0, 12))
def test_any_text_survives_a_byte_level_tokenizer(text: str, cut: int):
    tokenizer = TOKENIZERS["byte level"]
    ids = encoded(tokenizer, text)
    before = decoded(tokenizer, ids[:cut]).rstrip("\ufffd")
    assert before + "".join(joined(tokenizer, ids[:cut], ids[cut:])) == text


@examples(150)
@given(st.lists(st.integers(0, 299), max_size=14))
def test_any_ids_join_to_their_decoding(ids: list[int]):
    """A model may emit ids that are not valid text."""
    tokenizer = TOKENIZERS["byte level"]
    assert "".join(joined(tokenizer, [], ids)) == decoded(tokenizer, ids)


@examples(100)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=8), st.integers(1, 8))
def test_word_tokenizers_write_their_spaces(ids: list[int], cut: int):
    tokenizer = TOKENIZERS["words"]
    before = decoded(tokenizer, ids[:cut])
    assert before + "".join(joined(tokenizer, ids[:cut], ids[cut:])) == decoded(tokenizer, ids)


def test_a_character_belongs_to_the_token_that_completes_it():
    tokenizer = TOKENIZERS["byte level"]
    ids = encoded(tokenizer, "ab🙂")
    texts = joined(tokenizer, ids[:1], ids[1:])
    assert texts[-2] == "🙂" and set(texts[1:-2]) == {""} and texts[-1] == ""


def test_what_an_end_cuts_off_is_shown_by_a_flush():
    tokenizer = TOKENIZERS["byte level"]
    ids = encoded(tokenizer, "a🙂")[:-1]
    *texts, rest = joined(tokenizer, ids[:1], ids[1:])
    assert set(texts) == {""} and set(rest) == {"\ufffd"}


def test_a_copy_goes_its_own_way():
    tokenizer = TOKENIZERS["byte level"]
    ids = encoded(tokenizer, "x🙂y")
    other = encoded(tokenizer, "z")
    stream = TextStream(tokenizer, ids[:1])
    stream.push(ids[1])
    fork = stream.copy()
    fork.push(other[0])
    assert "".join([*(stream.push(i) for i in ids[2:]), stream.flush()]) == "🙂y"


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_a_lane_writes_its_decoded_ids(kind: str, gamma: int):
    """Random models emit anything: bytes that form no characters, parts of characters."""
    tokenizer = TOKENIZERS[kind]
    pair = pair_of(mini(len(tokenizer), seed=1), mini(len(tokenizer), seed=2), tokenizer=tokenizer)
    for seed in range(10):
        settings = Settings(gamma=gamma, temperature=1.0, max_new_tokens=13, seed=seed)
        rounds = list((speculate if gamma else baseline)(pair, [5, 7], settings))
        ids = [5, 7, *(t.id for r in rounds for t in r.emitted)]
        if kind == "metaspace" and "\ufffd" in decoded(tokenizer, ids):
            continue  # its decoder changes earlier bytes
        before = decoded(tokenizer, ids[:2]).rstrip("\ufffd")
        assert before + emitted_text(rounds) == decoded(tokenizer, ids)


def test_single_pieces_keep_their_spaces():
    for kind, piece in (("metaspace", "▁cat"), ("byte level", "Ġc")):
        tokenizer = TOKENIZERS[kind]
        pieces = Pieces(tokenizer)
        token_id = tokenizer.convert_tokens_to_ids(piece)
        assert pieces[token_id] == pieces[token_id] == piece.replace("▁", " ").replace("Ġ", " ")
