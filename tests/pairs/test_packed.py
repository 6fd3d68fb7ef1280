"""Pairs of GGUF files with weights in their stored format: for every kind and architecture they
equal the model of transformers, and each damaged file gets a sentence."""

from __future__ import annotations

import functools
import itertools
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_models import emitted_ids

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

from gguf_writer import write_model
from tiny_files import (
    CONFIGS,
    KINDS,
    PADDED,
    TinyFile,
    greedy_ids,
    tiny_file,
    tiny_model,
    tiny_tokenizer,
)

from specviz import Pair, Settings, baseline, generate, load_pair
from specviz.base.errors import PairError
from specviz.core import cost
from specviz.core.cost import extra_token_cost, pass_cost
from specviz.core.engine_choice import make_engine
from specviz.core.model_facts import parameter_count, pass_bytes, pass_weights, weights_form
from specviz.files.gguf.header import GgufTensor, read_gguf
from specviz.pairs.doctor import examine

PROMPT = "the cat sat on"
COUNT = 16  # tokens of a text


def both_lanes(pair: Pair, ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """The texts of the target with drafts and alone."""
    settings = Settings(max_new_tokens=COUNT, ignore_eos=True, gamma=3)
    drafted = generate(pair, list(ids), max_new_tokens=COUNT, ignore_eos=True, gamma=3)
    return emitted_ids(drafted.rounds), emitted_ids(baseline(pair, list(ids), settings))


# Each kind once, with some architecture; each architecture with a tied and with a separate output
# layer.
FILES = [
    *zip(KINDS, itertools.cycle(CONFIGS), itertools.cycle([True, True, True, False, False])),
    *(("Q4_K", architecture, tied) for architecture in CONFIGS for tied in (True, False)),
    ("Q8_0", "qwen2", True),
    ("Q6_K", "llama", True),
]


def in_words(case: object) -> str:
    return (
        {True: "tied", False: "untied"}.get(case, str(case))
        if isinstance(case, bool)
        else str(case)
    )


@pytest.fixture(scope="module")
def draft_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], TinyFile]:
    """A function that writes a draft's file for a kind and an architecture, once, because it takes
    up to a second."""

    @functools.cache
    def written(kind: str, architecture: str) -> TinyFile:
        folder = tmp_path_factory.mktemp("draft")
        return tiny_file(folder, kind, architecture, name="draft", seed=1, num_hidden_layers=1)

    return written


@pytest.mark.parametrize(("kind", "architecture", "tied"), sorted(set(FILES)), ids=in_words)
def test_a_file_writes_what_transformers_writes_with_its_numbers(
    kind: str,
    architecture: str,
    tied: bool,
    tmp_path: Path,
    draft_of: Callable[[str, str], TinyFile],
) -> None:
    target = tiny_file(tmp_path, kind, architecture, tie_word_embeddings=tied)
    draft = draft_of(kind, architecture)
    pair = load_pair(f"{target.path}+{draft.path}", products="fp32")
    assert weights_form(pair.target) == kind and weights_form(pair.draft_model) == kind
    assert pair.shared is None and pair.target.config.gguf_digest.startswith("sha256:")
    for model in (pair.target, pair.draft_model):
        assert make_engine(model, pair.vocab).name == "compiled"
    ids = pair.encode(PROMPT, chat="off")
    wanted = greedy_ids(target.model, ids, COUNT, pair.vocab)
    assert both_lanes(pair, ids) == (wanted, wanted)
    assert len(set(wanted)) > 3


LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}


def scaled(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The fields of a file with scaled positions."""
    fields = {"llama.rope.scaling.type": name, "llama.rope.scaling.factor": parameters["factor"]}
    if original := parameters.get("original_max_position_embeddings"):
        fields["llama.rope.scaling.original_context_length"] = original
    return fields


def rope_factors() -> np.ndarray:
    """The divisors of Llama 3's rotary frequencies, fp32 [head_dim / 2]."""
    plain = tiny_model().model.rotary_emb.inv_freq
    slowed = tiny_model(rope_parameters=LLAMA_3).model.rotary_emb.inv_freq
    return (plain / slowed).numpy()


ROPES: dict[str, tuple[dict[str, Any], Callable[[], dict[str, Any]]]] = {
    "factors in the file": (LLAMA_3, lambda: {"rope_factors": rope_factors()}),
    "linear": (LINEAR, lambda: {"fields": scaled("linear", LINEAR)}),
    "yarn": (YARN, lambda: {"fields": scaled("yarn", YARN)}),
}


@pytest.mark.parametrize("name", ROPES)
def test_scaled_positions_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    parameters, writing = ROPES[name]
    file = tiny_file(tmp_path, "Q8_0", writing=writing(), rope_parameters=parameters)
    pair = load_pair(f"{file.path}+none", products="fp32")
    engine = make_engine(pair.target, pair.vocab)
    assert engine.name == "compiled"
    ids = torch.randint(pair.vocab, (200,), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        known = file.model(ids[None]).logits[0, :, : pair.vocab]
    scale = known.abs().max().item()
    torch.testing.assert_close(engine.forward(ids, 200), known, rtol=1e-4, atol=1e-4 * scale)


# Words of several scripts, and separators that tokenizers split in different ways.
TEXTS = (
    "the house isn't far, THEY'VE said so 1234567 times: 3.14",
    "Größe über Straßen\n\n  und Äpfel\t…",
    "съешь ещё этих мягких булок!?",
    "مرحبا بالعالم الجميل",
    "你好，世界！今天天气很好",
    "こんにちは世界、お元気ですか",
    "👩‍🚀🏽 def f(x):\n    return x  # 🙂\n",
    "<|im_start|>user\nhi<|im_end|>\n",
    "",
)


def test_the_tokenizer_is_the_published_one(tmp_path: Path) -> None:
    known = tiny_tokenizer()
    pair = load_pair(f"{tiny_file(tmp_path, 'F16', 'qwen2', tokenizer=known).path}+none")
    for text in (*TEXTS, "e\u0301"):  # the last is composed first
        assert pair.tokenizer(text)["input_ids"] == known(text)["input_ids"], text
    for text in TEXTS:
        ids = pair.tokenizer(text)["input_ids"]
        assert pair.tokenizer.decode(ids) == text
    plain = pair.tokenizer.decode(known(TEXTS[7])["input_ids"], skip_special_tokens=True)
    assert plain == "user\nhi\n"


def test_padding_of_the_vocabulary_is_no_token(tmp_path: Path) -> None:
    known = tiny_tokenizer()
    pair = load_pair(f"{tiny_file(tmp_path, 'F16', tokenizer=known).path}+none")
    assert pair.target.config.vocab_size == PADDED > len(known)
    assert pair.tokenizer.get_vocab() == known.get_vocab() and pair.vocab == len(known)


def test_files_of_one_family_with_different_padding_share_a_tokenizer(tmp_path: Path) -> None:
    wide, narrow = (
        tiny_file(tmp_path, "Q8_0", name=str(rows), seed=rows, vocab_size=rows)
        for rows in (352, 325)
    )
    for target, draft in ((wide, narrow), (narrow, wide)):
        pair = load_pair(f"{target.path}+{draft.path}", products="fp32")
        assert pair.shared is None and pair.vocab == len(tiny_tokenizer())
        ids = pair.encode(PROMPT, chat="off")
        wanted = greedy_ids(target.model, ids, COUNT, pair.vocab)
        assert both_lanes(pair, ids) == (wanted, wanted)


def test_a_file_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    """Ollama names files by their digest, without a suffix."""
    file = tiny_file(tmp_path, "Q8_0")
    blob = file.path.rename(tmp_path / "sha256-0123abcd")
    pair = load_pair(f"{blob}+none", products="fp32")
    ids = pair.encode(PROMPT, chat="off")
    wanted = greedy_ids(file.model, ids, COUNT, pair.vocab)
    assert both_lanes(pair, ids) == (wanted, wanted)
    blob.write_bytes(b"JUNK" + blob.read_bytes()[4:])
    with pytest.raises(PairError):
        load_pair(f"{blob}+none")


@pytest.mark.parametrize("is_tied", [True, False])
def test_an_output_layer_that_is_stored_apart_though_tied_counts_once(
    is_tied: bool, tmp_path: Path
) -> None:
    model = tiny_model(tie_word_embeddings=False)
    table = model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight
    if is_tied:
        with torch.no_grad():
            head.copy_(table)
    path = tmp_path / "model.gguf"
    write_model(model, tiny_tokenizer(), path, "Q8_0")
    counted = sum(weight.numel() for weight in model.parameters())
    found = parameter_count(load_pair(f"{path}+none").target)
    assert found == counted - is_tied * head.numel()


def test_unpacking_and_arithmetic_have_their_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(tie_word_embeddings=False)
    path = tmp_path / "model.gguf"
    write_model(model, tiny_tokenizer(), path, "Q4_0")
    packed = load_pair(f"{path}+none", products="fp32").target
    plain = load_pair(f"{path}+none", dtype="bfloat16").target
    integer = load_pair(f"{path}+none").target
    table = model.get_input_embeddings().weight.numel()
    vectors = sum(weight.numel() for weight in model.parameters() if weight.ndim == 1)
    matrices = parameter_count(model) - table - vectors
    assert pass_weights(packed) == (vectors, matrices, matrices // 32 * 18, 0)
    assert pass_weights(plain) == (vectors + matrices, 0, 0, 0)
    assert pass_weights(integer) == (vectors, 0, 0, matrices)

    monkeypatch.setattr(cost, "LARGE", 0)  # as if it did not fit a processor cache
    costs = [pass_cost(target, "compiled") for target in (packed, plain)]
    assert costs[0] > pass_bytes(packed)
    extra = [extra_token_cost(target, "compiled") for target in (packed, plain)]
    assert extra[0] * costs[0] > extra[1] * costs[1] > 0  # per weight
    assert pass_cost(integer, "compiled") < costs[0]
    assert 0 < extra_token_cost(integer, "compiled") < extra[0]


ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "</s>")


@pytest.mark.parametrize("end", ENDS)
def test_every_control_piece_that_is_spelled_like_an_end_ends_a_text(
    end: str, tmp_path: Path
) -> None:
    """The file itself names only one of them."""
    tokenizer = tiny_tokenizer((*ENDS, "<|im_start|>"))
    model = tiny_model()
    prompt = tokenizer(PROMPT)["input_ids"]
    written = greedy_ids(model, prompt, COUNT, len(tokenizer))
    known = {tokenizer.convert_tokens_to_ids(piece) for piece in ENDS}
    place = next(i for i in range(2, COUNT) if written[i] not in {*written[:i], *known})
    # The model writes the end instead of that token.
    end_id = tokenizer.convert_tokens_to_ids(end)
    with torch.no_grad():
        rows = [written[place], end_id]
        model.lm_head.weight[rows] = model.lm_head.weight[rows[::-1]]
    path = tmp_path / "model.gguf"
    write_model(model, tokenizer, path, "F32", split="qwen2")
    pair = load_pair(f"{path}+none")
    assert pair.eos_ids == known
    assert emitted_ids(baseline(pair, prompt, Settings(max_new_tokens=COUNT))) == [
        *written[:place],
        end_id,
    ]


def test_a_template_whose_turns_end_makes_a_chat_model_whatever_end_the_file_names(
    tmp_path: Path,
) -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    fields = {"tokenizer.chat_template": template}
    file = tiny_file(tmp_path, "Q8_0", "qwen2", writing={"fields": fields})
    header = read_gguf(file.path)
    assert header.values["tokenizer.ggml.eos_token_id"] == 0, "it names <|endoftext|>"
    pair = load_pair(f"{file.path}+none")
    assert pair.is_chat
    assert pair.tokenizer.decode(pair.encode("hi")).startswith("<|im_start|>user\nhi<|im_end|>")


# Damaged files

LITTLE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
"""Sizes of a model whose file is quick to write, for tests that do not compare its outputs."""


def location(path: Path, name: str) -> tuple[GgufTensor, int]:
    """A tensor, and its start in the file."""
    header = read_gguf(path)
    return header.tensors[name], header.begin + header.tensors[name].start


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-77])


def overwritten(name: str, offset: int, value: bytes) -> Callable[[Path], None]:
    """A function that overwrites bytes of a tensor, starting at an offset."""

    def damage(path: Path) -> None:
        _, begin = location(path, name)
        data = bytearray(path.read_bytes())
        data[begin + offset : begin + offset + len(value)] = value
        path.write_bytes(data)

    return damage


def described_as(
    name: str,
    *,
    kind: int | None = None,
    shape: tuple[int, ...] | None = None,
    start: int | None = None,
) -> Callable[[Path], None]:
    """A function that changes the header's description of a tensor."""

    def damage(path: Path) -> None:
        tensor, _ = location(path, name)
        data = bytearray(path.read_bytes())
        dimensions = len(tensor.shape)
        place = data.index(struct.pack("<Q", len(name)) + name.encode()) + 8 + len(name)
        place += 4
        if shape is not None:
            data[place : place + 8 * dimensions] = struct.pack(f"<{dimensions}Q", *shape[::-1])
        place += 8 * dimensions
        if kind is not None:
            data[place : place + 4] = struct.pack("<I", kind)
        if start is not None:
            data[place + 4 : place + 12] = struct.pack("<Q", start)
        path.write_bytes(data)

    return damage


INFINITE = struct.pack("<e", float("inf"))
NAN = struct.pack("<e", float("nan"))
HUGE = 2**31 - 1

DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut in a block": cut,
    "a kind that nobody knows": described_as("blk.1.ffn_up.weight", kind=99),
    "another kind": described_as("blk.1.ffn_up.weight", kind=8),
    "a matrix with other rows": described_as("blk.1.ffn_up.weight", shape=(512, 256)),
    "a matrix of another width": described_as("blk.1.attn_output.weight", shape=(128, 512)),
    "a matrix without rows": described_as("blk.1.ffn_up.weight", shape=(0, 256)),
    "a norm of another length": described_as("blk.1.attn_norm.weight", shape=(128,)),
    "a tensor between two places": described_as("output_norm.weight", start=2),
    "a tensor far away": described_as("output_norm.weight", start=2**62),
    "a scale that is infinite": overwritten("blk.1.ffn_up.weight", 144, INFINITE),
    "a minimum that is no number": overwritten("blk.1.ffn_up.weight", 144 * 5 + 2, NAN),
    "a norm that is no number": overwritten("output_norm.weight", 8, struct.pack("<f", np.nan)),
}

ONLY_READ = {
    "another kind",
    "a scale that is infinite",
    "a minimum that is no number",
    "a norm that is no number",
}
"""Damage that headers do not show."""


def refused(path: Path) -> str:
    """Check that loading refuses a file within a time limit, and return the sentence."""
    begin = time.monotonic()
    with pytest.raises(PairError) as told:
        load_pair(f"{path}+none")
    assert time.monotonic() - begin < 30
    sentence = str(told.value)
    assert sentence.endswith(".") and str(path.parent) not in sentence and "\n" not in sentence
    return sentence


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    return tiny_file(Path(tmp_path_factory.mktemp("good")), "Q4_K")


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_gets_a_sentence(name: str, good: TinyFile, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(good.path.read_bytes())
    DAMAGES[name](path)
    refused(path)
    assert (examine(f"{path}+none").verdict == "stop") != (name in ONLY_READ)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "F32"])
def test_weights_that_are_no_numbers_are_refused_in_every_kind(kind: str, tmp_path: Path) -> None:
    path = tiny_file(tmp_path, kind, num_hidden_layers=1, intermediate_size=256).path
    offset = 208 if kind == "Q6_K" else 0
    value = struct.pack("<H", 0x7FC0) if kind == "BF16" else NAN
    overwritten("token_embd.weight", offset, value)(path)
    assert "not finite" in refused(path)


FIELDS: dict[str, dict[str, Any]] = {
    "no heads": {"llama.attention.head_count": 0},
    "a billion heads": {"llama.attention.head_count": HUGE},
    "heads that do not divide": {"llama.attention.head_count": 3},
    "more heads of keys": {"llama.attention.head_count_kv": 3},
    "a billion heads of keys": {"llama.attention.head_count_kv": HUGE},
    "no layers": {"llama.block_count": 0},
    "a layer less": {"llama.block_count": 1},
    "a layer more": {"llama.block_count": 3},
    "a billion layers": {"llama.block_count": HUGE},
    "layers in words": {"llama.block_count": "two"},
    "another width": {"llama.embedding_length": 512},
    "a width of a billion": {"llama.embedding_length": HUGE},
    "another inner width": {"llama.feed_forward_length": 512},
    "heads of a billion": {"llama.attention.key_length": HUGE},
    "an epsilon that is no number": {"llama.attention.layer_norm_rms_epsilon": float("nan")},
    "an infinite base": {"llama.rope.freq_base": float("inf")},
    "a base below 0": {"llama.rope.freq_base": -10_000.0},
    "pieces that are no texts": {"tokenizer.ggml.tokens": [1, 2, 3]},
    "merges of nothing": {"tokenizer.ggml.merges": ["nothing at all", "q"]},
}


def test_a_file_of_those_sizes_is_sound(tmp_path: Path) -> None:
    """The tests below therefore fail because of their changes alone."""
    path = tiny_file(tmp_path, "Q4_0", **LITTLE).path
    assert len(both_lanes(load_pair(f"{path}+none"), [1, 2, 3])[0]) == COUNT
    assert examine(f"{path}+none").verdict != "stop"


@pytest.mark.parametrize("name", FIELDS)
def test_a_header_that_does_not_fit_its_weights_gets_a_sentence(name: str, tmp_path: Path) -> None:
    path = tiny_file(tmp_path, "Q4_0", writing={"fields": FIELDS[name]}, **LITTLE).path
    refused(path)
    assert examine(f"{path}+none").verdict == "stop"


MISSING = (
    "model.embed_tokens.weight",
    "model.norm.weight",
    "model.layers.1.self_attn.k_proj.weight",
    "model.layers.0.input_layernorm.weight",
)


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_tensor_is_a_sentence(name: str, tmp_path: Path) -> None:
    path = tiny_file(tmp_path, "Q4_0", writing={"without": name}, **LITTLE).path
    refused(path)
    assert examine(f"{path}+none").verdict == "stop"


def test_factors_of_frequencies_that_do_not_fit_are_a_sentence(tmp_path: Path) -> None:
    factors = np.ones(48, np.float32)
    path = tiny_file(tmp_path, "Q4_0", writing={"rope_factors": factors}, **LITTLE).path
    refused(path)
    assert examine(f"{path}+none").verdict == "stop"


def test_a_table_without_rows_is_a_sentence(tmp_path: Path) -> None:
    path = tiny_file(tmp_path, "Q4_0", tie_word_embeddings=True).path
    described_as("token_embd.weight", shape=(0, 256))(path)
    refused(path)
