"""llama.cpp's own server, a real engine in every test run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest
import torch
from altering_proxy import altered
from llama_server import CONTEXT, PROMPT, LlamaServer
from places import ROOT
from sentences import Sentences
from toy_models import emitted_ids

from specviz import Pair, Settings, Trace, baseline, load_pair, race, speculate
from specviz.base.errors import PairError
from specviz.pairs.doctor import examine_pair
from specviz.pairs.spec import parse_pair
from specviz.runs.identities import check_trace

DRAFT = ROOT / "assets" / "pair" / "draft"

TIED = 1e-3  # nats: far above the rounding of other fp32 kernels, far below a real preference


def assert_same_or_tied(pair: Pair, text: str, ours: Sequence[int], theirs: Sequence[int]) -> None:
    """Assert that two greedy texts are equal or diverge at a tie of the target."""
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), None)
    if same is None:
        return
    ids = [*pair.tokenizer(text)["input_ids"], *ours[:same]]
    with torch.inference_mode():
        row = pair.target(torch.tensor([ids])).logits[0, -1]
    behind = float(row.max() - torch.minimum(row[ours[same]], row[theirs[same]]))
    assert behind < TIED, f"token {same}: the worse candidate is {behind:.2g} nats behind"


@pytest.fixture(scope="module")
def builtin() -> Pair:
    return load_pair("builtin")


@pytest.mark.parametrize("draft", [False, True])
def test_it_writes_the_greedy_text_of_the_same_target_here(
    llama_cpp: Callable[..., LlamaServer], builtin: Pair, draft: bool
) -> None:
    pair = builtin
    server = llama_cpp(draft=draft)
    question = {
        "prompt": pair.tokenizer(PROMPT)["input_ids"],
        "n_predict": 64,
        "temperature": 0,
        "return_tokens": True,
    }
    answer = httpx.post(server.url.removesuffix("v1") + "completion", json=question).json()
    local = baseline(pair, PROMPT, Settings(max_new_tokens=64))
    assert_same_or_tied(pair, PROMPT, emitted_ids(local), answer["tokens"])
    times = answer["timings"]
    assert ("draft_n" in times) == draft
    assert not draft or 0 < times["draft_n_accepted"] < times["draft_n"]


@pytest.mark.parametrize("in_a_file", [False, True])
def test_as_a_target_it_judges_drafts_of_this_machine(
    llama_cpp: Callable[..., LlamaServer],
    gguf_pair: tuple[Path, Path],
    builtin: Pair,
    in_a_file: bool,
) -> None:
    """The draft is a folder or a GGUF file."""
    draft = gguf_pair[1] if in_a_file else DRAFT
    pair = load_pair(f"{llama_cpp().url}#target+{draft}")
    report = examine_pair(parse_pair(f"{llama_cpp().url}#target+{draft}"))
    assert report.verdict != "stop" and pair.draft is not None
    assert pair.target.identity.software.startswith("llama.cpp")
    assert pair.target.listed == pair.vocab
    settings = Settings(max_new_tokens=24, gamma=4)
    trace = Trace.from_events(race(pair, PROMPT, settings))
    check_trace(trace)
    assert trace.end is not None and trace.end.identical
    assert all(0 < (r.server_seconds or 0) <= r.verify_seconds for r in trace.rounds)
    assert trace.header.streaming_rate is not None and trace.header.streaming_rate > 0
    ours = [t.id for r in trace.lane("baseline") for t in r.emitted]
    assert_same_or_tied(builtin, PROMPT, ours, emitted_ids(baseline(builtin, PROMPT, settings)))


def test_it_puts_turns_into_its_models_template(llama_cpp: Callable[..., LlamaServer]) -> None:
    turns = [
        {"role": "system", "content": "Tell a story."},
        {"role": "user", "content": "Of a king."},
        {"role": "assistant", "content": "Once upon"},
        {"role": "user", "content": "Go on."},
    ]
    watched = load_pair(f"{llama_cpp(draft=True).url}#target")
    trace = Trace.from_events(race(watched, turns, Settings(max_new_tokens=4, ignore_eos=True)))
    check_trace(trace)
    places = [trace.header.prompt.index(turn["content"]) for turn in turns]
    assert places == sorted(places) and trace.header.question == "Go on."
    assert sum(len(r.emitted) for r in trace.lane("speculative")) == 4


def test_it_is_asked_once_for_each_round(llama_cpp: Callable[..., LlamaServer]) -> None:
    local = load_pair("builtin")
    with altered(llama_cpp().url) as proxy:
        remote = load_pair(f"{proxy.url}#target+{DRAFT}")
        assert remote.target.listed == remote.vocab and not remote.target.draws
        assert remote.target.identity.context == CONTEXT
        for temperature in (0.0, 0.9):
            settings = Settings(
                max_new_tokens=16, gamma=3, temperature=temperature, top_p=0.95, seed=5
            )
            proxy.paths.clear()
            ours = [*speculate(remote, PROMPT, settings)]
            assert emitted_ids(ours) == emitted_ids(speculate(local, PROMPT, settings))
            assert all(r.server_seconds and r.server_seconds < 1 for r in ours)
            # The prompt, then one request per round.
            assert proxy.paths == ["/completion"] * (len(ours) + 1)


def test_a_server_of_no_known_form_is_refused(
    llama_cpp: Callable[..., LlamaServer], sentences: Sentences
) -> None:
    def unknown(path: str, text: str) -> str:
        return '{"content": "hello"}' if path == "/completion" else text

    with altered(llama_cpp().url, text=unknown) as proxy, sentences.raises(PairError):
        load_pair(f"{proxy.url}#target+{DRAFT}")
