"""Training on a small artificial corpus, through the same code as a real training."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specviz.errors import SpecvizError
from specviz.options import Parser
from specviz.pairs.load import check_files
from specviz.train import cli as train
from specviz.train import (
    corpus,
    from_books,
    loop,
    losses,
    models,
)
from specviz.train.corpus import train_tokenizer

WORDS = ("the", "a", "cat", "dog", "sat", "ran", "under", "tree", "and", "she", "it's", "23")


def _options(folder: Path, *extra: str) -> argparse.Namespace:
    parser = Parser()
    train.add_arguments(parser)
    line = (
        f"--corpus {folder / 'corpus'} --out {folder / 'pair'} --work {folder / 'work'} "
        "--vocabulary 300 --target-layers 1 --target-width 128 --draft-layers 1 --draft-width 64 "
        "--steps 12 --draft-steps 12 --warmup-steps 2 --lengths 16,32 --batch-tokens 512 "
        "--written-tokens 2048 --held-out two --device cpu"
    )
    return parser.parse_args([*line.split(), *extra])


def _write_corpus(folder: Path) -> None:
    folder.mkdir(parents=True)
    for seed, name in enumerate(("one", "two", "three")):
        drawn = random.Random(seed)
        sentences = [" ".join(drawn.choices(WORDS, k=8)) + "." for _ in range(250)]
        (folder / f"{name}.txt").write_text("\n\n".join(sentences), encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    _write_corpus(folder / "corpus")
    train.main(_options(folder))
    return folder


def test_saved_folders_load_with_the_auto_classes(trained: Path) -> None:
    for name in ("target", "draft"):
        folder = trained / "pair" / name
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = tokenizer("the cat sat", return_tensors="pt").input_ids
        assert model(ids).logits.shape == (1, ids.shape[1], len(tokenizer))
        assert model.dtype == torch.bfloat16
        assert model.config.max_position_embeddings == 1024
        assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
        config = json.loads((folder / "config.json").read_text())
        assert config["model_type"] == "llama"
        assert tokenizer.eos_token_id == config["eos_token_id"]


def test_saved_files_name_no_path_of_this_machine(trained: Path) -> None:
    for path in (trained / "pair").rglob("*.json"):
        assert str(trained) not in path.read_text()


def test_large_weights_are_sharded_below_the_limit_of_the_hub(
    tmp_path: Path, trained: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(trained / "pair" / "target")
    model = models.build_model(models.Shape(2, 512), vocabulary=2048, end_id=0, seed=0)
    models.save_model(model, tokenizer, tmp_path / "large")
    check_files(tmp_path / "large")
    sizes = [path.stat().st_size for path in (tmp_path / "large").iterdir()]
    assert sum(sizes) > 9.5e6 > max(sizes)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "large")
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name].to(torch.bfloat16))


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, trained: Path) -> None:
    interrupted = tmp_path / "interrupted"
    _write_corpus(interrupted / "corpus")
    for stage, steps in (
        ("tokenizer", 0),
        ("target", 5),
        ("target", 0),
        ("draft", 7),
        ("draft", 0),
    ):
        train.main(_options(interrupted, "--stage", stage, "--stop-after", str(steps)))
    for name in ("target", "draft"):
        weights = [
            (folder / "pair" / name / "model.safetensors").read_bytes()
            for folder in (trained, interrupted)
        ]
        assert weights[0] == weights[1], name


def test_held_out_books_are_never_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_corpus(tmp_path / "corpus")
    secret = "zyx wvut zyx wvut. " * 100
    (tmp_path / "corpus" / "two.txt").write_text(secret)
    learnt_from: list[str] = []
    seen: list[torch.Tensor] = []

    def spy_tokenizer(texts, **options):  # type: ignore[no-untyped-def]
        learnt_from.extend(texts)
        return train_tokenizer(iter(learnt_from), **options)

    real_step = loop._step

    def spy_step(model, batches, *rest):  # type: ignore[no-untyped-def]
        def spied(*place):  # type: ignore[no-untyped-def]
            seen.append(batches(*place))
            return seen[-1]

        return real_step(model, spied, *rest)

    monkeypatch.setattr(from_books, "train_tokenizer", spy_tokenizer)
    monkeypatch.setattr(loop, "_step", spy_step)
    budget = ("--steps", "8", "--draft-steps", "8", "--batch-tokens", "2048")
    train.main(_options(tmp_path, *budget, "--switch", "1"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "pair" / "target")
    assert len(learnt_from) == 2 and not any("zyx" in text for text in learnt_from)
    assert len(seen) == 16
    # Eight batches of 2,048 tokens are more than two epochs, so every window has been drawn.
    assert not any("zyx" in tokenizer.decode(row) for batch in seen for row in batch)


def test_distillation_brings_the_draft_closer_to_the_target(trained: Path) -> None:
    target, draft = (models.load_model(trained / "pair" / n, "cpu") for n in ("target", "draft"))
    size = target.config.vocab_size
    fresh = models.build_model(models.Shape(1, 64), vocabulary=size, end_id=0, seed=0)
    ids = torch.randint(1, size, (4, 33), generator=torch.Generator().manual_seed(0))
    loss = losses.logits_loss(target, size, half=True)
    assert loss(draft, ids).item() < 0.7 * loss(fresh, ids).item()


def test_the_draft_inherits_the_geometry_of_the_targets_embeddings(trained: Path) -> None:
    target = models.load_model(trained / "pair" / "target", "cpu")
    size = target.config.vocab_size
    draft = models.build_model(models.Shape(1, 64), vocabulary=size, end_id=0, seed=0)

    def angles(model: torch.nn.Module) -> torch.Tensor:
        rows = torch.nn.functional.normalize(model.get_input_embeddings().weight.detach())
        return (rows @ rows.T).flatten()

    def likeness() -> float:
        return torch.corrcoef(torch.stack([angles(draft), angles(target)]))[0, 1].item()

    before = likeness()
    losses.inherit_embeddings(draft, target)
    assert likeness() > max(0.5, before + 0.1)


@pytest.mark.parametrize(
    "text",
    [
        "1,234.5  and\n\n\ttabs \r\n",
        "it's 'TIS--so!",
        "h\u00e9llo \u2603 \u65e5\u672c",
        " ",
        "<|x|>",
    ],
)
def test_the_tokenizer_decodes_every_text_unchanged(trained: Path, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(trained / "pair" / "draft")
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_windows_visit_every_token_once_per_epoch() -> None:
    windows = corpus.Windows(np.arange(1000, dtype=np.uint16), seed=3)
    per_epoch = (1000 - 1 - 16) // 16
    ids = torch.cat([windows.batch(16, row * 16, 1) for row in range(per_epoch)])
    inputs = ids[:, :-1].flatten()
    assert len(inputs.unique()) == len(inputs) == per_epoch * 16
    assert torch.equal(ids[:, 1:], ids[:, :-1] + 1)


def test_the_rate_warms_up_and_falls_to_zero() -> None:
    plan = loop.Schedule(steps=100, warmup_steps=10, decay=0.5)
    rates = [plan.rate(step, plan.progress(step, 0.0)) for step in range(101)]
    assert rates[0] == pytest.approx(0.1) and rates[30] == 1.0 and rates[100] == 0.0
    assert plan.rate(75, 0.75) == pytest.approx(0.5)
    assert [plan.length(share) for share in (0.0, 0.7, 1.0)] == [256, 512, 1024]
    assert loop.Schedule(minutes=2).progress(9, 60.0) == 0.5


def test_acceptance_of_a_model_by_itself_is_one(trained: Path) -> None:
    target = models.load_model(trained / "pair" / "target", "cpu")
    ids = torch.randint(1, target.config.vocab_size, (2, 20))
    for temperature in (0.0, 0.7, 1.0):
        kept = losses.acceptance(target, target, ids, temperature=temperature)
        assert torch.allclose(kept, torch.ones(2, 20))


def test_evaluate_prints_perplexity_and_alpha(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train.main(_options(trained, "--evaluate"))
    printed = capsys.readouterr().out
    assert printed.count("perplexity") == 2 and printed.count("alpha about") == 3


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--corpus", "no-such-folder"), "no-such-folder"),
        (("--held-out", "one,two,three"), "leave at least one"),
        (("--held-out", "four"), "four"),
        (("--lengths", "16,many"), "--lengths"),
        (("--target-width", "100"), "multiple of 64"),
        (("--vocabulary", "10", "--work", "elsewhere"), "--vocabulary"),
        (("--stage", "target", "--work", "elsewhere"), "stage `tokenizer`"),
        (("--target-width", "192", "--steps", "12"), "another"),
    ],
)
def test_invalid_options_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _write_corpus(tmp_path / "corpus")
    if "another" in words:
        (tmp_path / "work").mkdir()
        small = models.build_model(models.Shape(1, 64), vocabulary=300, end_id=0, seed=0)
        spent, path = loop.TrainingProgress(), tmp_path / "work" / "target-1x192.pt"
        loop._save(small, [], spent, path)
    with pytest.raises(SpecvizError, match=words):
        train.main(_options(tmp_path, *extra))


def test_an_empty_corpus_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    with pytest.raises(SpecvizError, match="add at least two"):
        train.main(_options(tmp_path))
