"""Distillation of a small pair on disk, through the command line."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from sentences import Sentences
from toy_models import llama, relative, tokenizer_of, words
from transformers import AutoModelForCausalLM, AutoTokenizer, T5Config, T5Model

from specviz import load_pair
from specviz.__main__ import main
from specviz.files.memory import DeviceMemory
from specviz.train import from_prompts, loop
from specviz.train.losses import logits_loss, text_alphas
from specviz.train.writing import Writing, marked_rows, write

VOCAB = 24
END = 3
PROMPTS = [f"w{i} w{j}" for i in range(4, 16) for j in range(16, 20)]
HELD_OUT = [f"w{i} w{j}" for i in range(4, 16) for j in (20, 21)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders target, draft and other, whose tokenizer differs, and the file prompts.txt."""
    folder = tmp_path_factory.mktemp("models")
    target = llama(VOCAB, eos_token_id=END)
    draft = relative(target, noise=0.3).to(torch.bfloat16)
    tokenizer = words(VOCAB)
    for name, model in (("target", target), ("draft", draft), ("other", draft)):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    swapped = {f"w{(i + 1) % VOCAB}": i for i in range(VOCAB)}
    tokenizer_of(swapped).save_pretrained(folder / "other")
    (folder / "prompts.txt").write_text("\n".join(PROMPTS))
    (folder / "held.txt").write_text("\n".join(HELD_OUT))
    return folder


def arguments(models: Path, place: Path, *extra: str) -> list[str]:
    line = (
        f"train --distill {models}/target --draft {models}/draft --prompts {models}/prompts.txt "
        f"--held-out-prompts {models}/held.txt --out {place}/out --work {place}/work "
        "--device cpu --threads 1 --max-new-tokens 16 --written-tokens 2048 --write-rows 32 "
        "--draft-steps 40 --batch-tokens 512 --micro-tokens 256 --warmup-steps 3 --rate 0.01"
    )
    return [*line.split(), *extra]


@pytest.fixture(scope="module")
def distilled(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("distilled")
    assert main(arguments(models, place)) == 0
    return place


def test_held_out_alpha_rises_and_the_saved_draft_opens(models: Path, distilled: Path) -> None:
    out = distilled / "out"
    result = json.loads((out / "distillation.json").read_text())
    assert set(result["alpha"]) == {"0", "0.7", "1"} and result["spent"]["step"] == 40
    for means in result["alpha"].values():
        assert means["rise"]["low"] > 0.1
        rise = means["after"]["value"] - means["before"]["value"]
        assert means["rise"]["value"] == pytest.approx(rise)
    model = AutoModelForCausalLM.from_pretrained(out)
    assert model.dtype == torch.bfloat16
    assert AutoTokenizer.from_pretrained(out).get_vocab() == words(VOCAB).get_vocab()
    # The folders on disk have the reported alphas.
    how = Writing(16, (END,), pad=END)
    for name, folder in (("before", models / "draft"), ("after", out)):
        pair = load_pair(f"{models / 'target'}+{folder}", dtype="float32", device="cpu")
        ids = [pair.encode(text) for text in HELD_OUT]
        texts = write(pair.target, ids, how, temperature=1.0, seed=0)
        found = text_alphas(pair.target, pair.draft, ids, texts, temperature=1.0)
        reported = result["alpha"]["1"][name]["value"]
        assert sum(found) / len(found) == pytest.approx(reported, abs=1e-4)


def test_a_resumed_distillation_equals_an_uninterrupted_one(
    models: Path, distilled: Path, tmp_path: Path
) -> None:
    assert main(arguments(models, tmp_path, "--stop-after", "11")) == 0
    half = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert main(arguments(models, tmp_path)) == 0
    whole = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert whole == (distilled / "out" / "model.safetensors").read_bytes() != half


def test_text_ends_with_its_first_end_and_only_what_was_written_counts(models: Path) -> None:
    target = AutoModelForCausalLM.from_pretrained(models / "target")
    prompts = [[5, 6, 7], [8], *([i] for i in range(4, 20))]
    texts = write(target, prompts, Writing(40, (END,), pad=END), temperature=1.5, seed=0)
    assert any(END in text[1:] for text in texts), "no text ended: the test shows nothing"
    for prompt, text in zip(prompts, texts, strict=True):
        assert text[: len(prompt)] == prompt and END not in text[:-1]
        assert text[-1] == END or len(text) == len(prompt) + 40
    # Shorter prompts are padded on the left, which must not change the written text.
    alone = write(target, [prompts[1]], Writing(12), temperature=0.0, seed=0)
    assert write(target, prompts[:2], Writing(12), temperature=0.0, seed=0)[1] == alone[0]
    never = write(target, prompts, Writing(12, never=(9, END)), temperature=1.5, seed=0)
    assert not {9, END} & {token for text in never for token in text[-12:]}
    rows = marked_rows(prompts[:2], [[5, 6, 7, 1, END], [8, 2]], 6, END)
    assert rows.tolist() == [
        [[5, 6, 7, 1, END, END], [0, 0, 0, 1, 1, 0]],
        [[8, 2, END, END, END, END], [0, 1, 0, 0, 0, 0]],
    ]


def test_loss_and_alpha_are_those_of_the_positions_that_were_written(models: Path) -> None:
    target, draft = (
        AutoModelForCausalLM.from_pretrained(models / name, dtype=torch.float32)
        for name in ("target", "draft")
    )
    prompts = [[5, 6], [8]]
    texts = [[5, 6, 7, 9], [8, 4]]
    vocab = 20
    kl = []
    kept = []
    with torch.no_grad():
        for prompt, text in zip(prompts, texts, strict=True):
            for place in range(len(prompt), len(text)):
                before = torch.tensor([text[:place]])
                p, q = (m(before).logits[0, -1, :vocab].softmax(-1) for m in (target, draft))
                kl.append(float((p * (p / q).log()).sum()))
                kept.append(float(torch.minimum(p, q).sum()))
    batch = torch.from_numpy(marked_rows(prompts, texts, 6, 0)).long()
    loss = logits_loss(target, vocab)(draft, batch)
    assert loss.item() == pytest.approx(sum(kl) / 3, rel=1e-4)
    found = text_alphas(target, draft, prompts, texts, temperature=1.0, vocab=vocab)
    assert found == pytest.approx([(kept[0] + kept[1]) / 2, kept[2]], rel=1e-4)


def _full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(loop.torch, "save", full)


def _no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        from_prompts,
        "logits_loss",
        lambda *_, **__: lambda draft, _: next(draft.parameters()).sum() * float("nan"),
    )


def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    place = DeviceMemory(torch.device("cpu"), 100_000)
    monkeypatch.setattr(from_prompts, "device_memory", lambda _: [place])


@pytest.mark.parametrize(
    ("extra", "prepare"),
    [
        (["--draft", "{}/other"], None),
        (["--draft", "{}/t5"], None),
        (["--distill", "{}/none"], None),
        (["--distill", "http://host/v1#model"], None),
        (["--prompts", "{}/none.txt"], None),
        (["--prompts", "{}/empty.txt"], None),
        (["--prompts", "{}/long.txt"], None),
        (["--rate", "0"], None),
        (["--write-rows", "0"], None),
        (["--written-temperatures", "hot"], None),
        (["--device", "moon"], None),
        ([], _little_memory),
        (["--written-tokens", "256"], _no_number),
        (["--written-tokens", "256", "--draft-steps", "1"], _full_disk),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    extra: list[str],
    prepare: Any,
    sentences: Sentences,
) -> None:
    (models / "empty.txt").write_text("\n")
    (models / "long.txt").write_text("\n".join("w4 " * (500 + i) for i in range(3)))
    if "{}/t5" in extra:
        T5Model(
            T5Config(d_model=8, d_kv=8, d_ff=8, num_layers=1, vocab_size=VOCAB)
        ).save_pretrained(models / "t5")
        words(VOCAB).save_pretrained(models / "t5")
    if prepare is not None:
        prepare(monkeypatch)
    named = [one.replace("{}", str(models)) for one in extra]
    assert main(arguments(models, tmp_path, *named)) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("specviz: ")
    sentences(re.sub("distilled-[0-9a-f]+", "distilled-HASH", message))
    assert not (tmp_path / "out").exists() and not list(tmp_path.rglob("*.partial"))
