"""Logits become probabilities, tokens and a verdict."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference_distribution import processed_distribution
from torch import Tensor
from toy_models import examples

from specviz import Settings
from specviz.core.draws import drawn_id
from specviz.core.tensor_draws import draw, probabilities, residual, uniforms
from specviz.core.tensor_verdict import decide_on_tensors
from specviz.core.truncation import LISTS, largest, truncated
from specviz.sampling import Verdict, verify

LOGITS = st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=12)
# Few distinct values, so that ties are common.
TIED = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=2, max_size=12)
SETTINGS = st.builds(
    Settings,
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.5, 4.0]),
    top_k=st.integers(0, 13),
    top_p=st.sampled_from([0.05, 0.33, 0.61, 0.87, 1.0]),
)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def law_of(logits: list[float], **settings: float) -> list[float]:
    return probabilities(torch.tensor([logits]), Settings(**settings))[0].tolist()


@examples(60)
@given(LOGITS | TIED, SETTINGS)
def test_a_row_is_a_distribution(logits: list[float], settings: Settings):
    p = probabilities(torch.tensor([logits]), settings)
    assert p.dtype == torch.float32 and p.shape == (1, len(logits))
    assert (p >= 0).all() and p.sum().item() == pytest.approx(1.0, abs=1e-6)


@examples(60)
@given(TIED, SETTINGS)
def test_a_row_is_what_the_definitions_say(logits: list[float], settings: Settings):
    """The lowest ids stay if several tie."""
    p = probabilities(torch.tensor([logits]), settings)[0].double().numpy()
    wanted = processed_distribution(logits, settings)
    # A cut exactly at the mass of top-p may go either way in floating point.
    masses = np.cumsum(
        np.sort(
            processed_distribution(
                logits, Settings(temperature=settings.temperature, top_k=settings.top_k)
            )
        )[::-1]
    )
    if np.abs(masses - settings.top_p).min() > 1e-5 or settings.top_p == 1.0:
        np.testing.assert_allclose(p, wanted, atol=1e-6)


@examples(60)
@given(LOGITS, SETTINGS)
def test_rows_do_not_depend_on_each_other(logits: list[float], settings: Settings):
    row = torch.tensor([logits])
    other = torch.tensor([logits[::-1]])
    both = probabilities(torch.cat([row, other]), settings)
    assert torch.equal(both[:1], probabilities(row, settings))
    assert torch.equal(both[1:], probabilities(other, settings))


def test_greedy_is_one_hot_and_ties_go_to_the_lowest_id():
    assert law_of([1.0, 3.0, 3.0, 3.0], temperature=0.0) == [0.0, 1.0, 0.0, 0.0]


def test_top_k_ties_go_to_the_lowest_ids():
    assert law_of([0.0, 2.0, 2.0, 2.0], temperature=1.0, top_k=2) == [0.0, 0.5, 0.5, 0.0]


def test_top_p_ties_go_to_the_lowest_ids():
    assert law_of([1.0] * 4, temperature=1.0, top_p=0.5) == [0.5, 0.5, 0.0, 0.0]


def test_top_p_shares_what_top_k_left():
    # 0.4 0.3 0.2 0.1: top-k leaves 0.7, and the first token has 4/7 of that, more than a half.
    logits = [math.log(x) for x in (0.4, 0.3, 0.2, 0.1)]
    assert law_of(logits, temperature=1.0, top_k=2, top_p=0.5) == [1.0, 0.0, 0.0, 0.0]
    kept = law_of(logits, temperature=1.0, top_k=2, top_p=0.6)
    assert kept == pytest.approx([4 / 7, 3 / 7, 0.0, 0.0])


@pytest.mark.parametrize(
    "settings",
    [
        Settings(temperature=1.0, top_k=LISTS[-1] + 500),
        Settings(temperature=1.0, top_k=LISTS[-1] + 500, top_p=0.7),
        Settings(temperature=1.0, top_k=LISTS[-1] + 500, top_p=0.99),
        Settings(temperature=1.0, top_p=0.02),
        Settings(temperature=1.0, top_p=0.3),
        Settings(temperature=1.0, top_p=0.9),
        Settings(temperature=1.0, top_k=40),
        Settings(temperature=1.0, top_k=40, top_p=0.9),
    ],
    ids=lambda s: f"{s.top_k}-{s.top_p}",
)
@pytest.mark.parametrize("spread", [0.5, 3.0])
@pytest.mark.parametrize("vocab", [4 * LISTS[-1], 40_000])
def test_large_vocabularies_are_truncated_alike(settings: Settings, spread: float, vocab: int):
    """This holds for any share of the vocabulary that must be sorted."""
    logits = spread * torch.randn(1, vocab, generator=rng())
    p = probabilities(logits, settings)[0].double().numpy()
    np.testing.assert_allclose(p, processed_distribution(logits[0].tolist(), settings), atol=1e-6)


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (0, 0.6), (5, 0.6)])
@pytest.mark.parametrize("vocab", [8, 40_000])
def test_ties_are_broken_alike_in_vocabularies_of_any_size(top_k: int, top_p: float, vocab: int):
    p = torch.zeros(2, vocab)
    p[:, [1, 3, 4, 6, 7]] = 0.2
    p[1, [0, 7]] = torch.tensor([0.4, 0.0])  # a tie that no end divides
    p[1, 6] = 0.0
    kept = truncated(p, top_k, top_p)
    assert kept[0].nonzero().flatten().tolist() == [1, 3, 4]
    assert kept[1].nonzero().flatten().tolist() == ([0, 1, 3] if top_k == 3 else [0, 1])
    assert kept.sum(-1).tolist() == pytest.approx([1.0, 1.0])


@examples(40)
@given(st.integers(1, 9), st.integers(0, 130), st.integers(0, 2**32))
def test_the_largest_entries_are_those_of_a_sort(count: int, extra: int, seed: int):
    values = torch.randn(2, 6000 + extra, generator=torch.Generator().manual_seed(seed))
    values[:, -1 - seed % 100] += 9.0
    found, ids = largest(values, count)
    wanted = values.sort(-1, descending=True)
    assert torch.equal(found, wanted.values[:, :count])
    assert torch.equal(ids, wanted.indices[:, :count])


@pytest.mark.parametrize("temperature", [1e-300, 1e-60, 1e-40, 1e-5])
def test_a_tiny_temperature_is_nearly_greedy(temperature: float):
    assert law_of([1.0, 3.0, 2.0], temperature=temperature) == [0.0, 1.0, 0.0]


def test_half_precision_logits_become_fp32_probabilities():
    p = probabilities(torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16), Settings(temperature=1.0))
    assert p.dtype == torch.float32


@examples(60)
@given(LOGITS, st.floats(0, 1, exclude_max=True))
def test_a_draw_is_never_impossible(logits: list[float], u: float):
    weights = torch.tensor(logits).clamp(min=0.0)
    weights[len(logits) // 2] = 0.7
    drawn = draw(weights, torch.tensor(u, dtype=torch.float64))
    assert weights[drawn] > 0


@pytest.mark.parametrize("u", [0.0, 1.0 - 2**-53])
def test_the_ends_of_the_unit_interval_draw_possible_ids(u: float):
    weights = torch.tensor([0.0, 0.1, 0.0, 0.2, 0.0])
    assert draw(weights, torch.tensor(u, dtype=torch.float64)).item() == (1 if u == 0 else 3)


@pytest.mark.parametrize("vocab", [1, 65, 5000])
@pytest.mark.parametrize("scale", [1.0, 1e-42])
def test_a_draw_in_the_hosts_memory_gives_the_very_id_that_a_running_sum_gives(
    vocab: int, scale: float
):
    """This includes draws right next to the border of a token's share."""
    numbers = np.random.default_rng(vocab)
    for sharpness in numbers.uniform(0, 12, 60):
        weights = np.exp(sharpness * numbers.normal(size=vocab)) * (numbers.random(vocab) < 0.5)
        weights[numbers.integers(vocab)] = 1.0
        row = (scale * weights / weights.max()).astype(np.float32)
        sums = row.cumsum(dtype=np.float64)
        ends = numbers.choice(sums, 20) / sums[-1]
        near = [end + by for end in ends for by in (-1e-7, -1e-9, -1e-12, 1e-12, 1e-9, 1e-7)]
        for u in [0.0, *near, *numbers.random(20), 1 - 2**-53]:
            if 0 <= u < 1:
                place = drawn_id(row, u)
                assert place == sums.searchsorted(u * sums[-1], side="right")
                assert row[place] > 0


def test_a_row_of_nothing_that_can_be_drawn_gives_an_id_all_the_same():
    for weight in (0.0, np.nan, np.inf):
        row = np.full(70, weight, np.float32)
        assert all(0 <= drawn_id(row, u) < 70 for u in (0.0, 0.5, 1 - 2**-53))


def test_draws_follow_their_weights():
    weights = torch.tensor([1.0, 0.0, 3.0])
    grid = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
    drawn = torch.stack([draw(weights, u) for u in grid])
    assert drawn.bincount(minlength=3).tolist() == [100, 0, 300]


def test_uniforms_lie_in_the_half_open_unit_interval():
    u = uniforms(10_000, rng())
    assert u.dtype == torch.float64 and (u >= 0).all() and (u < 1).all()


def test_the_residual_is_what_p_has_above_q():
    p = torch.tensor([0.5, 0.5, 0.0])
    q = torch.tensor([0.2, 0.6, 0.2])
    assert residual(p, q).tolist() == [1.0, 0.0, 0.0]


def test_a_residual_without_mass_falls_back_to_p():
    p = torch.tensor([0.25, 0.75])
    assert torch.equal(residual(p, p), p)
    assert torch.equal(residual(p, torch.tensor([float("nan"), 0.5])), p)


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def test_a_token_that_the_target_rules_out_is_refused_even_at_u_zero():
    p = rows([1.0, 0.0], [0.5, 0.5])
    q = rows([0.0, 1.0])
    assert verify(p, q, torch.tensor([1]), torch.zeros(1), rng()) == (0, 0, "corrected")


def test_nothing_after_the_first_refusal_is_accepted():
    p = rows([0.0, 1.0], [1.0, 0.0], [0.5, 0.5])
    q = rows([1.0, 0.0], [1.0, 0.0])
    assert verify(p, q, torch.tensor([0, 0]), torch.zeros(2), rng()) == (0, 1, "corrected")


def test_a_draft_equal_to_the_target_is_accepted_and_earns_a_bonus():
    p = rows([0.3, 0.7], [0.6, 0.4], [0.0, 1.0])
    u = torch.full((2,), 1.0 - 2**-24)
    assert verify(p, p[:2], torch.tensor([1, 0]), u, rng()) == Verdict(2, 1, "bonus")


def test_without_drafts_the_bonus_is_drawn_from_p():
    p = rows([0.0, 1.0, 0.0])
    assert verify(p, p[:0], torch.tensor([], dtype=torch.long), torch.zeros(0), rng()) == (
        0,
        1,
        "bonus",
    )


def exact_marginal(p: Tensor, q: Tensor) -> np.ndarray:
    """The distribution of the first emitted token: drafted with q, with u on a fine grid and an
    exact residual."""
    law = np.zeros(p.shape[-1])
    grid = [(i + 0.5) / 100 for i in range(100)]
    for token, chance in enumerate(q[0].tolist()):
        for u in grid if chance else []:
            drafted = torch.tensor([token])
            accepted, _ = decide_on_tensors(p, q, drafted, torch.tensor([u]), rng()).tolist()
            if accepted:
                law[token] += chance / len(grid)
            else:
                law += chance / len(grid) * residual(p[0], q[0]).double().numpy()
    return law


SMALL = st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any)


@examples(15)
@given(SMALL, SMALL)
def test_the_marginal_law_of_a_verdict_is_p(ours: list[int], theirs: list[int]):
    p, q = (torch.tensor([w], dtype=torch.float32) / sum(w) for w in (ours, theirs))
    law = exact_marginal(torch.cat([p, p]), q)
    np.testing.assert_allclose(law, p[0].numpy(), atol=0.02)  # the grid is 1/100 wide


@pytest.mark.filterwarnings("ignore:torch.searchsorted")
@examples(60)
@given(st.integers(0, 6), st.integers(2, 9), st.integers(0, 99))
def test_a_verdict_stays_inside_the_run_and_the_vocabulary(gamma: int, vocab: int, seed: int):
    noise = rng(seed)
    settings = Settings(temperature=1.0, top_k=2)
    p = probabilities(3 * torch.randn(gamma + 1, vocab, generator=noise), settings)
    q = probabilities(3 * torch.randn(gamma, vocab, generator=noise), settings)
    drafted = draw(q, uniforms(gamma, noise))
    accepted, next_id, outcome = verify(p, q, drafted, uniforms(gamma, noise), noise)
    assert 0 <= accepted <= gamma and 0 <= next_id < vocab
    assert outcome == ("bonus" if accepted == gamma else "corrected")
    assert all(p[i, drafted[i]] > 0 for i in range(accepted)) and p[accepted, next_id] > 0
