"""A head on the target: its drafts in both published formats, and texts that stay exact."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds
from reference_distribution import text_p_value
from torch import Tensor
from toy_heads import ToyHead
from toy_models import emitted_ids, finish, generated, llama, outcome_counts, pair_of

import specviz.core.loop
from specviz import Pair, Settings, Trace, race, speculate
from specviz.base.errors import PairError
from specviz.core.eager import EagerEngine
from specviz.core.engine_choice import make_state_engine
from specviz.core.states import make_head_engine
from specviz.core.tensor_draws import draw, uniforms
from specviz.core.tensor_verdict import decide_on_tensors
from specviz.runs.identities import check_trace
from specviz.sides.heads import drafter as drafting
from specviz.sides.heads.eagle import HeadEngine
from specviz.sides.heads.eagle_files import load_head

VOCAB = 40
LAYERS = 7
PROMPT = [5, 3, 1, 4, 1, 5, 9, 2, 6]
SAMPLED = Settings(gamma=4, temperature=1.0, max_new_tokens=40, drafter="head")
SHORT = 24  # tokens of a greedy text
SIGNIFICANCE = 1e-4


def eager_engine(model: Any, vocab: int, **_: bool) -> EagerEngine:
    return EagerEngine(model, vocab)


@pytest.fixture(params=["fastest", "eager"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with compiled passes of target and head, and with the modules of transformers and
    torch."""
    if request.param == "eager":
        monkeypatch.setattr(specviz.core.loop, "make_engine", eager_engine)
        monkeypatch.setattr(drafting, "make_head_engine", lambda *args: HeadEngine(*args[:2]))
    return str(request.param)


def deep(vocab: int = VOCAB, layers: int = LAYERS, **config: Any) -> Any:
    return llama(vocab, num_hidden_layers=layers, initializer_range=0.2, **config)


@cache
def alone(prompt: tuple[int, ...]) -> list[int]:
    """The text that transformers' `generate` writes."""
    return generated(deep(), prompt, SHORT)


def with_head(head: ToyHead, folder: Path) -> Pair:
    loaded = load_head(str(folder), head.target, torch.device("cpu"))
    return pair_of(head.target, head=loaded)


def eagle(folder: Path) -> tuple[ToyHead, Pair]:
    """A head in the format of EAGLE-3's authors, with the default states 2, n / 2 and n - 3."""
    target = deep()
    head = ToyHead(target, (2, LAYERS // 2, LAYERS - 3), range(1, VOCAB, 2))
    return head, with_head(head, head.save_eagle(folder))


def speculators(folder: Path) -> tuple[ToyHead, Pair]:
    head = ToyHead(deep(), (1, 4, 6), range(VOCAB), norm_first=True, own=True, seed=1)
    return head, with_head(head, head.save_speculators(folder))


@pytest.mark.parametrize("publish", [eagle, speculators])
def test_the_chains_of_published_heads_are_what_their_description_says(
    publish: Any, form: str, tmp_path: Path
):
    """Whole runs are tested: chains begin at true states again after every kind of verdict."""
    head, pair = publish(tmp_path / "head")
    text = list(PROMPT)
    seen = 0
    rounds = list(speculate(pair, PROMPT, SAMPLED))
    for r in rounds:
        for place, token in enumerate(r.drafted):
            ids = [*text, *(t.id for t in r.drafted[:place])]
            q = head.logits(ids, place).softmax(-1)
            assert token.q == pytest.approx(q[token.id].item(), abs=2e-4)
            assert [one.id for one in token.top_q[:1]] == [int(q.argmax())]
            seen += 1
        text += [t.id for t in r.emitted]
    assert seen > 60
    counts = outcome_counts(rounds)
    assert counts["accepted"] > 3 and counts["rejected"] > 3


@pytest.mark.parametrize("prompt", [[7], [7, 8], [7, 8, 9]], ids=len)
def test_the_first_chain_after_a_short_prompt_reads_all_of_it(prompt: list[int], tmp_path: Path):
    head, pair = eagle(tmp_path / "head")
    text = list(prompt)
    for r in speculate(pair, prompt, SAMPLED):
        if r.drafted:  # nothing is drafted in the first round after a single token
            break
        text += [t.id for t in r.emitted]
    assert len(text) <= 1 + len(prompt)
    for place, token in enumerate(r.drafted):
        ids = [*text, *(t.id for t in r.drafted[:place])]
        q = head.logits(ids, place).softmax(-1)
        assert token.q == pytest.approx(q[token.id].item(), abs=2e-4)


def test_layers_that_a_checkpoint_names_are_counted_as_in_their_format(tmp_path: Path):
    """A layer number in `eagle_config` means its output; `speculators` counts the layers that have
    run."""
    head = ToyHead(deep(), (1, 2, 5), range(VOCAB))
    named = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 4]}}
    one = with_head(head, head.save_eagle(tmp_path / "one", **named)).head.config
    other = with_head(head, head.save_speculators(tmp_path / "other")).head.config
    assert one.states == other.states == (1, 2, 5)


def test_greedy_text_is_the_targets_own_from_any_prompt(form: str, tmp_path: Path):
    _, pair = eagle(tmp_path / "head")
    greedy = replace(SAMPLED, temperature=0.0, max_new_tokens=SHORT)
    for prompt in (PROMPT, [7], [7, 8]):
        events = list(race(pair, prompt, greedy))
        trace = Trace.from_events(events)
        check_trace(trace)
        assert trace.end is not None and trace.end.identical
        text = [t.id for r in trace.lane("speculative") for t in r.emitted]
        assert text == alone(tuple(prompt))
    header = events[0]
    assert header.draft["name"] == "head" and header.draft["parameters"] > 1000
    assert header.prefill_seconds["speculative"]["draft"] >= 0


@pytest.mark.parametrize("publish", [eagle, speculators])
def test_a_compiled_head_gives_the_same_logits_whatever_the_threads(
    publish: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    module = pytest.importorskip("specviz.sides.fast_cpu.engine")
    _, pair = publish(tmp_path / "head")
    ids = torch.tensor(PROMPT)
    rows = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(module, "threads_for", lambda *_, threads=threads: threads)
        target = make_state_engine(pair.target, VOCAB)
        target.keep_states(pair.head.states)
        target.forward(ids, keep=1)
        engine = make_head_engine(pair.head, VOCAB, target)
        assert engine.name == "compiled", "its logits differ from those of torch's modules"
        engine.prefill(ids, target.states)
        rows.append(torch.cat([engine.forward(ids[i : i + 1], keep=1) for i in range(3)]))
    assert torch.equal(rows[0], rows[1]) and torch.equal(rows[0], rows[2])


def corrects_from_p(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: Any) -> Tensor:
    """A wrong verifier: after a rejection, draw from the target instead of the residual."""
    accepted = decide_on_tensors(p, q, drafted, u, source)[0]
    return torch.stack([accepted, draw(p[accepted], uniforms(1, source)[0])])


@pytest.mark.parametrize("drafter", ["head", "ngram-head"])
@pytest.mark.parametrize("verifier", [decide_on_tensors, corrects_from_p])
def test_a_text_tells_a_wrong_verifier_from_the_right_one(
    verifier: Any, drafter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The head cannot draft every token, so some tokens come only from the residual. The prompt
    repeats itself, so some drafts are copies if the drafter copies."""
    monkeypatch.setattr(specviz.core.loop, "other_rule_of", lambda _: verifier)
    target = deep(4, 3, max_position_embeddings=1500)
    head = ToyHead(target, (1, 2, 3), (0, 2, 3))
    pair = with_head(head, head.save_speculators(tmp_path / "head"))
    settings = replace(SAMPLED, gamma=2, temperature=1.5, top_k=3, drafter=drafter)
    prompt = [0, 1, 2, 3, 2, 0, 1, 2, 3]
    with bare_rounds():
        rounds, _ = finish(pair, prompt, replace(settings, max_new_tokens=900))
    text = emitted_ids(rounds)
    assert len(text) == 900 and outcome_counts(rounds)["accepted"] > 200
    copied = sum(all(t.q == 1 for t in r.drafted) for r in rounds if r.drafted)
    assert (copied > 30) == (drafter == "ngram-head")
    fit = text_p_value(target, prompt, text, settings)
    assert fit > SIGNIFICANCE if verifier is decide_on_tensors else fit < SIGNIFICANCE


def test_what_repeats_is_copied_and_a_head_drafts_a_third_of_the_rest(tmp_path: Path):
    _, pair = eagle(tmp_path / "head")
    settings = replace(SAMPLED, gamma=5, drafter="ngram-head")
    rounds, _ = finish(pair, [7, 8, 9, 10, 11, 12, 7, 8, 9, 10], settings)
    assert [t.id for t in rounds[0].drafted] == [11, 12, 7, 8], "the rest of what stood before"
    assert all(t.q == 1 for t in rounds[0].drafted)
    alone, _ = finish(pair, PROMPT, settings)
    assert len(alone[0].drafted) == 2 and all(t.q < 1 for t in alone[0].drafted)


def test_copies_are_as_many_as_those_before_let_expect(tmp_path: Path):
    """The number of copies follows its definition, in a text that accepts some copies."""
    _, pair = eagle(tmp_path / "head")
    prompt = [1, 2, 3, 4, 5, 6, 7, 8] * 2
    settings = replace(SAMPLED, gamma=6, drafter="ngram-head", top_k=4, max_new_tokens=300)
    rounds, _ = finish(pair, prompt, settings)
    ids = list(prompt)
    likely = {4: 2.0, 3: 1.2, 2: 0.5}
    counts = set()
    for r in rounds:
        if len(ids) > len(prompt) + 290:  # too little room for all drafts
            break
        ends = [n for n in likely if any(ids[i - n : i] == ids[-n:] for i in range(n, len(ids)))]
        size = ends[0] if ends else 0
        accepted = sum(t.outcome == "accepted" for t in r.drafted)
        if size and likely[size] >= 0.35:
            copies = min(6, max(2, math.ceil(2 * likely[size])))
            assert [t.q for t in r.drafted] == [1.0] * copies
            likely[size] = 0.8 * likely[size] + 0.2 * accepted
            counts.add((size, copies))
        else:
            assert len(r.drafted) == 2 and min(t.q for t in r.drafted) < 1
            counts.add((size, 0))
        ids += [t.id for t in r.emitted]
    assert {(0, 0), (2, 0), (2, 2), (4, 4)} <= counts and len(counts) > 6, counts


def test_lanes_without_a_head_run_the_same_modules_as_before(tmp_path: Path):
    _, pair = eagle(tmp_path / "head")
    before = list(pair.target.named_modules())
    finish(pair, PROMPT, SAMPLED)
    assert list(pair.target.named_modules()) == before
    assert not any(m._forward_hooks for m in pair.target.modules())
    with pytest.raises(PairError, match="TARGET\\+HEAD"):
        finish(pair_of(pair.target), PROMPT, SAMPLED)
