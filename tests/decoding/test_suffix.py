"""Drafts from counts of the tokens that followed the longest run at the text's end."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds, short_texts
from hypothesis import given
from hypothesis import strategies as st
from reference_distribution import chain_p_value, continuation_distribution, p_value
from sentences import Sentences
from toy_models import emitted_ids, examples, finish, generated, llama, mini, pair_of

from specviz import Pair, Settings, Trace, race, speculate
from specviz.base.errors import PromptError, SettingsError
from specviz.core.loop import LaneOptions
from specviz.runs.identities import check_trace
from specviz.sides.lookup import suffix
from specviz.sides.lookup.suffix import MIN_CHANCE, SuffixDrafter, SuffixIndex

SAMPLED = Settings(drafter="suffix", gamma=3, temperature=1.0)
SIGNIFICANCE = 1e-4  # failure rate of a right sampler; seeds are fixed, so it never fails
MEMORY = [[2, 0, 1, 3, 0], [2, 3, 2, 1]]


def counted(texts: list[list[int]], end: list[int]) -> tuple[int, Counter[int]]:
    """Counts by definition: the longest run at the end of `end` that something followed in `texts`,
    and how often each token followed."""
    for size in range(min(len(end), suffix.DEPTH - 1), 0, -1):
        found = Counter(
            text[i + size]
            for text in texts
            for i in range(len(text) - size)
            if text[i : i + size] == end[-size:]
        )
        if found:
            return size, found
    return 0, Counter()


@pytest.mark.parametrize("depth", [3, 24])
@examples(150)
@given(
    texts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=25), min_size=1, max_size=3),
    place=st.integers(0, 10),
)
def test_the_index_counts_what_followed_the_longest_run(
    depth: int, texts: list[list[int]], place: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix, "DEPTH", depth)
        index = SuffixIndex()
        for text in texts[:-1]:
            index.extend(text)
            index.separate()
        for end in range(1, len(texts[-1]) + 1):
            index.extend(texts[-1][end - 1 : end])
            so_far = [*texts[:-1], texts[-1][:end]]
            size, wanted = counted(so_far, so_far[-1])
            context = index.context()
            assert len(context) == size
            if not size:
                continue
            found = index.followers(context)
            assert dict(zip(found.ids, found.counts, strict=True)) == wanted
            assert found.total == sum(wanted.values()) and sum(found.shares) == pytest.approx(1)
            assert wanted[found.ids[found.likeliest]] == max(wanted.values())
            drawn = found.ids[place % len(found.ids)]
            size, wanted = counted(so_far, [*so_far[-1][len(so_far[-1]) - size :], drawn])
            after = index.after(context, drawn)
            assert len(after) == size
            if size:
                found = index.followers(after)
                assert dict(zip(found.ids, found.counts, strict=True)) == wanted


@pytest.mark.parametrize(
    "text", [[7], [1, 2, 3, 4, 5], [(7 * i * i + i // 9) % 997 for i in range(5000)]]
)
def test_an_id_costs_microseconds_however_the_text_repeats_itself(text: list[int]):
    index = SuffixIndex()
    index.extend((text * 10_000)[:10_000])
    start = time.thread_time()
    for token_id in (text * 200)[:200]:
        index.extend([token_id])
        index.followers(index.context())
    assert (time.thread_time() - start) / 200 < 250e-6  # seconds; some ten microseconds are usual


def run_of(pair: Pair, prompt: list[int], settings: Settings, **options: Any) -> Trace:
    trace = Trace.from_events(race(pair, prompt, settings, **options))
    check_trace(trace)
    again = Trace.from_dict(trace.to_dict())
    assert again == trace
    return trace


@pytest.mark.parametrize(
    ("temperature", "truncated"), [(0.0, {}), (1.0, {}), (1.0, {"top_k": 2, "top_p": 0.9})]
)
def test_a_run_says_what_was_seen_and_its_trace_keeps_every_rule(
    temperature: float, truncated: dict[str, Any]
):
    target = llama(6, seed=3)
    settings = replace(SAMPLED, temperature=temperature, max_new_tokens=50, **truncated)
    trace = run_of(pair_of(target), [1, 2, 1, 2], settings, memory=MEMORY)
    assert trace.header.memory == {"texts": 2, "tokens": 9} and trace.header.draft is None
    rounds = trace.lane("speculative")
    if not temperature:
        assert emitted_ids(rounds) == generated(target, [1, 2, 1, 2], 50)
    drafted = [t for r in rounds for t in r.drafted]
    assert {t.outcome for t in drafted} >= {"accepted", "rejected"}
    assert any(len(t.top_q) > 1 for t in drafted), "a run was followed by several tokens"
    for token in drafted:
        shares = {c.id: c.probability for c in token.top_q}
        own = token.q if temperature else token.soft_q
        assert own == pytest.approx(shares[token.id], abs=1e-6) and sum(shares.values()) < 1.0001
        times = shares[token.id] * token.seen
        assert times == pytest.approx(round(times), abs=1e-4) and times > 0.9
        if not temperature:
            assert token.q == 1.0 and shares[token.id] == max(shares.values())


def test_earlier_texts_are_drafted_from_and_only_by_this_drafter(sentences: Sentences):
    pair = pair_of(llama(40, seed=3))
    settings = replace(SAMPLED, temperature=0.0, max_new_tokens=12)
    cold, _ = finish(pair, [1, 2], settings)
    text = [1, 2, *emitted_ids(cold)]
    warm = list(speculate(pair, [1, 2], settings, memory=[text]))
    assert emitted_ids(warm) == emitted_ids(cold)
    assert [len(r.emitted) for r in warm] == [4, 4, 4], "gamma copies and a bonus"
    words = list(speculate(pair, [1, 2], settings, memory=[" ".join(f"w{i}" for i in text)]))
    assert [r.drafted for r in words] == [r.drafted for r in warm]
    for drafter, memory, error in (
        ("ngram", [text], SettingsError),
        ("suffix", "w1 w2", SettingsError),
        ("suffix", [[99]], PromptError),
    ):
        with sentences.raises(error):
            speculate(pair, [1, 2], replace(settings, drafter=drafter), memory=memory)


def test_one_text_is_not_continued_by_the_next():
    settings = replace(SAMPLED, temperature=0.0, max_new_tokens=4)
    first = next(iter(speculate(pair_of(llama(9)), [7, 1, 2], settings, memory=[[1, 2], [3, 4]])))
    assert first.drafted == []


@pytest.mark.parametrize(("size", "chance"), [(1, 1 / 2), (3, 3 / 4)])
def test_a_short_run_says_less_than_a_long_one(size: int, chance: float):
    followers = suffix.Followers([5], [2], 2, 0)
    assert suffix.chance_of_likeliest(size, followers) == chance


@pytest.mark.parametrize("text", [[1, 2, 1, 3, 1], [1, 3, 1, 2, 1]])
def test_of_equally_frequent_followers_the_latest_is_the_likeliest(text: list[int]):
    index = SuffixIndex()
    index.extend(text)
    found = index.followers(index.context())
    assert found.ids[found.likeliest] == text[3]


def history_pair() -> Pair:
    return pair_of(mini(4, seed=2, spread=2.0))


def sequences_fit(settings: Settings) -> float:
    """The p-value of the first tokens of many texts under the target's distribution."""
    pair = history_pair()
    prompt = [2, 0, 3, 2, 0]
    law = continuation_distribution(pair.target, prompt, 3, settings)
    longer = replace(settings, max_new_tokens=3 + settings.gamma)
    options = LaneOptions(memory=MEMORY)
    texts = short_texts(pair, prompt, longer, count=400, shown=3, options=options)
    return p_value(list(texts), law)


def chain_fits(patch: pytest.MonkeyPatch) -> float:
    """The p-value of one long run of a Markov chain under the target's distribution.

    Drafts come from runs of one or two ids with several followers, so q is spread out.
    """
    target = mini(4, seed=2, spread=2.0, decay=0.0, max_position_embeddings=4000)
    patch.setattr(suffix, "DEPTH", 3)
    patch.setattr(suffix, "MIN_CHANCE", 0.0)
    with bare_rounds():
        rounds = list(speculate(pair_of(target), [2, 0], replace(SAMPLED, max_new_tokens=2000)))
    assert sum(t.q < 1 for r in rounds for t in r.drafted) > 400
    return chain_p_value(target, [0, *emitted_ids(rounds)], SAMPLED)


def test_whole_sequences_follow_the_target():
    assert sequences_fit(replace(SAMPLED, temperature=0.7, top_k=3)) > SIGNIFICANCE


def test_a_long_run_follows_the_target(monkeypatch: pytest.MonkeyPatch):
    assert chain_fits(monkeypatch) > SIGNIFICANCE


def test_a_q_that_is_not_what_was_drawn_from_fails(monkeypatch: pytest.MonkeyPatch):
    """The likeliest follower is drafted instead of a drawn one."""
    monkeypatch.setattr(suffix, "_drawn_index", lambda followers, u: followers.likeliest)
    assert chain_fits(monkeypatch) < SIGNIFICANCE


def test_dropping_a_draft_because_of_what_was_drawn_fails(monkeypatch: pytest.MonkeyPatch):
    whole_run = SuffixDrafter.draft

    def unless_unlikely(self: SuffixDrafter, ids: list[int], count: int) -> Any:
        draft = whole_run(self, ids, 1)
        return draft if draft is not None and draft.q[0, draft.ids[0]] > 0.35 else None

    monkeypatch.setattr(SuffixDrafter, "draft", unless_unlikely)
    assert chain_fits(monkeypatch) < SIGNIFICANCE


def test_no_draft_where_nothing_is_likely_and_all_of_gamma_in_a_circle():
    assert 0 < MIN_CHANCE < 0.5
    pair = pair_of(llama(4, seed=3))
    settings = replace(SAMPLED, gamma=6, temperature=0.0, max_new_tokens=8)
    fresh = next(iter(speculate(pair, [0, 1, 2, 3], settings)))
    circle = next(iter(speculate(pair, [0, 1, 2] * 8, settings)))
    assert not fresh.drafted and [t.id for t in circle.drafted] == [0, 1, 2, 0, 1, 2]
    assert torch.tensor([t.seen for t in circle.drafted]).min() >= 1
