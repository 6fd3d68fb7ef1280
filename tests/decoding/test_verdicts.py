"""All verdicts: three follow the target's distribution, and the fourth must not."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from reference_distribution import Distribution, Ids, p_value
from stand_in_device import host_waits, on_device, stand_in
from test_exactness import SIGNIFICANCE, chain_fits, sampling
from torch import Tensor
from toy_models import emitted_ids, llama, pair_of, relative

from specviz import Pair, Round, Settings, Trace, baseline, compute_metrics, race, speculate
from specviz.core.loop import decode, start_lane
from specviz.core.registry import verdict_kind, verdict_names
from specviz.core.tensor_draws import PremadeDraws, uniforms
from specviz.core.tensor_path import TensorPath
from specviz.core.tensor_verdict import decide_on_tensors
from specviz.runs.identities import check_trace
from specviz.runs.rerun import compared
from specviz.sides.verdicts import block, typical

GAMMA = 3
WORDS = 3
SAMPLES = 1000
UNLIKE = (1, 12)  # seeds of two tables that rarely agree
EXACT = [name for name in verdict_names() if verdict_kind(name).exact]
RULES = {name: verdict_kind(name).decide for name in verdict_names()}


def tables(seed: int) -> dict[Ids, Tensor]:
    """A table with a distribution over `WORDS` tokens after each text of up to `GAMMA` tokens."""
    generator = torch.Generator().manual_seed(seed)
    texts = (ids for n in range(GAMMA + 1) for ids in product(range(WORDS), repeat=n))
    return {ids: torch.softmax(2 * torch.randn(WORDS, generator=generator), -1) for ids in texts}


def drafts(draft: dict[Ids, Tensor]) -> Iterator[tuple[Ids, float]]:
    """Every draft run with the length of the table's longest text, and its probability."""
    words = len(draft[()])
    length = max(map(len, draft))
    for ids in product(range(words), repeat=length):
        mass = 1.0
        for place, token_id in enumerate(ids):
            mass *= float(draft[ids[:place]][token_id])
        yield ids, mass


def rows(table: dict[Ids, Tensor], ids: Ids, count: int) -> Tensor:
    return torch.stack([table[ids[:place]] for place in range(count)])


def whole_texts(rule: Any, target: dict[Ids, Tensor], draft: dict[Ids, Tensor]) -> list[Ids]:
    """Write texts of GAMMA + 1 tokens: one round judged by `rule`, the rest drawn from the
    target."""
    chance = np.random.default_rng(1)
    runs, masses = zip(*drafts(draft), strict=True)
    known = {ids: (rows(target, ids, GAMMA + 1), rows(draft, ids, GAMMA)) for ids in runs}
    sums = {ids: row.double().numpy().cumsum() for ids, row in target.items()}
    texts = []
    for place in chance.choice(len(runs), SAMPLES, p=np.array(masses) / sum(masses)):
        ids = runs[place]
        draws = torch.from_numpy(chance.random(GAMMA + 1))
        source = PremadeDraws(draws[GAMMA:])
        accepted, next_id = rule(*known[ids], torch.tensor(ids), draws[:GAMMA], source).tolist()
        text = (*ids[:accepted], next_id)
        while len(text) <= GAMMA:
            so_far = sums[text]
            token_id = so_far.searchsorted(chance.random() * so_far[-1], side="right")
            text = (*text, int(token_id))
        texts.append(text)
    return texts


def law(target: dict[Ids, Tensor]) -> Distribution:
    texts = product(range(WORDS), repeat=GAMMA + 1)
    return {
        ids: float(torch.stack([target[ids[:n]][ids[n]] for n in range(GAMMA + 1)]).double().prod())
        for ids in texts
    }


def expected_kept(target: dict[Ids, Tensor], draft: dict[Ids, Tensor]) -> dict[str, float]:
    """The expected number of drafts of a run that each exact rule keeps."""
    expected = dict.fromkeys(EXACT, 0.0)
    for ids, mass in drafts(draft):
        p = rows(target, ids, len(ids) + 1)
        q = rows(draft, ids, len(ids))
        given = torch.tensor(ids)
        own = p[:-1].gather(-1, given[:, None])[:, 0].double()
        kept = (own / q.gather(-1, given[:, None])[:, 0].double()).clamp(max=1)
        failed = 1 - block.block_numbers(p, q, given)[1]
        expected["token"] += mass * float(kept.cumprod(0).sum())
        expected["block"] += mass * float((1 - failed.flip(0).cumprod(0)).sum())
        expected["exact-match"] += mass * float(own.cumprod(0).sum())
    return expected


@pytest.mark.parametrize("name", verdict_names())
def test_texts_of_three_verdicts_follow_the_target_and_of_the_fourth_do_not(name: str):
    target = tables(UNLIKE[0])
    draft = tables(UNLIKE[1])
    fit = p_value(whole_texts(RULES[name], target, draft), law(target))
    assert fit > SIGNIFICANCE if name in EXACT else fit < SIGNIFICANCE


def test_a_block_that_takes_its_weight_for_the_threshold_fails(monkeypatch: pytest.MonkeyPatch):
    """This rule ignores the residual at the next position."""
    right = block.block_numbers

    def lenient(p: Tensor, q: Tensor, drafted: Tensor) -> tuple[Tensor, Tensor]:
        weight, _ = right(p, q, drafted)
        return weight, weight

    monkeypatch.setattr(block, "block_numbers", lenient)
    target = tables(UNLIKE[0])
    draft = tables(UNLIKE[1])
    assert p_value(whole_texts(block.decide_block, target, draft), law(target)) < SIGNIFICANCE


def test_what_follows_a_block_is_drawn_from_what_its_weight_leaves():
    """The distribution is norm(max(0, weight p - q)) at the position after the accepted drafts."""
    target = tables(UNLIKE[0])
    draft = tables(UNLIKE[1])
    places = 0
    draws = (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    for ids, _ in drafts(draft):
        p = rows(target, ids, GAMMA + 1)
        q = rows(draft, ids, GAMMA)
        given = torch.tensor(ids)
        weight, threshold = block.block_numbers(p, q, given)
        for kept in range(1, GAMMA):
            left = (weight[kept - 1] * p[kept].double() - q[kept].double()).clamp(min=0.0)
            if weight[kept - 1] > 0.9 or left.sum() < 1e-3:
                continue
            u = torch.ones(GAMMA, dtype=torch.float64)
            u[kept - 1] = threshold[kept - 1] / 2
            found = [
                block.decide_block(p, q, given, u, PremadeDraws(one[None])).tolist()
                for one in draws
            ]
            assert {accepted for accepted, _ in found} == {kept}
            shares = np.bincount([one for _, one in found], minlength=WORDS) / len(draws)
            assert shares == pytest.approx((left / left.sum()).numpy(), abs=0.011)
            places += 1
    assert places >= 5


def test_typical_asks_less_of_a_draft_where_the_target_is_less_certain():
    """The threshold is min(0.09, 0.3 exp(-H)): up to 0.3 / n for n equally likely tokens, and 0.09
    for a certain one."""
    rows_of = [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0, 0.0, 0.0], [1 / 6] * 6]
    wanted = [min(typical.TYPICAL_EPSILON, typical.TYPICAL_DELTA / n) for n in (1, 2, 6)]
    found = typical.typical_thresholds(torch.tensor(rows_of)).tolist()
    assert found == pytest.approx(wanted, abs=1e-6)
    assert found[0] > found[2]


def test_block_keeps_no_less_than_token_and_exact_match_no_more():
    better = 0
    for seed in range(8):
        expected = expected_kept(tables(2 * seed), tables(2 * seed + 1))
        assert expected["block"] >= expected["token"] - 1e-6
        assert expected["token"] >= expected["exact-match"] - 1e-6
        better += expected["block"] > expected["token"] + 1e-3
    assert better >= 4


def test_the_published_example_of_block_verification():
    """The example of Sun et al. 2024, introduction, has two tokens, the same distribution after any
    text, and two drafts."""
    texts = [ids for n in range(3) for ids in product(range(2), repeat=n)]
    target, draft = (dict.fromkeys(texts, torch.tensor(row) / 3) for row in ([1, 2], [2, 1]))
    expected = expected_kept(target, draft)
    assert expected["token"] == pytest.approx(10 / 9)
    assert expected["block"] == pytest.approx(11 / 9)


@pytest.mark.parametrize("name", verdict_names())
def test_one_hot_rows_get_one_verdict(name: str):
    """A greedy run therefore needs only one rule: see `Settings.effective_verdict`."""
    source = torch.Generator().manual_seed(1)
    for ids in product(range(2), repeat=GAMMA):
        p = torch.eye(3)[[0, 1, 0, 2]]
        q = torch.eye(3)[list(ids)]
        values = p, q, torch.tensor(ids), uniforms(GAMMA, source), source
        assert RULES[name](*values).tolist() == decide_on_tensors(*values).tolist()


@pytest.mark.parametrize("name", EXACT[1:])
def test_a_long_run_of_an_exact_verdict_follows_the_target(name: str):
    assert chain_fits(replace(sampling(5, 0.7, top_k=3, top_p=0.8), verdict=name)) > SIGNIFICANCE


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(64, num_hidden_layers=2)
    return pair_of(target, relative(target, noise=0.1))


OTHERS = [name for name in verdict_names() if name != "token"]


@pytest.mark.parametrize("drafter", ["model", "ngram"])
@pytest.mark.parametrize("name", OTHERS)
def test_all_paths_judge_alike(
    pair: Pair, name: str, drafter: str, monkeypatch: pytest.MonkeyPatch
):
    settings = Settings(
        gamma=4, drafter=drafter, max_new_tokens=50, ignore_eos=True, temperature=0.9, verdict=name
    )

    def judged() -> list[tuple[Any, ...]]:
        events = decode(pair, [1, 2, 3] * 4, settings, "speculative")
        rounds = [e for e in events if isinstance(e, Round)]
        return [(t.id, t.outcome) for r in rounds for t in (*r.drafted, r.emitted[-1])]

    by_numpy = judged()
    monkeypatch.setenv("SPECVIZ_FORM", "static")
    by_programs = judged()
    monkeypatch.delenv("SPECVIZ_FORM")
    monkeypatch.setattr("specviz.core.paths.NumpyPath", TensorPath)
    monkeypatch.setattr("specviz.sides.fast_cpu.engine.drafts_at_once", lambda *_: False)
    assert by_numpy == by_programs == judged()
    assert {outcome for _, outcome in by_numpy} >= {"rejected", "corrected"}


@pytest.mark.usefixtures(stand_in.__name__)
@pytest.mark.parametrize("form", ["eager", "static"])
@pytest.mark.parametrize("name", OTHERS)
def test_a_round_waits_once_for_its_verdict(
    pair: Pair, name: str, form: str, monkeypatch: pytest.MonkeyPatch
):
    if form == "static":
        monkeypatch.setenv("SPECVIZ_FORM", "static")
    there = pair_of(*(on_device(copy.deepcopy(m)) for m in (pair.target, pair.draft)))
    settings = Settings(gamma=3, max_new_tokens=8, temperature=1.0, top_k=9, verdict=name)
    run = start_lane(there, [3, 1, 4, 1], settings, "speculative")
    run.prefill()
    with host_waits() as waits:
        count = 0
        while run.ended is None:
            run.round()
            count += 1
    assert waits == ["tolist", "_to_copy"] * count and count > 1


def recorded(pair: Pair, settings: Settings) -> Trace:
    header, *rounds, end = race(pair, [1, 2, 3] * 4, settings)
    return Trace(header, rounds, end)


@pytest.mark.parametrize("name", OTHERS)
def test_a_recording_of_any_verdict_is_read_and_measured(pair: Pair, name: str):
    settings = Settings(gamma=4, max_new_tokens=90, temperature=0.9, verdict=name)
    trace = Trace.from_dict(recorded(pair, settings).to_dict())
    check_trace(trace)
    metrics = compute_metrics(trace)
    assert metrics.alpha is not None and metrics.beta is not None
    if name != "block":  # block judges whole rounds, so positions have no chance
        assert metrics.alpha == pytest.approx(metrics.beta, abs=0.2)


@pytest.mark.parametrize("name", OTHERS)
def test_a_forged_number_of_a_verdict_is_not_what_a_second_run_gives(pair: Pair, name: str):
    field = {"block": "weight", "exact-match": "chance", "typical": "threshold"}[name]
    settings = Settings(gamma=4, max_new_tokens=40, temperature=0.9, verdict=name)
    trace = recorded(pair, settings)
    data = trace.to_dict()
    r = next(r for r in data["rounds"] if r["drafted"] and r["drafted"][0]["outcome"] == "rejected")
    r["drafted"][0][field] = 0.9 if r["drafted"][0][field] < 0.5 else 0.1
    found = compared(Trace.from_dict(data), recorded(pair, settings))
    assert [change.where for change in found.changes] == [
        f"round {r['index'] + 1} of the speculative lane, drafted token 1, {field}"
    ]
    assert compared(trace, found.again).same


@pytest.mark.parametrize("name", OTHERS)
def test_a_greedy_run_is_the_same_with_every_verdict(pair: Pair, name: str):
    settings = Settings(gamma=4, max_new_tokens=40, verdict=name)
    assert settings.effective_verdict == "token" and settings.exact
    assert emitted_ids(speculate(pair, [1, 2, 3], settings)) == emitted_ids(
        baseline(pair, [1, 2, 3], settings)
    )
