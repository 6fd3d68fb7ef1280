"""The doctor: right before any weights are there, and of one mind with the loader."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from fake_hub import fake_hub
from model_families import FAMILIES, RECURRENT, build, saved, saved_family, small_tokenizer
from safetensors.torch import load_file, save_file
from toy_models import llama, words

from specviz import Settings, SpecvizError, baseline, load_pair, speculate
from specviz.__main__ import main
from specviz.models.doctor import Report, examine
from specviz.models.load import ASSETS
from specviz.models.sizes import shown_bytes

ROOT = ASSETS.parent


def folder(
    path: Path, *, seed: int = 0, tokenizer: Any = None, vocab: int = 8, **config: Any
) -> Path:
    """A small Llama with a tokenizer of eight words."""
    return saved(path, llama(vocab, seed=seed, **config), tokenizer or words(8))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and a draft a tenth of its size."""
    root = tmp_path_factory.mktemp("good")
    target = folder(root / "target", hidden_size=48, intermediate_size=96, num_hidden_layers=2)
    return target, folder(root / "draft", seed=1)


def said(report: Report, topic: str, level: str) -> str:
    """The only sentence of that topic and level."""
    (finding,) = [f for f in report.findings if (f.topic, f.level) == (topic, level)]
    return finding.sentence


def test_a_good_pair_is_called_good(good: tuple[Path, Path]):
    report = examine(*map(str, good))
    assert report.verdict == "good" and report.summary == "target with draft ready to race."
    assert "one tokenizer of 8 pieces" in said(report, "tokenizer", "good")
    assert "times smaller" in said(report, "size", "good")
    assert {f.topic for f in report.findings} >= {"rollback", "context", "chat", "memory"}
    assert all(f.sentence.endswith(".") for f in report.findings)
    assert not any(str(good[0].parent) in f.sentence for f in report.findings)


def test_memory_counts_weights_and_caches(good: tuple[Path, Path]):
    report = examine(*map(str, good), tokens=100)
    numbers = {
        name: sum(t.numel() for t in load_file(path / "model.safetensors").values())
        for name, path in zip(("target", "draft"), good, strict=True)
    }
    # Two layers of 24 numbers for key and value in each lane; one layer of 8 in the draft.
    cached = 100 * (2 * 2 * 2 * 24 + 2 * 8)
    assert report.memory["float32"] == 4 * (sum(numbers.values()) + cached)
    assert report.memory["bfloat16"] == 2 * (sum(numbers.values()) + cached)
    assert report.memory["4bit"] < report.memory["8bit"] < report.memory["bfloat16"]


def test_caches_take_no_more_than_windows_and_contexts_allow(tmp_path: Path):
    target, _ = saved_family(tmp_path, "mistral, sliding", noise=0.1)
    memory = [examine(str(target), tokens=tokens).memory["float32"] for tokens in (8, 500)]
    assert memory[0] == memory[1]  # its window is of 8 tokens
    target = folder(tmp_path / "short", max_position_embeddings=16)
    memory = [examine(str(target), tokens=tokens).memory["float32"] for tokens in (8, 16, 500)]
    assert memory[0] < memory[1] == memory[2]


@pytest.mark.parametrize(("target", "draft"), [(12, 8), (8, 12), (16, 10)])
def test_vocabularies_padded_to_different_sizes_are_fine(tmp_path: Path, target: int, draft: int):
    names = [str(folder(tmp_path / str(n), vocab=n)) for n in (target, draft)]
    report = examine(*names)
    sentence = said(report, "vocabulary", "good")
    assert f"{target} logits and the draft {draft}: ids from 8 on are never" in sentence
    assert report.verdict != "stop"


def test_the_first_piece_that_differs_is_named(tmp_path: Path):
    from test_pair import tokenizer_of

    swapped = words(8).get_vocab()
    swapped["w5"], swapped["w6"] = 6, 5
    names = [folder(tmp_path / "one"), folder(tmp_path / "two", tokenizer=tokenizer_of(swapped))]
    report = examine(*map(str, names))
    assert report.verdict == "stop"
    assert "id 5 is 'w5' for the target and 'w6'" in said(report, "tokenizer", "stop")


def test_another_draft_is_named_where_one_is_known(tmp_path: Path):
    target = folder(tmp_path / "Qwen2.5-7B-Instruct")
    report = examine(str(target), str(folder(tmp_path / "two", tokenizer=words(7))))
    assert report.suggested == "Qwen/Qwen2.5-0.5B-Instruct"
    assert "Qwen/Qwen2.5-0.5B-Instruct" in said(report, "tokenizer", "stop")
    assert "Qwen/Qwen2.5-0.5B-Instruct" in said(examine(str(target)), "draft", "good")


def test_ends_that_differ_are_mentioned(tmp_path: Path):
    names = [folder(tmp_path / "one", eos_token_id=3), folder(tmp_path / "two", eos_token_id=4)]
    sentence = said(examine(*map(str, names)), "special tokens", "warning")
    assert "ends a text with 'w3', the draft with 'w4'" in sentence


@pytest.mark.parametrize("free", [0, 20_000])
def test_a_pair_that_is_too_large_is_stopped_with_numbers(good: tuple[Path, Path], free: int):
    report = examine(*map(str, good), free=free)
    sentence = said(report, "memory", "stop")
    assert report.verdict == "stop" and report.free == free
    assert "as float32" in sentence and f"{shown_bytes(free)} free" in sentence


def test_what_would_fit_is_said(good: tuple[Path, Path]):
    memory = examine(*map(str, good)).memory
    between = (memory["float32"] + memory["bfloat16"]) // 2
    sentence = said(examine(*map(str, good), free=between, device="cpu"), "memory", "stop")
    assert "choose dtype bfloat16, which need" in sentence
    assert examine(*map(str, good), free=between, dtype="bfloat16").verdict != "stop"
    tight = examine(*map(str, good), free=memory["float32"] + 1)
    assert "close other programs" in said(tight, "memory", "warning")


def test_a_draft_with_a_shorter_context_is_mentioned(tmp_path: Path):
    names = [folder(tmp_path / str(n), max_position_embeddings=n) for n in (64, 32)]
    sentence = said(examine(*map(str, names)), "context", "warning")
    assert "the draft sees 32 tokens and the target 64 tokens" in sentence


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_families_that_race_are_not_stopped(tmp_path: Path, kind: str):
    report = examine(*map(str, saved_family(tmp_path, kind, noise=0.1)))
    assert report.verdict == "warning", report.findings  # the draft is as large as the target
    assert sum(f.topic == "rollback" and f.level == "good" for f in report.findings) == 2
    assert ("8-bit" in str(report.findings)) == (kind == "mixtral")


@pytest.mark.parametrize("kind", sorted(RECURRENT))
@pytest.mark.parametrize("role", ["target", "draft"])
def test_models_that_cannot_roll_back_are_stopped(tmp_path: Path, kind: str, role: str):
    bad = saved(tmp_path / "bad", build(kind, vocab_size=288), small_tokenizer())
    other = folder(tmp_path / "other", vocab=288, tokenizer=small_tokenizer())
    names = [bad, other] if role == "target" else [other, bad]
    sentence = said(examine(*map(str, names)), "rollback", "stop")
    assert sentence.startswith("bad is of type") and "cannot be rolled back" in sentence


def test_a_base_draft_for_a_tuned_target_is_mentioned(tmp_path: Path):
    tuned = words(8)
    tuned.chat_template = "{{ messages[0].content }}"
    names = [str(folder(tmp_path / "one", tokenizer=tuned)), str(folder(tmp_path / "two"))]
    assert "the target is tuned for chat" in said(examine(*names), "chat", "warning")
    assert "the draft is tuned for chat" in said(examine(*names[::-1]), "chat", "warning")
    assert "chat template: set chat to 'off'" in said(examine(names[0], names[0]), "chat", "good")


def test_a_target_alone_is_examined(good: tuple[Path, Path]):
    report = examine(str(good[0]))
    assert report.verdict == "good" and report.draft is None
    assert "'ngram' and 'early-exit' need none" in said(report, "draft", "good")
    assert examine(f"{good[0]}+none").draft is None


def test_a_pair_may_be_named_as_one(good: tuple[Path, Path]):
    assert examine("+".join(map(str, good))).draft == "draft"
    assert examine("builtin").verdict != "stop"


def test_quantized_weights_need_what_this_machine_may_lack(
    good: tuple[Path, Path], monkeypatch: Any
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    report = examine(*map(str, good), quantize="4bit")
    assert "4-bit weights need an NVIDIA GPU" in said(report, "precision", "stop")


# Of one mind with the loader


def spoil(change: Callable[[Path], None]) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        change(folder(root / "bad"))
        return root / "bad"

    return make


def with_config(**values: Any) -> Callable[[Path], Path]:
    def change(path: Path) -> None:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, **values}))

    return spoil(change)


def pickled(path: Path) -> None:
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()


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


def of_kind(kind: str) -> Callable[[Path], Path]:
    return lambda root: saved(root / "bad", build(kind, vocab_size=8), words(8))


def erase(name: str) -> Callable[[Path], Path]:
    return spoil(lambda path: (path / name).unlink())


def write(name: str, content: bytes) -> Callable[[Path], Path]:
    return spoil(lambda path: (path / name).write_bytes(content) and None)


FILES = ("config.json", "model.safetensors", "tokenizer.json")

# name: what makes the folder of one of the two models
CORPUS: dict[str, Callable[[Path], Path]] = {
    "sound": lambda root: folder(root / "bad", seed=1),
    "padded": lambda root: folder(root / "bad", vocab=12),
    "sharded": sharded,
    "in half precision": lambda root: saved(root / "bad", llama(8).half(), words(8)),
    "tied": lambda root: folder(root / "bad", tie_word_embeddings=True),
    "gpt 2": of_kind("gpt 2"),
    "mixtral": of_kind("mixtral"),
    "gemma 3 with vision": of_kind("gemma 3, sliding"),
    "dynamic rope": of_kind("llama, dynamic rope"),
    "other tokenizer": lambda root: folder(root / "bad", tokenizer=words(7)),
    "too few logits": lambda root: folder(root / "bad", vocab=6),
    "recurrent": of_kind("falcon-h1"),
    "encoder and decoder": t5,
    "pickled": spoil(pickled),
    "own code": spoil(own_code),
    "no such type": with_config(model_type="nobody-knows"),
    "other shapes": with_config(intermediate_size=64),
    "smaller shapes": with_config(intermediate_size=16),
    "more layers": with_config(num_hidden_layers=2),
    "lacks the head": spoil(without("lm_head.weight")),
    "lacks a norm": spoil(without("model.norm.weight")),
    "cut short": spoil(cut),
    "lost shard": spoil(lost_shard),
    "missing folder": lambda root: root / "bad",
    "empty folder": lambda root: (root / "bad").mkdir() or root / "bad",
    **{f"lacks {name}": erase(name) for name in FILES},
    **{
        f"{name} is {content!r}": write(name, content)
        for name in (*FILES, "generation_config.json")
        for content in (b"", b"{", b"\x00\x01", b"[]", b"null", b"{}")
    },
}  # fmt: skip
SOUND = set(list(CORPUS)[:9])


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("other") / "other")


def races(name: str) -> bool:
    """Whether a pair loads and runs."""
    try:
        pair = load_pair(name)
        for lane in (speculate, baseline):
            list(lane(pair, "w1 w2", Settings(max_new_tokens=6, gamma=2)))
    except SpecvizError:
        return False
    return True


@pytest.mark.parametrize("kind", CORPUS)
def test_the_doctor_and_the_loader_agree(tmp_path: Path, other: Path, kind: str):
    bad = CORPUS[kind](tmp_path)
    for names in ([bad, other], [other, bad]):
        report = examine(*map(str, names))
        runs = races("+".join(map(str, names)))
        assert (report.verdict != "stop") == runs, report.findings
        stops = [f.sentence for f in report.findings if f.level == "stop"]
        assert all(str(tmp_path) not in sentence for sentence in stops)
        if kind in SOUND:
            assert runs


# On the command line


def test_the_command_prints_findings_and_a_verdict(
    good: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
):
    assert main(["doctor", *map(str, good)]) == 0
    printed = capsys.readouterr().out
    assert "✓ good    tokenizer" in printed and "ready to race." in printed
    assert "as 4bit" in printed
    assert main(["doctor", *map(str, good), "--free", "0.00001"]) == 1
    assert "✗ stop    memory" in capsys.readouterr().out


def test_the_command_prints_json(good: tuple[Path, Path], capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", str(good[0]), "/no/where", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "stop" and report["draft"] == "where"
    assert {"level": "stop", "topic": "name"} in [
        {key: finding[key] for key in ("level", "topic")} for finding in report["findings"]
    ]


# The hub

SEVERAL = """
import json, sys
from specviz.__main__ import main
for arguments in json.loads(sys.argv[1]):
    print("status", main(arguments), flush=True)
"""


def hub_runs(url: str, home: Path, *commands: list[str]) -> tuple[list[str], str]:
    """What commands print, one by one, and their stderr, in a process whose hub is at `url`."""
    env = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    env |= {"HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    program = [sys.executable, "-c", SEVERAL, json.dumps(commands)]
    ran = subprocess.run(program, env=env, cwd=ROOT, capture_output=True, text=True)
    *printed, rest = re.split(r"(?<=status \d)\n", ran.stdout)
    assert len(printed) == len(commands) and not rest, ran.stderr
    return printed, ran.stderr


def test_the_hub_gives_weights_to_the_loader_alone(good: tuple[Path, Path], tmp_path: Path):
    pickles = shutil.copytree(good[1], tmp_path / "pickles")
    pickled(pickles)
    models = {"org/target": good[0], "org/draft": good[1], "org/gated": good[1]}
    pair = ["run", "w1", "--pair", "org/target+org/draft", "--max-new-tokens", "4"]
    with fake_hub({**models, "org/pickles": pickles}, frozenset({"org/gated"})) as (url, given):
        drafts = ("org/draft", "org/gated", "org/pickles", "org/nobody")
        asked = [["doctor", "org/target", draft] for draft in drafts]
        (fine, gated, bad, nobody), _ = hub_runs(url, tmp_path / "home", *asked)
        assert given and not any("safetensors" in name for name in given)
        (_, refused), told = hub_runs(url, tmp_path / "home", pair, [*pair[:3], "org/gated+none"])
        assert "org/draft/model.safetensors" in given
    assert "org/target with org/draft ready to race." in fine and fine.endswith("status 0")
    for sentence in (gated, told):
        assert f"org/gated is gated: accept its licence on {url}/org/gated" in sentence
        assert "HF_TOKEN" in sentence
    assert gated.endswith("status 1") and refused.endswith("status 2")
    assert "org/pickles has no safetensors on its page, and pickles are never read" in bad
    assert "there is no model org/nobody on the hub that you may see" in nobody
    assert "downloading org/target" in told and "loading org/draft" in told
    # The hub is gone now; what was fetched is still there.
    (again,), told = hub_runs(url, tmp_path / "home", pair)
    assert again.endswith("status 0"), told


def test_a_hub_that_is_silent_costs_little_time(monkeypatch: Any):
    monkeypatch.setattr("specviz.models.hub.TIMEOUT", 0.2)
    monkeypatch.setattr("specviz.models.hub._last_answer", (-1e9, False))
    monkeypatch.setattr("specviz.models.hub._ask_hub", lambda: time.sleep(30))
    start = time.monotonic()
    report = examine("google/gemma-7b-it", "google/gemma-2b-it", device="cpu", free=10**11)
    assert time.monotonic() - start < 28  # it did not wait for the answer
    assert report.verdict == "stop"
    stops = [f.sentence for f in report.findings if f.level == "stop"]
    assert len(stops) == 2 and all("the hub does not answer" in sentence for sentence in stops)
    # What the table knows is said nevertheless.
    assert "48.0 GB as float32" in said(report, "memory", "good")
    assert "gated" in str(report.findings)
    names = ("google/gemma-7b-it", "google/gemma-2b-it")
    less = said(examine(*names, device="cpu", free=25 * 10**9), "memory", "stop")
    assert "25.0 GB are free: choose bfloat16, or a smaller pair." in less
    half = examine(*names, device="cpu", free=25 * 10**9, dtype="bfloat16")
    assert "24.0 GB as bfloat16" in said(half, "memory", "good")


def test_an_invalid_name_is_never_sent_to_the_hub(monkeypatch: Any):
    monkeypatch.setattr("specviz.models.hub._ask_hub", lambda: pytest.fail("asked"))
    for name in ("", "a/b/c", "../up", "/no/where", "a b", "-x"):
        assert examine(name or " ", "also/no/name").verdict == "stop"
