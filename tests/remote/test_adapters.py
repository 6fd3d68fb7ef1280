"""Targets on other engines than vLLM: the same tokens, by each engine's own questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_completions import FakeServer, fake_server
from fake_engines import FakeLlama, FakeSglang
from model_families import saved
from toy_models import byte_level, emitted_ids, llama, relative

from specviz import Pair, Settings, load_pair, speculate
from specviz.errors import PairError

VOCAB = 300
GREEDY = Settings(max_new_tokens=16, gamma=4)
SAMPLED = Settings(max_new_tokens=16, gamma=3, temperature=0.9, top_p=0.95, seed=5)
FORMS = {FakeSglang: "SGLang 0.5.5", FakeLlama: "llama.cpp b11549"}


@pytest.fixture(scope="module")
def target() -> Any:
    return llama(VOCAB, hidden_size=32, num_hidden_layers=2, max_position_embeddings=128)


@pytest.fixture(scope="module")
def draft(target: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines") / "draft"
    return saved(folder, relative(target, noise=0.05), byte_level(VOCAB))


@pytest.mark.parametrize("kind", FORMS)
def test_each_engine_is_known_by_its_answers_and_asked_in_its_form(
    kind: type[FakeServer], target: Any, draft: Path
) -> None:
    with fake_server(target, byte_level(VOCAB), kind) as server:
        remote = load_pair(f"{server.url}#target+{draft}")
        assert remote.target.abilities.software == FORMS[kind]
        assert remote.target.abilities.listed == VOCAB
        assert remote.target.abilities.context == 128
        local = Pair(target=target, draft=remote.draft, tokenizer=remote.tokenizer)
        for settings in (GREEDY, SAMPLED):
            server.asked.clear()
            ours, theirs = ([*speculate(one, "hello", settings)] for one in (remote, local))
            assert emitted_ids(ours) == emitted_ids(theirs)
            assert all(r.server_seconds and r.server_seconds < 1 for r in ours)
            assert len(server.asked) == len(ours) + 1  # the prompt, then one request per round
    if kind is FakeSglang:
        last = server.asked[-1]
        assert last["logprob_start_len"] == len(last["input_ids"]) - len(ours[-1].drafted) - 1


def test_a_short_list_of_sglang_is_refused_where_it_is_not_exact(target: Any, draft: Path) -> None:
    with fake_server(target, byte_level(VOCAB), FakeSglang, most=20) as server:
        remote = load_pair(f"{server.url}#target+{draft}")
        assert remote.target.abilities.listed == 20
        with pytest.raises(PairError, match="top_k from 1 to 20"):
            [*speculate(remote, "hello", SAMPLED)]
        with pytest.raises(PairError, match="set top_k"):
            remote.target.server.draws([[1]], [], SAMPLED, seed=1)


def test_a_server_of_no_known_form_is_refused(target: Any, draft: Path) -> None:
    class Mute(FakeSglang):
        def generate(self, body: dict[str, Any]) -> dict[str, Any]:
            return {"text": "hello"}

    refused = pytest.raises(PairError, match="no log-probabilities by token id")
    with fake_server(target, byte_level(VOCAB), Mute) as server, refused:
        load_pair(f"{server.url}#target+{draft}")
