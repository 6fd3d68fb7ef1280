"""The ends of a lane: end of text, length, context, stop strings. Nothing is counted after them.

Scripted chains fix which token follows which, so every case can be worked out by hand.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from sentences import Sentences
from toy_models import (
    byte_level,
    emitted_ids,
    emitted_text,
    finish,
    llama,
    mini,
    outcomes,
    pair_of,
    relative,
    scripted,
)

from specviz import Pair, Settings, baseline, speculate
from specviz.base.errors import PromptError

GAMMAS = (0, 1, 2, 3, 4, 7)  # up to one that no text here has room for
STORY = [1, 2, 3, 4, 5, 6, 7, 8]


@cache
def teller(story: tuple[int, ...], seed: int) -> Any:
    return scripted(story, 12, seed=seed)


def story_pair(eos: int | list[int] | None = None, draft: list[int] | None = None) -> Pair:
    """A target that writes STORY after token 1, and a draft that writes its own story or the
    same."""
    target = teller(tuple(STORY), 0)
    target.generation_config.eos_token_id = eos
    return pair_of(target, teller(tuple(draft or STORY), 1))


def greedy(gamma: int, length: int = 7, **settings: object) -> Settings:
    return Settings.from_dict({"gamma": gamma, "max_new_tokens": length, **settings})


# outcomes() writes a round as the first letters of its drafts' outcomes, a dash, and those of its
# emitted tokens.


def test_end_of_text_inside_an_accepted_run_cuts_it_there():
    rounds, reason = finish(story_pair(eos=4), [1], greedy(5))
    assert (emitted_ids(rounds), reason) == ([2, 3, 4], "eos")
    assert [outcomes(r) for r in rounds] == ["aaaii-aaa"]


def test_end_of_text_as_a_correction():
    rounds, reason = finish(story_pair(eos=4, draft=[1, 2, 3, 9, 10, 11]), [1], greedy(5))
    assert (emitted_ids(rounds), reason) == ([2, 3, 4], "eos")
    assert [outcomes(r) for r in rounds] == ["aarii-aac"]


def test_end_of_text_as_a_bonus():
    rounds, reason = finish(story_pair(eos=4), [1], greedy(2))
    assert (emitted_ids(rounds), reason) == ([2, 3, 4], "eos")
    assert [outcomes(r) for r in rounds] == ["aa-aab"]


def test_end_of_text_as_the_last_accepted_draft_earns_no_bonus():
    rounds, reason = finish(story_pair(eos=4), [1], greedy(3))
    assert (emitted_ids(rounds), reason) == ([2, 3, 4], "eos")
    assert [outcomes(r) for r in rounds] == ["aaa-aaa"]


def test_a_rejected_end_of_text_ends_nothing():
    rounds, reason = finish(story_pair(eos=9, draft=[1, 2, 9]), [1], greedy(2))
    assert (emitted_ids(rounds), reason) == (STORY[1:], "length")


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(("eos", "told"), [([6, 4], 3), ([6], 5), (8, 7), ([0, 11], 7), (0, 7)])
def test_any_of_several_ends_of_text_ends_a_lane(gamma: int, eos: int | list[int], told: int):
    rounds, reason = finish(story_pair(eos=eos), [1], greedy(gamma))
    assert emitted_ids(rounds) == STORY[1 : told + 1]
    assert reason == ("eos" if eos not in ([0, 11], 0) else "length")


@pytest.mark.parametrize("gamma", GAMMAS)
def test_end_of_text_can_be_ignored(gamma: int):
    rounds, reason = finish(story_pair(eos=4), [1], greedy(gamma, ignore_eos=True))
    assert (emitted_ids(rounds), reason) == (STORY[1:], "length")


@pytest.mark.parametrize("gamma", GAMMAS)
def test_an_end_of_text_in_the_prompt_ends_nothing(gamma: int):
    rounds, _ = finish(story_pair(eos=1), [1, 1], greedy(gamma))
    assert emitted_ids(rounds) == STORY[1:]


@pytest.mark.parametrize("gamma", GAMMAS)
def test_token_zero_is_a_token(gamma: int):
    pair = pair_of(scripted([2, 0, 1, 3], 5), scripted([2, 0, 1, 3], 5))
    assert emitted_ids(speculate(pair, [2], greedy(gamma, 3))) == [0, 1, 3]
    assert emitted_ids(speculate(pair, [2, 0], greedy(gamma, 2))) == [1, 3]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_a_lane_never_passes_its_length(gamma: int, length: int):
    rounds, reason = finish(story_pair(), [1], greedy(gamma, length))
    assert (emitted_ids(rounds), reason) == (STORY[1 : length + 1], "length")
    assert all(len(r.drafted) < length for r in rounds), "a draft that could not be kept"


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(("stop", "told"), [
    (("w4",), 3),  # one token
    (("w3 w4",), 3),  # two tokens, and for some gammas two rounds
    (("2 w3 w4 w",), 4),  # parts of four tokens
    (("w6", "w3"), 2),  # the first of several
    (("w2 w3 w4 w5 w6", "w4"), 3),  # one inside another
    (("w9",), 7),
])  # fmt: skip
def test_stop_strings_end_a_lane_across_tokens_and_rounds(
    gamma: int, stop: tuple[str, ...], told: int
):
    rounds, reason = finish(story_pair(), [1], greedy(gamma, stop=stop))
    assert emitted_ids(rounds) == STORY[1 : told + 1]
    assert reason == ("stop" if told < 7 else "length")
    assert emitted_text(rounds) == "".join(f" w{i}" for i in STORY[1 : told + 1])


def test_what_follows_a_stop_string_was_never_judged():
    rounds, _ = finish(story_pair(), [1], greedy(5, stop=("w3",)))
    assert [outcomes(r) for r in rounds] == ["aaiii-aa"]
    rounds, _ = finish(story_pair(draft=[1, 2, 3, 9]), [1], greedy(5, stop=("w3",)))
    assert [outcomes(r) for r in rounds] == ["aaiii-aa"]
    assert [t.text for t in rounds[0].drafted[:3]] == [" w2", " w3", " w9"]


def test_a_stop_string_in_the_prompt_alone_ends_nothing():
    rounds, reason = finish(story_pair(), [1, 2], greedy(2, 3, stop=("w1", "w1 w2", "w2 w3")))
    assert (emitted_ids(rounds), reason) == ([3, 4, 5], "length")


@pytest.mark.parametrize("gamma", [0, 1, 3])
def test_a_stop_string_may_be_a_character_that_tokens_share(gamma: int):
    tokenizer = byte_level()
    face = tokenizer.encode("a🙂b", add_special_tokens=False)
    assert len(face) == len(set(face)) >= 4, "the character must be split"
    models = [scripted(face, len(tokenizer), seed=seed) for seed in (0, 1)]
    pair = pair_of(*models, tokenizer=tokenizer)
    rounds, reason = finish(pair, face[:1], greedy(gamma, 20, stop=("🙂",)))
    assert (emitted_text(rounds), reason) == ("🙂", "stop")


CONTEXT = 12


@pytest.fixture(scope="module")
def short() -> Pair:
    target = llama(20, max_position_embeddings=CONTEXT, initializer_range=0.3)
    return pair_of(target, relative(target, noise=0.2))


def uncached(pair: Pair, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens from uncached passes over the whole text."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(pair.target(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("length", [1, 5, CONTEXT - 1, CONTEXT])
def test_a_lane_fills_the_context_and_stops(short: Pair, gamma: int, length: int):
    prompt = list(range(length))
    rounds, reason = finish(short, prompt, greedy(gamma, 100))
    # The token after a full context can still be emitted; it just cannot be fed.
    assert emitted_ids(rounds) == uncached(short, prompt, CONTEXT - length + 1)
    assert reason == "context"


def test_a_prompt_longer_than_the_context_is_refused(short: Pair, sentences: Sentences):
    for lane in (speculate, baseline):
        with sentences.raises(PromptError):
            lane(short, list(range(CONTEXT + 1)))


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15])
@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_past_the_context_of_the_draft_the_target_goes_on_alone(gamma: int, length: int):
    target = mini(20, seed=1, max_position_embeddings=64)
    draft = llama(20, max_position_embeddings=8)
    pair = pair_of(target, draft)
    prompt = list(range(length))
    rounds, reason = finish(pair, prompt, greedy(gamma, 30))
    assert emitted_ids(rounds) == emitted_ids(baseline(pair, prompt, greedy(0, 30)))
    assert reason == "length"
    drafting = [bool(r.drafted) for r in rounds]
    assert drafting == sorted(drafting, reverse=True) and not drafting[-1]
    assert drafting[0] == (length <= 8)
