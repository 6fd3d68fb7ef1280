"""Training of a head: its chains are those of drafting, and it learns."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentences import Sentences
from toy_models import byte_level, llama
from transformers.cache_utils import DynamicLayer

from specviz import load_pair, speculate
from specviz.base.errors import SpecvizError
from specviz.files.checksums import check_files
from specviz.sides.heads.eagle_files import load_head
from specviz.sides.heads.untrained import new_head
from specviz.train import cli, loop
from specviz.train.from_target import numbered, read_text
from specviz.train.head import ChainLoss, KeptStates, StateRows, chain_acceptance, chain_outputs
from specviz.train.openings import Openings
from specviz.train.writing import marked_rows

PLACES = 12


@pytest.fixture(autouse=True)
def short_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the questions that a target writes."""
    monkeypatch.setattr("specviz.train.openings.QUESTION_TOKENS", 24)


@pytest.fixture(scope="module")
def target() -> torch.nn.Module:
    sizes = dict(num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    return llama(300, initializer_range=0.3, bos_token_id=0, eos_token_id=0, **sizes)


def test_the_chains_of_training_are_those_of_drafting(target: torch.nn.Module):
    """A chain that begins at position i sees the true states up to i, then its own outputs."""
    head = new_head(target, (1, 2, 3), torch.arange(0, 300, 2))
    ids = torch.randint(300, (1, PLACES + 1), generator=torch.Generator().manual_seed(0))
    states, _ = StateRows(target, (1, 2, 3))(ids[:, None])
    with torch.no_grad():
        steps = chain_outputs(head, ids, states, 3)
        for place in range(PLACES - 2):
            cache = DynamicLayer()
            hidden = head.fuse(states[0, : place + 1].float())
            tokens = ids[0, 1 : place + 2]
            for step in range(3):
                hidden = head.step(tokens, hidden, cache)[-1:]
                tokens = ids[0, place + 2 + step : place + 3 + step]
                off = (steps[step][0, place] - hidden[0]).norm() / hidden.norm()
                assert off < 0.03, (place, step)  # products in bf16 there, in fp32 here


def saved(target: torch.nn.Module, folder: Path, template: str | None = None) -> Path:
    tokenizer = byte_level(special=("<|endoftext|>",))
    tokenizer.eos_token = "<|endoftext|>"
    tokenizer.chat_template = template
    target.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def trained(*words: str) -> None:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    usual = "--device cpu --checkpoint-minutes 9 --warmup-steps 2 --max-new-tokens 8"
    usual += " --batch-tokens 248"
    cli.main(parser.parse_args([*words, *usual.split()]))


def test_a_head_learns_what_its_target_says_and_loads_again(
    target: torch.nn.Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = saved(target, tmp_path / "target")
    out = tmp_path / "head"
    file = tmp_path / "t.jsonl"
    prompts = torch.randint(1, 300, (24, 4), generator=torch.Generator().manual_seed(1))
    texts = target.generate(prompts, max_new_tokens=20, min_new_tokens=20, do_sample=False)
    with file.open("w") as lines:
        for text in texts.tolist():
            line = {"prompt": text[:4], "ids": text[4:], "kind": "any"}
            lines.write(json.dumps(line) + "\n")
    words = ("--head", str(folder), "--text", str(file), "--out", str(out), "--written-tokens", "9")
    words += ("--work", str(tmp_path / "work"), "--head-tokens", "100", "--row-tokens", "31")
    trained(*words, "--head-steps", "20", "--stop-after", "12")
    trained(*words, "--head-steps", "20")
    said = capsys.readouterr().out
    assert "memory needed: about" in said and f"--pair '{folder}+{out}'" in said
    check_files(out)
    result = json.loads((out / "training.json").read_text())
    assert result["spent"]["step"] == 20 and result["texts"] == 24
    assert len(result["acceptance_by_step"]["0"]) == 5
    learnt = load_head(str(out), target, torch.device("cpu"))
    assert learnt.config.states == (2, 3) and learnt.config.draft_vocab == 100
    fresh = new_head(target, learnt.config.states, learnt.targets)
    rows = read_text(file, 32, 300, 0)
    loss = ChainLoss(target, fresh, StateRows(target, fresh.config.states))
    batch = torch.from_numpy(rows[1:9].astype(np.int64))
    with torch.no_grad():
        assert loss(learnt, batch).item() < 0.8 * loss(fresh, batch).item()
    before, after = (chain_acceptance(target, one, rows, 0.0, 2) for one in (fresh, learnt))
    assert after[0] > before[0]
    run = list(speculate(load_pair(f"{folder}+{out}"), [3, 1, 4], max_new_tokens=12))
    assert sum(len(one.emitted) for one in run) == 12


def test_states_are_read_once_and_are_the_same_again(target: torch.nn.Module, tmp_path: Path):
    rows = marked_rows([[5, 6]] * 3, [[5, 6, 7, 8, 9], [5, 6, 1], [5, 6, 2, 3]], 8, 0)
    given = torch.from_numpy(numbered(rows).astype(np.int64))
    reader = StateRows(target, (1, 3))
    wanted = reader(given)

    def refused(_: torch.Tensor) -> None:
        raise AssertionError("the target read a row again")

    for source in (reader, refused):
        reads = KeptStates(reader, rows, tmp_path)
        reads._reader = source  # type: ignore[assignment]
        for size in ("width", "final"):
            setattr(reads._reader, size, getattr(reader, size))
        for found, true in zip(reads(given[[2, 0]]), wanted, strict=True):
            for place, (row, n) in enumerate(((2, 4), (0, 5))):
                # A processor may round a product of two rows differently from one of three.
                torch.testing.assert_close(found[place, :n], true[row, :n], rtol=0, atol=0.25)


def test_tokens_without_a_mark_are_not_learnt(target: torch.nn.Module):
    head = new_head(target, (1, 2, 3), torch.arange(300))
    loss = ChainLoss(target, head, StateRows(target, (1, 2, 3)))
    rows = torch.from_numpy(marked_rows([[5, 6, 7]], [[5, 6, 7, 8, 9]], 9, 0).astype(np.int64))
    other = rows.clone()
    other[0, 0, 5:] = 11  # after the last marked token
    assert loss(head, rows).item() == loss(head, other).item()
    rows[0, 1, 2] = 1
    assert loss(head, rows).item() != loss(head, other).item()


@pytest.mark.parametrize("line", ["{", '{"prompt": [1]}', '{"prompt": [1], "ids": [900]}'])
def test_a_file_of_text_that_cannot_be_used_is_told(
    tmp_path: Path, line: str, sentences: Sentences
):
    path = tmp_path / "text.jsonl"
    path.write_text(line + "\n")
    with sentences.raises(SpecvizError):
        read_text(path, 16, 300, 0)


def test_a_target_of_a_chat_writes_its_own_questions(target: torch.nn.Module, tmp_path: Path):
    template = "{% for m in messages %}u:{{ m.content }};{% endfor %}a:"
    folder = saved(target, tmp_path / "target", template)
    work = tmp_path / "work"
    words = ("--head", str(folder), "--out", str(tmp_path / "head"), "--work", str(work))
    trained(
        *words,
        "--head-steps",
        "1",
        "--row-tokens",
        "60",
        "--written-tokens",
        "64",
        "--write-rows",
        "4",
    )
    rows = np.concatenate([np.load(path) for path in work.glob("text-*/*.npy")])
    texts = [row[0][row[1] == 0].tolist() for row in rows]
    before = byte_level(special=("<|endoftext|>",))("u:")["input_ids"]
    assert all(text[: len(before)] == before for text in texts)


def test_text_that_was_written_is_kept_until_it_would_be_another(
    target: torch.nn.Module, tmp_path: Path
):
    prompts = tmp_path / "prompts.txt"
    work = tmp_path / "work"
    prompts.write_text("one cat\ntwo dogs\nthree\n")
    words = ("--head", str(saved(target, tmp_path / "target")), "--out", str(tmp_path / "head"))
    words += ("--work", str(work), "--head-steps", "1", "--row-tokens", "40", "--write-rows", "6")
    words += ("--prompts", str(prompts))

    def written(*others: str) -> set[Path]:
        trained(*words, *others)
        return {path for path in work.glob("text-*/*.npy") if path.stat().st_size}

    first = written("--written-tokens", "40")
    times = {path: path.stat().st_mtime_ns for path in first}
    more = written("--written-tokens", "90")
    assert first < more and times == {path: path.stat().st_mtime_ns for path in first}
    assert len(written("--written-tokens", "40", "--written-temperatures", "0.3")) > len(more)
    known = len(written("--written-tokens", "40"))
    prompts.write_text("one cat\ntwo dogs\nthree\nand four\n")
    assert len(written("--written-tokens", "40")) > known


def test_a_target_without_a_template_needs_books_or_prompts(
    target: torch.nn.Module, tmp_path: Path, sentences: Sentences
):
    words = ("--head", str(saved(target, tmp_path / "target")), "--out", str(tmp_path / "head"))
    with sentences.raises(SpecvizError):
        trained(*words, "--work", str(tmp_path / "work"), "--row-tokens", "31")
    with sentences.raises(SpecvizError):
        trained(*words, "--corpus", str(tmp_path), "--row-tokens", "31")
    with sentences.raises(SpecvizError):
        trained(*words, "--row-tokens", "9")


def test_the_rate_warms_up_and_falls_to_zero():
    plan = loop.Schedule(16, steps=100, warmup_steps=10, decay=0.5)
    rates = [plan.rate(step, plan.progress(step, 0.0)) for step in range(101)]
    assert rates[0] == pytest.approx(0.1) and rates[30] == 1.0 and rates[100] == 0.0
    assert plan.rate(75, 0.75) == pytest.approx(0.5)
    assert loop.Schedule(16, minutes=2).progress(9, 60.0) == 0.5


def test_a_checkpoint_of_another_shape_is_told(
    target: torch.nn.Module, tmp_path: Path, sentences: Sentences
):
    small, large = (new_head(target, layers, torch.arange(300)) for layers in ((1, 3), (1, 2, 3)))
    loop._save(small, [], loop.TrainingProgress(), tmp_path / "checkpoint.pt")
    with sentences.raises(SpecvizError):
        loop._restore(large, [], tmp_path / "checkpoint.pt")


def test_books_give_tasks_to_a_chat_and_beginnings_to_another_target(
    target: torch.nn.Module, tmp_path: Path
):
    books = tmp_path / "books"
    books.mkdir()
    for name in ("one", "two"):
        text = "\n\n".join(f"Paragraph {i} of {name}. " + "the cat sat. " * 12 for i in range(40))
        (books / f"{name}.txt").write_text(text)
    options = argparse.Namespace(
        corpus=books, prompts=None, write_rows=6, row_tokens=400, new_tokens=100, seed=3
    )
    template = "{% for m in messages %}u:{{ m.content }};{% endfor %}a:"
    for kind in (None, template):
        folder = saved(target, tmp_path / f"target-{kind is None}", kind)
        pair = load_pair(f"{folder}+none")
        openings = Openings(pair, options)
        asked = openings.chunk(0)
        assert asked == Openings(pair, options).chunk(0) != openings.chunk(1)
        assert len(asked) == 6 and all(0 < len(ids) <= 300 for ids in asked)
        texts = [pair.tokenizer.decode(ids) for ids in asked]
        of_books = [text for text in texts if any(w in text for w in ("cat", "sat", "Para"))]
        assert len(of_books) == (6 if kind is None else 2)
        assert all(text.startswith("u:") == (kind is not None) for text in of_books)
