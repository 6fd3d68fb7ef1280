"""The speed-up in a batch: exact figures from scripted times, and one small measurement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from model_families import build
from sentences import Sentences
from toy_models import llama, mini, pair_of, relative

from specviz.__main__ import main
from specviz.base.errors import ModelError
from specviz.measure.bench.batch import (
    BatchedPasses,
    BatchTimes,
    batch_times,
    table_lines,
    verdict,
)
from specviz.runs.uncertainty import Spread


def times(batch: int, draft: float, *target: float) -> BatchTimes:
    return BatchTimes(batch, tuple(Spread(t, t, t) for t in target), Spread(draft, draft, draft))


# At alpha 1/2, tau is 1.5 and 1.75 for gamma 1 and 2.
FREE = times(1, 1e-12, 1.0, 1.0, 1.0)
EVEN = times(4, 0.25, 1.0, 1.25, 1.5)
DEAR = times(16, 0.5, 2.0, 4.0, 6.0)


def test_the_expected_speed_up_follows_from_the_times_of_its_passes() -> None:
    assert FREE.best(0.5) == (2, pytest.approx(1.75))
    assert EVEN.best(0.5) == (1, 1.5 / 1.5)
    assert DEAR.speedup(0.5, 1) == 1.5 * 2 / 4.5 and DEAR.speedup(0.5, 2) == 1.75 * 2 / 7
    assert EVEN.row(0.5)["tokens/s alone"] == EVEN.row(0.5)["with drafts"] == "4"
    assert FREE.row(0.5)["tokens/s alone"] == "1"


def test_a_sentence_says_up_to_which_batch_drafts_pay(sentences: Sentences) -> None:
    sentences(verdict([FREE], 0.5))
    sentences(verdict([DEAR], 0.5))
    sentences(verdict([FREE, DEAR], 0.5))
    line = "| 16 | 2000.00 ms | 6000.00 ms | 3.00 | 500.00 ms | 0.250 | 1 | 0.67 | 8 | 5 |"
    assert line in table_lines([FREE, DEAR], 0.5)


@pytest.mark.parametrize("model", [llama(24), mini(24)])
def test_every_text_of_a_batch_is_continued_as_it_would_be_alone(model: torch.nn.Module) -> None:
    texts = torch.randint(24, (3, 9), generator=torch.Generator().manual_seed(1))
    passes = BatchedPasses(model, texts[:, :6])
    passes.forward(texts[:, :2])
    passes.rollback(2)
    with torch.inference_mode():
        wanted = model(input_ids=texts).logits[:, 6:]
    torch.testing.assert_close(passes.forward(texts[:, 6:]), wanted, atol=1e-4, rtol=1e-4)


def test_a_batch_of_texts_with_a_running_state_is_refused(sentences: Sentences) -> None:
    with sentences.raises(ModelError):
        BatchedPasses(build("mamba", vocab_size=24), torch.randint(24, (2, 6)))


def test_a_small_pair_is_measured(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sentences: Sentences,
) -> None:
    target = mini(24, max_position_embeddings=40)
    pair = pair_of(target, relative(target, noise=0.1))
    clock = iter(range(10**6))
    monkeypatch.setattr("specviz.measure.bench.batch.now", lambda _: float(next(clock)))
    one = Spread(1.0, 1.0, 1.0)
    assert batch_times(pair, [1, 3], 2, 8, 1) == tuple(
        BatchTimes(batch, (one, one), one) for batch in (1, 3)
    )
    monkeypatch.undo()
    monkeypatch.setattr("specviz.pairs.load.load_pair", lambda _: pair)
    file = tmp_path / "batch.json"
    prompts = tmp_path / "prompts.json"
    prompts.write_text('["w1 w2", "w3"]')
    line = "bench --batch 4 1 --gamma 2 --max-new-tokens 8 --repeats 1 --threads 1 --prompts"
    assert main([*line.split(), str(prompts), "--out", str(file)]) == 0
    found = json.loads(file.read_text())
    assert [one["batch"] for one in found["times"]] == [1, 4]
    assert [len(one["target"]) for one in found["times"]] == [3, 3]
    assert found["temperature"] == 0.0 and 0 < found["alpha"] <= 1 and found["context"] == 40 - 3
    assert "Drafts" in capsys.readouterr().out
    assert main([*line.split(), str(prompts), "--out", str(file), "--acceptance", "0.25"]) == 0
    found = json.loads(file.read_text())
    assert (found["alpha"], found["temperature"]) == (0.25, None)
    for wrong in (
        ["--batch", "0"],
        ["--batch", "2", "--gamma", "0"],
        ["--batch", "2", "--max-new-tokens", "1"],
        ["--batch", "2", "--out", str(tmp_path / "no" / "x.json")],
    ):
        assert main(["bench", "--prompts", str(prompts), *wrong]) == 2
        sentences(capsys.readouterr().err.splitlines()[-1])
