"""A head that is trained on a target: its chains are those of drafting, and it learns."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_models import byte_level, llama

from specviz.pairs.checksums import check_files
from specviz.pairs.heads.eagle import HeadCache
from specviz.pairs.heads.eagle_files import load_head
from specviz.train import cli
from specviz.train.export import save_model, save_tokenizer
from specviz.train.head import (
    ChainLoss,
    StateReader,
    chain_outputs,
    frequent_tokens,
    new_head,
)

PLACES = 12


@pytest.fixture(scope="module")
def target() -> torch.nn.Module:
    sizes = dict(num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    return llama(300, initializer_range=0.3, bos_token_id=0, eos_token_id=0, **sizes)


def test_the_chains_of_training_are_those_of_drafting(target: torch.nn.Module):
    """A chain that begins at place i sees the true states up to i, and then its own outputs."""
    head = new_head(target, (1, 2, 3), torch.arange(0, 300, 2))
    ids = torch.randint(300, (1, PLACES + 1), generator=torch.Generator().manual_seed(0))
    states, _ = StateReader(target, (1, 2, 3))(ids)
    with torch.no_grad():
        steps = chain_outputs(head, ids, states, 3)
        for place in range(PLACES - 2):
            cache = HeadCache(head.device, head.dtype, head.config.layer)
            hidden = head.fuse(states[0, : place + 1].float())
            tokens = ids[0, 1 : place + 2]
            for step in range(3):
                hidden = head.step(tokens, hidden, cache)[-1:]
                tokens = ids[0, place + 2 + step : place + 3 + step]
                off = (steps[step][0, place] - hidden[0]).norm() / hidden.norm()
                assert off < 0.03, (place, step)  # products in bf16 there, in fp32 here


def test_a_head_learns_what_its_target_says_and_loads_again(
    target: torch.nn.Module, tmp_path: Path
):
    books = tmp_path / "corpus"
    books.mkdir()
    for name in ("one", "two"):
        (books / f"{name}.txt").write_text("the cat sat on the mat. " * 400)
    tokenizer = byte_level(special=("<|endoftext|>",))
    tokenizer.eos_token = "<|endoftext|>"
    save_model(target, tokenizer, tmp_path / "pair" / "target", 0.7)
    (tmp_path / "work").mkdir()
    save_tokenizer(tokenizer, tmp_path / "work" / "tokenizer")
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    line = (
        f"--corpus {books} --output {tmp_path / 'pair'} --work {tmp_path / 'work'} --stage head "
        "--head-steps 30 --head-tokens 100 --head-length 31 --batch-tokens 248 --warmup-steps 2 "
        "--written-tokens 512 --held-out two --device cpu --checkpoint-minutes 9"
    )
    cli.main(parser.parse_args(line.split()))
    check_files(tmp_path / "pair" / "head")
    learnt = load_head(str(tmp_path / "pair" / "head"), target, torch.device("cpu"))
    assert learnt.config.states == (2, 2, 3) and learnt.config.draft_vocab == 100
    fresh = new_head(target, learnt.config.states, learnt.targets)
    text = np.array(tokenizer("the cat sat on the mat. " * 9)["input_ids"])
    assert set(frequent_tokens(text, 300, 5).tolist()) <= set(learnt.targets.tolist())
    ids = torch.from_numpy(text[:64]).unsqueeze(0)
    with torch.no_grad():
        before, after = (ChainLoss(target, one)(one, ids).item() for one in (fresh, learnt))
    assert after < 0.7 * before
