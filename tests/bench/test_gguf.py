"""A GGUF file holds the same function and the same tokenizer as the model it was written from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from toy_models import byte_level, llama, metaspace, mini

from specviz.bench.gguf import write_gguf
from specviz.bench.gguf_tokenizer import matching_pre_tokenizer
from specviz.errors import PairError

gguf = pytest.importorskip("gguf", reason="it is only needed for comparisons with llama.cpp")

SPECIAL = "<|endoftext|>"
TEXTS = ["the cat sat on the mat", "don't stop"]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def written(model: Any, tokenizer: Any, path: Path, kind: str = "fp32") -> Any:
    write_gguf(model, tokenizer, path, kind, TEXTS)
    return gguf.GGUFReader(path)


def field(reader: Any, name: str) -> Any:
    return reader.get_field(name).contents()


def tensors(reader: Any) -> dict[str, NDArray[np.float32]]:
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}


def logits_of(reader: Any, ids: list[int]) -> NDArray[np.float32]:
    """The logits after each of `ids`, computed from the file alone, as llama.cpp reads it."""
    w, x = tensors(reader), tensors(reader)["token_embd.weight"][ids]
    heads, kv_heads = (field(reader, f"llama.attention.head_count{n}") for n in ("", "_kv"))
    size = field(reader, "llama.rope.dimension_count")
    powers = np.arange(size // 2) / (size // 2)
    speeds = field(reader, "llama.rope.freq_base") ** -powers / w.get("rope_freqs.weight", 1.0)
    turns = np.exp(1j * np.outer(np.arange(len(ids)), speeds))[:, None]
    mask = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)

    def norm(values: Any, weight: Any) -> Any:
        eps = field(reader, "llama.attention.layer_norm_rms_epsilon")
        return values / np.sqrt((values**2).mean(-1, keepdims=True) + eps) * weight

    def rotated(values: Any) -> Any:  # neighbours are the two parts of a complex number
        spun = (values[..., 0::2] + 1j * values[..., 1::2]) * turns
        return np.stack([spun.real, spun.imag], -1).reshape(values.shape)

    for i in range(field(reader, "llama.block_count")):
        block = {n.split(".", 2)[2]: v for n, v in w.items() if n.startswith(f"blk.{i}.")}
        h = norm(x, block["attn_norm.weight"])
        q, k, v = ((h @ block[f"attn_{n}.weight"].T).reshape(len(ids), -1, size) for n in "qkv")
        k, v = (np.repeat(one, heads // kv_heads, 1) for one in (rotated(k), v))
        scores = np.einsum("ahd,bhd->hab", rotated(q), k) / np.sqrt(size) + mask
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = np.einsum("hab,bhd->ahd", shares, v).reshape(len(ids), -1)
        x = x + mixed @ block["attn_output.weight"].T
        h = norm(x, block["ffn_norm.weight"])
        gate, up = (h @ block[f"ffn_{n}.weight"].T for n in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ block["ffn_down.weight"].T
    head = w.get("output.weight", w["token_embd.weight"])
    return norm(x, w["output_norm.weight"]) @ head.T


@pytest.mark.parametrize("rope", [{"rope_type": "default", "rope_theta": 10000.0}, LLAMA3])
@pytest.mark.parametrize("tied", [True, False])
def test_a_file_is_the_same_function(rope: dict[str, Any], tied: bool, tmp_path: Path) -> None:
    model = llama(
        300,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.1,
        rope_parameters=rope,
        tie_word_embeddings=tied,
    )
    reader = written(model, byte_level(), tmp_path / "model.gguf")
    ids = [5, 17, 260, 3, 3, 299, 40]
    with torch.inference_mode():
        wanted = model(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(logits_of(reader, ids) - wanted).max() < 1e-4 * np.abs(wanted).max()
    assert ("output.weight" in tensors(reader)) != tied


def test_bf16_weights_are_written_as_they_are(tmp_path: Path) -> None:
    model = llama(300).bfloat16()
    held = tensors(written(model, byte_level(), tmp_path / "model.gguf", "bf16"))
    wanted = model.model.layers[0].mlp.down_proj.weight.detach().float().numpy()
    assert np.array_equal(held["blk.0.ffn_down.weight"], wanted)


def test_a_file_holds_the_tokenizer_and_its_padding(tmp_path: Path) -> None:
    tokenizer = byte_level(300, special=[SPECIAL])
    tokenizer.eos_token = SPECIAL
    reader = written(llama(304), tokenizer, tmp_path / "model.gguf")
    pieces, kinds = (field(reader, f"tokenizer.ggml.{n}") for n in ("tokens", "token_type"))
    assert {piece: i for i, piece in enumerate(pieces[:300])} == tokenizer.get_vocab()
    assert pieces[300:] == ["[PAD300]", "[PAD301]", "[PAD302]", "[PAD303]"]
    assert kinds == [3] + 299 * [1] + 4 * [5]  # control, normal, unused
    assert len(field(reader, "tokenizer.ggml.merges")) == 300 - 256 - 1
    assert field(reader, "tokenizer.ggml.eos_token_id") == 0
    assert field(reader, "tokenizer.ggml.add_bos_token") is False


def test_texts_decide_how_llama_cpp_splits() -> None:
    """The built-in tokenizer has digits one by one; only without them is another way the same."""
    tokenizer = byte_level(corpus=["in 1999 and 1999 and 1999"])
    assert matching_pre_tokenizer(tokenizer, ["in and"]) == "smollm"
    assert matching_pre_tokenizer(tokenizer, ["in 1999"]) == "gpt-2"


def test_what_a_file_cannot_hold_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with pytest.raises(PairError, match="choose a pair of the Llama architecture"):
        write_gguf(mini(300), byte_level(), path, "fp32", TEXTS)
    with pytest.raises(PairError, match="choose a pair with byte-level BPE"):
        write_gguf(llama(320), metaspace(), path, "fp32", TEXTS)
    with pytest.raises(PairError, match="choose others with --prompts"):
        tokenizer = byte_level(corpus=["a  b   c    d\n\n\ne"])
        tokenizer.backend_tokenizer.pre_tokenizer = None
        write_gguf(llama(300), tokenizer, path, "fp32", ["the cat  sat\n\n\non"])
