"""Models of other programs on this machine: listed, matched with drafts and loaded by the names
that those programs give them."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_models import described, write_described
from gguf_writer import add_field, finish
from model_stores import (
    keep_in_hub,
    keep_in_llama_cpp,
    keep_in_lm_studio,
    keep_in_ollama,
    use_stores,
)
from places import ROOT
from sentences import Sentences
from tiny_files import PADDED, SPECIAL, tiny_file, tiny_model, tiny_tokenizer

from specviz import load_pair, race
from specviz.__main__ import main
from specviz.base.errors import PairError
from specviz.files import hub
from specviz.files.gguf.header import read_gguf
from specviz.files.gguf.outline import LongTexts, read_outline
from specviz.files.local_models import list_models, stored_path
from specviz.pairs import matches
from specviz.pairs.matches import Match, can_draft, find_local_pairs
from specviz.runs.trace import event_dict

PLENTY = 10**12  # bytes
LARGE = "qwen2"


class Files:
    """A large and a small model with one tokenizer in each format, and a small one with another
    tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.large = tiny_file(folder, "Q4_K", LARGE, name="large", num_hidden_layers=9).path
        self.small = tiny_file(folder, "Q4_K", LARGE, name="small", num_hidden_layers=1).path
        other = tiny_tokenizer((*SPECIAL, "<|more|>"), 310)
        foreign = tiny_file(folder, "Q8_0", LARGE, name="foreign", tokenizer=other)
        self.foreign = foreign.path
        self.large_folder = saved(folder / "large-folder", 9)
        self.small_folder = saved(folder / "small-folder", 1)


def saved(folder: Path, layers: int, tokenizer: Any = None, width: int = PADDED) -> Path:
    """Save a folder of safetensors in the hub's format."""
    tiny_model(LARGE, num_hidden_layers=layers, vocab_size=width).save_pretrained(folder)
    (tokenizer or tiny_tokenizer()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("files"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(matches, "_known_facts", {})
    return use_stores(tmp_path, monkeypatch)


@pytest.fixture
def stores(home: Path, files: Files) -> Path:
    """A home folder with a large and a small model in each store."""
    keep_in_ollama(home, files.large, "tiny:7b")
    keep_in_ollama(home, files.small, "tiny:0.5b")
    keep_in_lm_studio(home, files.large, "someone/Tiny-GGUF/large-Q4_K.gguf")
    keep_in_lm_studio(home, files.small, "someone/Tiny-GGUF/small-Q4_K.gguf")
    keep_in_llama_cpp(home, files.large, "org/Large-GGUF", "Q4_K", "large.gguf")
    keep_in_llama_cpp(home, files.small, "org/Small-GGUF", "latest", "small.gguf")
    keep_in_hub(home, files.large_folder.iterdir(), "org/large")
    keep_in_hub(home, files.small_folder.iterdir(), "org/small")
    return home


def pairs_here() -> tuple[Match, ...]:
    return find_local_pairs(PLENTY, cpu=True).matches


def names_here() -> set[str]:
    return {model.name for model in list_models().models}


def test_models_have_the_names_that_their_owners_know(stores: Path) -> None:
    assert names_here() == {
        "ollama:tiny:7b",
        "ollama:tiny:0.5b",
        "lmstudio:someone/Tiny-GGUF/large-Q4_K.gguf",
        "lmstudio:someone/Tiny-GGUF/small-Q4_K.gguf",
        "llama.cpp:org/Large-GGUF:Q4_K",
        "llama.cpp:org/Small-GGUF",
        "hub:org/large",
        "hub:org/small",
    }


def test_ollama_names_models_of_others_with_their_owner_and_host(home: Path, files: Files) -> None:
    keep_in_ollama(home, files.large, "somebody/tiny:7b")
    keep_in_ollama(home, files.small, "hf.co/org/Tiny-GGUF:Q4_K_M")
    assert names_here() == {"ollama:somebody/tiny:7b", "ollama:hf.co/org/Tiny-GGUF:Q4_K_M"}


def test_of_two_names_of_a_file_the_one_that_says_more_is_listed(home: Path, files: Files) -> None:
    keep_in_ollama(home, files.large, "tiny:latest")
    keep_in_ollama(home, files.large, "tiny:7b")
    assert names_here() == {"ollama:tiny:7b"}
    assert stored_path("ollama:tiny:latest") == stored_path("ollama:tiny:7b")


def test_a_file_without_a_manifest_and_one_of_the_hub_have_their_files_names(
    home: Path, files: Files
) -> None:
    path = keep_in_llama_cpp(home, files.large, "org/Large-GGUF", "Q4_K", "large.gguf")
    (path.parent / "manifest=org=Large-GGUF=Q4_K.json").write_text("no JSON")
    keep_in_hub(home, [files.small], "org/Small-GGUF")
    assert names_here() == {
        "llama.cpp:org_Large-GGUF_large.gguf",
        "hub:org/Small-GGUF/small.gguf",
    }


@pytest.mark.parametrize(
    ("target", "draft", "called"),
    [
        ("ollama:tiny:7b", "ollama:tiny:0.5b", "tiny:7b"),
        (
            "lmstudio:someone/Tiny-GGUF/large-Q4_K.gguf",
            "llama.cpp:org/Small-GGUF",
            "large-Q4_K",
        ),
        ("llama.cpp:org/Large-GGUF:Q4_K", "hub:org/small", "org_Large-GGUF_large"),
        ("hub:org/large", "ollama:tiny:0.5b", "org/large"),
    ],
)
def test_a_listed_pair_loads_and_races_and_its_run_tells_no_path(
    stores: Path, monkeypatch: pytest.MonkeyPatch, target: str, draft: str, called: str
) -> None:
    def asked() -> bool:
        raise AssertionError("the hub was asked for what lies here")

    name = f"{target}+{draft}"
    monkeypatch.setattr(hub, "hub_is_reachable", asked)
    assert name in {match.name for match in pairs_here()}
    pair = load_pair(name)
    assert pair.name == name
    assert pair.shared is None, "it was listed as a pair of one tokenizer"
    events = list(race(pair, "hello", pair.settings(max_new_tokens=4, temperature=0)))
    header = event_dict(events[0])
    assert header["target"]["name"] == called
    assert str(stores) not in json.dumps([event_dict(event) for event in events], default=str)


def test_a_name_that_is_not_here_is_a_sentence(stores: Path, sentences: Sentences) -> None:
    with sentences.raises(PairError):
        load_pair("ollama:absent:1b+none")
    with sentences.raises(PairError):
        load_pair("ollama:../../etc/passwd+none")


def test_the_best_draft_of_a_target_comes_first(home: Path, files: Files, tmp_path: Path) -> None:
    middle = tiny_file(tmp_path, "Q4_K", LARGE, name="middle", num_hidden_layers=4).path
    keep_in_ollama(home, files.large, "tiny:7b")
    keep_in_ollama(home, middle, "tiny:3b")
    keep_in_ollama(home, files.small, "tiny:0.5b")
    keep_in_ollama(home, files.foreign, "another:0.5b")
    assert [match.name for match in pairs_here()] == [
        "ollama:tiny:7b+ollama:tiny:0.5b",
        "ollama:tiny:7b+ollama:tiny:3b",
        "ollama:tiny:3b+ollama:tiny:0.5b",
    ]
    tight = find_local_pairs(pairs_here()[2].bytes, cpu=True)
    assert [match.fits for match in tight.matches] == [True, False, False]
    assert tight.matches[0].target.name == "ollama:tiny:3b", "what fits comes first"


def test_a_draft_that_is_tuned_for_chat_as_its_target_comes_before_a_larger_one(
    stores: Path,
) -> None:
    first = pairs_here()[0]
    other = replace(first.draft, is_chat=True, parameters=first.target.parameters // 10)
    assert replace(first, draft=other).penalty > first.penalty
    tuned = replace(first, target=replace(first.target, is_chat=True), draft=other)
    assert tuned.penalty < first.penalty


def test_a_draft_must_have_logits_for_all_tokens_of_the_target(stores: Path) -> None:
    match = pairs_here()[0]
    vocabulary = match.target.vocabulary
    assert vocabulary is not None and can_draft(match.draft, match.target)
    assert not can_draft(replace(match.draft, width=vocabulary.used - 1), match.target)


@pytest.mark.parametrize("more", [0, 1])
def test_matches_are_those_that_the_loaded_pair_has(home: Path, files: Files, more: int) -> None:
    """A draft's vocabulary may be longer than the target's, but not shorter; padding rows of a
    table do not count."""
    special = (*SPECIAL, *(["<|think|>"] * more))
    tokenizer = tiny_tokenizer(special)
    keep_in_ollama(home, files.large, "plain:7b")
    folder = saved(home / "wider", 1, tokenizer, PADDED + 64)
    keep_in_hub(home, folder.iterdir(), "org/wider")
    larger = saved(home / "larger", 9, tokenizer, PADDED + 64)
    keep_in_hub(home, larger.iterdir(), "org/larger")
    keep_in_ollama(home, files.small, "plain:0.5b")
    listed = {match.name for match in pairs_here()}
    for name in ("ollama:plain:7b+hub:org/wider", "hub:org/larger+ollama:plain:0.5b"):
        assert (name in listed) == (load_pair(name).shared is None), name
    assert ("hub:org/larger+ollama:plain:0.5b" in listed) == (not more)


def test_nothing_is_read_behind_a_link_that_leads_out(
    home: Path, files: Files, sentences: Sentences
) -> None:
    outside = home / "elsewhere"
    outside.mkdir()
    shutil.copy(files.large, outside / "large.gguf")
    studio = keep_in_lm_studio(home, files.small, "me/here/small.gguf").parent
    (studio / "linked.gguf").symlink_to(outside / "large.gguf")
    (studio.parent / "folder").symlink_to(outside)
    blob = keep_in_ollama(home, files.large, "tiny:7b")
    blob.unlink()
    blob.symlink_to(outside / "large.gguf")
    snapshot = keep_in_hub(home, files.small_folder.iterdir(), "org/small")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(files.small_folder / "config.json")
    cache = keep_in_llama_cpp(home, files.small, "org/Small", "latest", "small.gguf")
    cache.unlink()
    cache.symlink_to("../../../../etc/passwd")
    assert names_here() == {"lmstudio:me/here/small.gguf"}
    sentences(list_models().sentence)
    assert stored_path("lmstudio:me/here/linked.gguf") is None
    assert stored_path("hub:org/small") is None


def test_a_store_may_itself_lie_behind_a_link(home: Path, files: Files) -> None:
    keep_in_lm_studio(home, files.small, "me/here/small.gguf")
    disk = home / "disk"
    shutil.move(home / ".lmstudio", disk)
    (home / ".lmstudio").symlink_to(disk)
    assert names_here() == {"lmstudio:me/here/small.gguf"}


def hostile(home: Path, files: Files) -> Iterator[str]:
    """Write damaged and hostile files; yields the description of each."""
    studio = home / ".lmstudio/models/me/bad"
    studio.mkdir(parents=True)
    data = files.small.read_bytes()

    def write(name: str, content: bytes) -> None:
        (studio / f"{name}.gguf").write_bytes(content)

    write("cut", data[: len(data) // 2])
    write("head", data[:200])
    write("empty", b"")
    write("other", b"GGUF" + bytes(range(256)) * 8)
    yield from ("cut", "head", "empty", "other")
    counts = b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63)
    write("counts", counts)
    long_text = struct.pack("<Q", 20) + b"tokenizer.ggml.token" + struct.pack("<IIQ", 9, 8, 20_000)
    write("lengths", counts + long_text + struct.pack("<Q", 2**64 - 1) * 4)
    yield from ("counts", "lengths")
    os.mkfifo(studio / "pipe.gguf")
    (studio / "folder.gguf").mkdir()
    yield "pipe"
    for name in ("list", "nested", "words", "digest", "size"):
        keep_in_ollama(home, files.small, f"{name}:1b")
        yield name
    manifests = home / ".ollama/models/manifests/registry.ollama.ai/library"
    (manifests / "list/1b").write_text("[1]")
    (manifests / "nested/1b").write_text("[" * 100_000)
    (manifests / "words/1b").write_bytes(b"\xff\xfe")
    keep_in_ollama(home, files.small, "digest:1b", digest="sha256:../../../secret")
    keep_in_ollama(home, files.small, "size:1b", size=7)
    for name in ("weights", "config", "vocab"):
        keep_in_hub(home, files.small_folder.iterdir(), f"org/{name}")
        yield name
    cut(home / "hub/models--org--weights", "model.safetensors")
    cut(home / "hub/models--org--config", "config.json")
    cut(home / "hub/models--org--vocab", "tokenizer.json")


def cut(model: Path, name: str) -> None:
    """Keep only the first half of a file in the hub's cache."""
    (path,) = model.glob(f"snapshots/*/{name}")
    path = path.resolve()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_damaged_and_hostile_files_are_left_out_counted_and_said(
    home: Path, files: Files, sentences: Sentences
) -> None:
    damaged = len(list(hostile(home, files)))
    keep_in_ollama(home, files.large, "tiny:7b")
    keep_in_lm_studio(home, files.small, "me/good/bell\a.gguf")
    keep_in_lm_studio(home, files.small, "me/good/small.gguf")
    found = find_local_pairs(PLENTY, cpu=True)
    assert [match.name for match in found.matches] == ["ollama:tiny:7b+lmstudio:me/good/small.gguf"]
    assert f" {damaged} " in found.skipped
    sentences(found.skipped)


def test_what_is_no_language_model_is_left_out(
    home: Path, files: Files, tmp_path: Path, sentences: Sentences
) -> None:
    keep_in_ollama(home, files.small, "adapted:1b", mediaType="application/vnd.ollama.image.tensor")
    keep_in_lm_studio(home, files.small, "me/parts/small-00001-of-00002.gguf")
    keep_in_lm_studio(home, files.small, "me/parts/mmproj-small.gguf")
    seeing = write_described(
        tmp_path / "seeing.gguf",
        described("gemma3"),
        tensors={"mm.input_projection.weight": np.zeros((64, 64))},
    )
    keep_in_lm_studio(home, seeing, "me/parts/seeing.gguf")
    encoder = saved(home / "encoder", 1)
    values = json.loads((encoder / "config.json").read_text())
    (encoder / "config.json").write_text(json.dumps(values | {"architectures": ["BertModel"]}))
    keep_in_hub(home, encoder.iterdir(), "org/encoder")
    found = find_local_pairs(PLENTY, cpu=True)
    assert not found.models
    sentences(found.skipped)


def test_the_list_prints_names_that_can_be_pasted(
    stores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pairs"]) == 0
    printed = capsys.readouterr().out
    names = [line.split(maxsplit=1)[1] for line in printed.splitlines() if " --pair " in line]
    best = find_local_pairs(PLENTY, cpu=True).best
    assert sorted(names) == sorted(match.name for match in best)
    assert "4 more with other drafts" in printed
    assert main(["doctor", names[0]]) == 0


def long_vocabulary(path: Path, layers: int) -> Path:
    """Write a file whose vocabulary has more than ten thousand pieces, like published ones."""
    model = described("qwen2", layers=layers)
    pieces = [*(f"piece0-{i}" for i in range(12_000)), "[PAD12000]"]
    random = np.random.default_rng(0)
    table = {"token_embd.weight": random.normal(0, 0.1, (len(pieces), 64)), "output.weight": None}
    fields = {
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": [1] * 12_000 + [5],
        "tokenizer.ggml.merges": [f"a0 b{i}" for i in range(12_000)],
    }
    writer = gguf.GGUFWriter(path, "qwen2")
    for key, value in model.keys.items():
        add_field(writer, f"qwen2.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    for key, values in fields.items():
        writer.add_array(key, values)
    for name, weights in {**model.tensors, **table}.items():
        if weights is not None:
            writer.add_tensor(name, np.ascontiguousarray(weights, np.float32))
    finish(writer)
    return path


def of_family(content: bytes, family: int) -> bytes:
    """The content of such a file with pieces and merges of one family, of the same length."""
    assert family < 10
    content = content.replace(b"piece0-", f"piece{family}-".encode())
    return content.replace(b"a0 b", f"a{family} b".encode())


def test_an_outline_says_what_the_whole_header_says(tmp_path: Path) -> None:
    path = long_vocabulary(tmp_path / "long.gguf", 1)
    outline = read_outline(path)
    header = read_gguf(path)
    assert outline.tensors == header.tensors and outline.begin == header.begin
    for key, value in header.values.items():
        short = outline.values[key]
        if isinstance(short, LongTexts):
            assert [short.text(i) for i in range(len(short))] == value
        else:
            assert list(short) == value if isinstance(value, list) else short == value
    path.write_bytes(path.read_bytes()[: outline.begin // 2])
    with pytest.raises(PairError, match="cut off"):
        read_outline(path)


HUNDRED = """
import sys
from time import process_time
from specviz.pairs.matches import find_local_pairs
begin = process_time()
found = find_local_pairs(10**12, cpu=True)
print(process_time() - begin, len(found.models), len(found.matches), "torch" in sys.modules)
"""


def test_a_hundred_models_take_less_than_two_seconds_and_no_torch(home: Path) -> None:
    for layers in (1, 40):
        path = long_vocabulary(home / f"{layers}.gguf", layers)
        content = path.read_bytes()
        for family in range(5):
            path.write_bytes(of_family(content, family))
            for copy in range(10):
                keep_in_lm_studio(home, path, f"family{family}/{layers}/{copy}.gguf")
    environment = {**os.environ, "HF_HOME": str(home), "PYTHONPATH": str(ROOT)}
    begin = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", HUNDRED], env=environment, capture_output=True, text=True, check=True
    )
    seconds, models, pairs, torch = ran.stdout.split()
    assert (models, pairs, torch) == ("100", "500", "False")
    assert float(seconds) < 2, time.monotonic() - begin
