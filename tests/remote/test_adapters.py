"""Targets on engines other than vLLM: the same tokens, from each engine's own requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_completions import fake_server
from fake_engines import FakeLlama
from model_families import saved
from sentences import Sentences
from toy_models import byte_level, emitted_ids, llama, relative

from specviz import Pair, Settings, load_pair, speculate
from specviz.base.errors import PairError

VOCAB = 300
GREEDY = Settings(max_new_tokens=16, gamma=4)
SAMPLED = Settings(max_new_tokens=16, gamma=3, temperature=0.9, top_p=0.95, seed=5)


@pytest.fixture(scope="module")
def target() -> Any:
    return llama(VOCAB, hidden_size=32, num_hidden_layers=2, max_position_embeddings=128)


@pytest.fixture(scope="module")
def draft(target: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines") / "draft"
    return saved(folder, relative(target, noise=0.05), byte_level(VOCAB))


def test_llama_cpps_server_is_asked_in_its_form(target: Any, draft: Path) -> None:
    with fake_server(target, byte_level(VOCAB), FakeLlama) as server:
        remote = load_pair(f"{server.url}#target+{draft}")
        able = remote.target
        assert able.listed == VOCAB and not able.draws
        assert able.identity.software == "llama.cpp b11549" and able.identity.context == 128
        local = Pair(target=target, draft=remote.draft, tokenizer=remote.tokenizer)
        for settings in (GREEDY, SAMPLED):
            server.asked.clear()
            ours, theirs = ([*speculate(one, "hello", settings)] for one in (remote, local))
            assert emitted_ids(ours) == emitted_ids(theirs)
            assert all(r.server_seconds and r.server_seconds < 1 for r in ours)
            assert len(server.asked) == len(ours) + 1  # the prompt, then one request per round


def test_a_server_of_no_known_form_is_refused(
    target: Any, draft: Path, sentences: Sentences
) -> None:
    class Mute(FakeLlama):
        def complete(self, body: dict[str, Any]) -> Any:
            return {"content": "hello"}

    refused = sentences.raises(PairError)
    with fake_server(target, byte_level(VOCAB), Mute) as server, refused:
        load_pair(f"{server.url}#target+{draft}")
