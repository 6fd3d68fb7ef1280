"""The doctor accepts exactly the models that the loader can load."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import transformers
from model_families import build, pickle_weights, saved, saved_llama
from safetensors.torch import load_file, save_file
from toy_models import llama, words

from specviz import Settings, SpecvizError, baseline, load_pair, speculate
from specviz.pairs.doctor import examine


@functools.cache
def sound() -> dict[str, bytes]:
    """The files of a small Llama."""
    with TemporaryDirectory() as folder:
        return {path.name: path.read_bytes() for path in saved_llama(Path(folder)).iterdir()}


def damaged(change: Callable[[Path], None]) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        folder = root / "bad"
        folder.mkdir()
        for name, content in sound().items():
            (folder / name).write_bytes(content)
        change(folder)
        return folder

    return make


def with_config(**values: Any) -> Callable[[Path], Path]:
    def change(path: Path) -> None:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, **values}))

    return damaged(change)


def cut(path: Path) -> None:
    content = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(content[:-100])


def without(name: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        del tensors[name]
        save_file(tensors, path / "model.safetensors", {"format": "pt"})

    return change


def own_code(path: Path) -> None:
    config = json.loads((path / "config.json").read_text())
    del config["model_type"]
    config["auto_map"] = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    (path / "config.json").write_text(json.dumps(config))
    (path / "own.py").write_text("raise SystemExit('this must never run')")


def lost_shard(path: Path) -> None:
    (path / "model.safetensors").unlink()
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def sharded(root: Path) -> Path:
    llama(8).save_pretrained(root / "bad", max_shard_size="2KB")
    words(8).save_pretrained(root / "bad")
    assert (root / "bad" / "model.safetensors.index.json").is_file()
    return root / "bad"


def t5(root: Path) -> Path:
    sizes = dict(vocab_size=8, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    return saved(root / "bad", model, words(8))


def bert(root: Path) -> Path:
    """An encoder, which transformers nevertheless loads as a causal language model."""
    sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    model = transformers.BertLMHeadModel(transformers.BertConfig(vocab_size=8, **sizes))
    return saved(root / "bad", model, words(8))


def of_kind(kind: str) -> Callable[[Path], Path]:
    return lambda root: saved(root / "bad", build(kind, vocab_size=8), words(8))


def erase(name: str) -> Callable[[Path], Path]:
    return damaged(lambda path: (path / name).unlink())


def write(name: str, content: bytes) -> Callable[[Path], Path]:
    return damaged(lambda path: (path / name).write_bytes(content) and None)


FILES = ("config.json", "model.safetensors", "tokenizer.json")
CONTENTS = (b"", b"{", b"\x00\x01", b"[]", b"null", b"{}")
WRITTEN = {
    f"{name} is {content!r}": (name, content)
    for name in (*FILES, "generation_config.json")
    for content in CONTENTS
}
"""Contents that replace a file."""

DEEP = b"[" * 5000 + b"]" * 5000
"""JSON nested too deeply for Python's parsers."""


def deep_field(file: str) -> Callable[[Path], None]:
    """Add a field that is nested thousands of levels deep."""

    def change(path: Path) -> None:
        content = (path / file).read_bytes() if (path / file).exists() else b"{}"
        rest = content.strip().removeprefix(b"{")
        comma = b"" if rest.strip() == b"}" else b","
        (path / file).write_bytes(b'{"deep":' + DEEP + comma + rest)

    return change


def deep_header(path: Path) -> None:
    content = (path / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = b'{"__metadata__":' + DEEP + b"," + content[9 : 8 + size]
    whole = len(header).to_bytes(8, "little") + header + content[8 + size :]
    (path / "model.safetensors").write_bytes(whole)


def ends_with(named: Any) -> Callable[[Path], Path]:
    """Make the generation config name this end of a text."""
    return write("generation_config.json", json.dumps({"eos_token_id": named}).encode())


# name: a function that makes the folder of one of the two models
FOLDERS: dict[str, Callable[[Path], Path]] = {
    "sound": lambda root: saved_llama(root / "bad", seed=1),
    "padded": lambda root: saved_llama(root / "bad", vocab=12),
    "sharded": sharded,
    "in half precision": lambda root: saved(root / "bad", llama(8).half(), words(8)),
    "tied": lambda root: saved_llama(root / "bad", tie_word_embeddings=True),
    "gpt 2": of_kind("gpt 2"),
    "mixtral": of_kind("mixtral"),
    "gemma 3 with vision": of_kind("gemma 3, sliding"),
    "dynamic rope": of_kind("llama, dynamic rope"),
    "running states": of_kind("falcon-h1"),
    "other tokenizer": lambda root: saved_llama(root / "bad", tokenizer=words(7)),
    "too few logits": lambda root: saved_llama(root / "bad", vocab=6),
    "past elsewhere": of_kind("rwkv"),
    "encoder and decoder": t5,
    "encoder": bert,
    "pickled": damaged(pickle_weights),
    "own code": damaged(own_code),
    "no such type": with_config(model_type="nobody-knows"),
    "other shapes": with_config(intermediate_size=64),
    "smaller shapes": with_config(intermediate_size=16),
    "more layers": with_config(num_hidden_layers=2),
    "lacks the head": damaged(without("lm_head.weight")),
    "lacks a norm": damaged(without("model.norm.weight")),
    "cut short": damaged(cut),
    "lost shard": damaged(lost_shard),
    "missing folder": lambda root: root / "bad",
    "empty folder": lambda root: (root / "bad").mkdir() or root / "bad",
    **{f"lacks {name}": erase(name) for name in FILES},
    "nested config": damaged(deep_field("config.json")),
    "nested tokenizer": damaged(deep_field("tokenizer.json")),
    "nested settings": damaged(deep_field("tokenizer_config.json")),
    "nested generation config": damaged(deep_field("generation_config.json")),
    "nested header": damaged(deep_header),
    "nested index": write("model.safetensors.index.json", DEEP),
    "an end in a list in a list": ends_with([[1]]),
    "an end in words": ends_with("</s>"),
    "an end in an object": ends_with({"id": 1}),
    **{kind: write(*written) for kind, written in WRITTEN.items()},
}  # fmt: skip
LOADABLE = set(list(FOLDERS)[:10])
REFUSED = {"past elsewhere", "encoder and decoder", "encoder", "pickled", "own code"}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_llama(tmp_path_factory.mktemp("other") / "other")


def roles_of(kind: str) -> tuple[str, ...]:
    """The roles of a folder in a pair. Each file and each content is tested in both roles, but not
    each combination, because files are read without regard to their role."""
    if kind not in WRITTEN:
        return "target", "draft"
    file, content = divmod(list(WRITTEN).index(kind), len(CONTENTS))
    return ("target", "draft")[(file + content) % 2 :][:1]


def races(name: str) -> bool:
    """Check whether the pair loads and runs."""
    try:
        pair = load_pair(name)
        for lane in (speculate, baseline):
            list(lane(pair, "w1 w2", Settings(max_new_tokens=6, gamma=2)))
    except SpecvizError:
        return False
    return True


@pytest.mark.parametrize("kind", FOLDERS)
def test_the_doctor_and_the_loader_agree(tmp_path: Path, other: Path, kind: str):
    bad = FOLDERS[kind](tmp_path)
    for role in roles_of(kind):
        names = [bad, other] if role == "target" else [other, bad]
        report = examine(*map(str, names))
        runs = races("+".join(map(str, names)))
        assert (report.verdict != "stop") == runs, report.findings
        stops = [f.sentence for f in report.findings if f.level == "stop"]
        assert all(str(tmp_path) not in sentence for sentence in stops)
        if kind in LOADABLE:
            assert runs
        assert not (runs and kind in REFUSED)
