"""All supported model families, loaded by `load_pair` from folders in the hub's format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from all_pairs import all_pairs
from model_families import (
    FAMILIES,
    PAST_ELSEWHERE,
    SPECIAL,
    WINDOW,
    build,
    saved,
    saved_family,
    small_tokenizer,
)
from sentences import Sentences
from toy_heads import random_head
from toy_models import emitted_ids, generated, next_logits, outcome_counts
from transformers import AutoModelForCausalLM

from specviz import Pair, Settings, baseline, load_pair, race, speculate
from specviz.base.errors import PairError, SpecvizError
from specviz.core.loop import start_lane
from specviz.core.model_facts import text_config
from specviz.core.registry import drafters

# Longer than the window, with a special token, which must be treated like any other.
PROMPT = f"the cat sat on the mat, a naïve café, 日本 don't stop{SPECIAL} good day"
# Tokens to write.
LONG = 64
SHORT = 24
REPEATED = 80  # tokens of a text that ends in repetition

# Seeds whose texts have no repetitions and no near-ties that rounding could decide.
SEEDS = {"mixtral": 1, "qwen 3": 0, "phi": 0}
OTHER_SEEDS = 3

DRAFTING = [kind.name for kind in drafters()[:-1] if kind.needs != "head"]


def met(kind: str, turn: int) -> str:
    """The drafter of a family in a turn: in two turns of a test, each drafter gets half of the
    families."""
    return DRAFTING[(list(FAMILIES).index(kind) + turn) % len(DRAFTING)]


@dataclass(frozen=True)
class Case:
    """A loaded pair of a family, and the text that `generate` writes after the prompt.

    model: the target as transformers loads it, without ends of text.
    """

    kind: str
    target: Path
    draft: Path
    pair: Pair
    model: Any
    prompt: list[int]
    wanted: list[int]


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case_of(tmp_path_factory.mktemp("family"), request.param)


def case_of(folder: Path, kind: str, *, seed: int | None = None, count: int = LONG) -> Case:
    seed = SEEDS.get(kind, OTHER_SEEDS) if seed is None else seed
    target, draft = saved_family(folder, kind, noise=0.05, seed=seed)
    pair = load_pair(f"{target}+{draft}")
    prompt = pair.encode(PROMPT)
    assert 0 in prompt and pair.eos_ids == {0}
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    return Case(kind, target, draft, pair, model, prompt, endless_text(model, prompt, count))


def endless_text(model: Any, prompt: list[int], count: int) -> list[int]:
    """The tokens that `generate` writes after `prompt`."""
    wanted = generated(model, prompt, count)
    assert len(wanted) == count
    return wanted


def greedy(gamma: int, drafter: str, count: int) -> Settings:
    return Settings(gamma=gamma, drafter=drafter, max_new_tokens=count, ignore_eos=True)


def test_the_texts_are_varied_and_have_no_near_ties(case: Case):
    """Repetitive texts, and near-ties that rounding decides, would prove nothing."""
    assert len(set(case.wanted[-60:])) >= 10
    window = getattr(text_config(case.pair.target), "sliding_window", None)
    if window is not None:
        assert window == WINDOW < len(case.prompt)
    with torch.inference_mode():
        ids = torch.tensor([case.prompt + case.wanted])
        logits = case.pair.target(input_ids=ids, use_cache=False).logits[0, len(case.prompt) - 1 :]
    first, second = logits[:-1].topk(2).values.unbind(-1)
    assert (first - second).min() > 5e-4


@pytest.mark.parametrize("kind", [k for k in FAMILIES if "sliding" in k])
def test_the_windows_of_the_sliding_families_matter(kind: str):
    """Otherwise a cache that ignored the windows would pass the tests."""
    ids = torch.randint(40, (1, 4 * WINDOW), generator=torch.Generator().manual_seed(0))
    narrow, wide = (build(kind, **w) for w in ({}, {"sliding_window": 8 * WINDOW}))
    with torch.inference_mode():
        far = [model(input_ids=ids, use_cache=False).logits[0] for model in (narrow, wide)]
    torch.testing.assert_close(far[0][:WINDOW], far[1][:WINDOW])
    assert (far[0] - far[1]).abs()[WINDOW:].amax(-1).min() > 0.01


@pytest.mark.parametrize("turn", [0, 2])
def test_speculation_writes_what_generate_writes(case: Case, turn: int):
    """Each drafter is tested with each gamma."""
    drafter = met(case.kind, turn)
    place = list(FAMILIES).index(case.kind) + DRAFTING.index(drafter)
    gamma, count = ((1, SHORT), (3, LONG), (5, SHORT))[place % 3]
    rounds = list(speculate(case.pair, PROMPT, greedy(gamma, drafter, count)))
    assert emitted_ids(rounds) == case.wanted[:count]
    assert all(len(r.drafted) <= gamma for r in rounds)
    judged = outcome_counts(rounds)
    if count == LONG:  # the test needs accepted and rejected drafts
        assert judged["rejected"] >= 3
        assert judged["accepted"] >= 12 or drafter in ("ngram", "suffix")


def test_no_drafts_write_what_generate_writes(case: Case):
    """Each lane is tested with half of the families."""
    lane = (baseline, speculate)[list(FAMILIES).index(case.kind) % 2]
    rounds = list(lane(case.pair, PROMPT, greedy(3, "none", SHORT)))
    assert emitted_ids(rounds) == case.wanted[:SHORT]
    assert all(len(r.emitted) == 1 and not r.drafted for r in rounds)


def test_a_text_may_become_longer_than_the_window(case: Case):
    """The first rounds see the whole text, later ones only a part of it."""
    prompt = case.prompt[: WINDOW // 2]
    wanted = endless_text(case.model, prompt, SHORT // 2)
    with_head = replace(case.pair, head=random_head(case.pair.target))
    for drafter in (met(case.kind, 1), met(case.kind, 3), "head"):
        pair = with_head if drafter == "head" else case.pair
        rounds = speculate(pair, prompt, greedy(3, drafter, SHORT // 2))
        assert emitted_ids(rounds) == wanted, drafter


def test_a_target_that_drafts_for_itself_is_always_accepted(case: Case):
    twins = replace(case.pair, draft=case.pair.target)
    rounds = list(speculate(twins, PROMPT, greedy(3, "model", SHORT)))
    assert outcome_counts(rounds) == {"accepted": SHORT * 3 // 4}
    assert len(rounds) == SHORT // 4


@pytest.mark.parametrize("turn", [1, 3])
def test_after_every_round_the_caches_agree_with_an_uncached_pass(case: Case, turn: int):
    drafter = met(case.kind, turn)
    run = start_lane(case.pair, case.prompt, greedy(4, drafter, SHORT // 2), "speculative")
    run.prefill()
    engines = [(case.pair.target, run.target_engine)]
    if drafter == "model":
        engines.append((case.pair.draft, run.drafter.engine))
    while run.ended is None:
        run.round()
        for model, engine in engines:
            with torch.inference_mode():
                wanted = model(input_ids=torch.tensor([run.ids]), use_cache=False).logits[0, -1]
            torch.testing.assert_close(next_logits(engine, run.ids), wanted, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(("kind", "seed"), [("gemma 2, sliding", 12), ("mistral, sliding", 1)])
def test_a_text_that_repeats_itself_is_drafted_and_kept(tmp_path: Path, kind: str, seed: int):
    """Many consecutive rounds accept all drafts, far beyond the window."""
    case = case_of(tmp_path, kind, seed=seed, count=REPEATED)
    assert len(set(case.wanted[-60:])) <= 2, "the text must have come to repeat itself"
    for drafter in DRAFTING:
        rounds = list(speculate(case.pair, PROMPT, greedy(3, drafter, REPEATED)))
        assert emitted_ids(rounds) == case.wanted, drafter
        if drafter != "early-exit":  # its layers may disagree with the whole model
            assert outcome_counts(rounds)["accepted"] >= 40, drafter


def test_families_race_each_other(tmp_path: Path):
    """The tokenizer must be the same, but the architecture may differ."""
    target, _ = saved_family(tmp_path / "one", "mistral, sliding", noise=0.0)
    _, draft = saved_family(tmp_path / "two", "gpt 2", noise=0.0)
    *_, end = race(load_pair(f"{target}+{draft}"), PROMPT, greedy(3, "model", SHORT))
    assert end.identical


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_model_with_running_states_races_another_family(tmp_path: Path, role: str):
    """Its text is that of `generate` in both roles; `test_running_states` tests all such models."""
    running, _ = saved_family(tmp_path / "running", "qwen3-next", noise=0.0)
    plain, _ = saved_family(tmp_path / "plain", "qwen 3", noise=0.0)
    names = (running, plain) if role == "target" else (plain, running)
    pair = load_pair(f"{names[0]}+{names[1]}")
    *_, end = race(pair, PROMPT, greedy(3, "model", SHORT // 2))
    assert end.identical


@pytest.mark.parametrize("kind", PAST_ELSEWHERE)
@pytest.mark.parametrize("role", ["target", "draft"])
def test_models_whose_past_is_elsewhere_are_rejected(tmp_path: Path, kind: str, role: str):
    """Rejected drafts could not be rolled back."""
    tokenizer = small_tokenizer()
    state = saved(tmp_path / "state", build(kind, vocab_size=len(tokenizer)), tokenizer)
    plain = saved(tmp_path / "plain", build("llama", vocab_size=len(tokenizer)), tokenizer)
    names = (state, plain) if role == "target" else (plain, state)
    one_token = [1]  # its prefill reads nothing
    some = [1, 2, 3]
    pair = load_pair(f"{names[0]}+{names[1]}")
    for drafter, prompt in [("model", one_token), *((d, some) for d in DRAFTING)]:
        if drafter == "model" or role == "target":
            with pytest.raises(SpecvizError, match="cannot be rolled back"):
                list(speculate(pair, prompt, Settings(gamma=2, drafter=drafter)))


def padded(kind: str, width: int, *, vocab: int, seed: int, **changes: Any) -> Any:
    """A model with `width` logits, whose likeliest id is often `vocab` or higher."""
    model = build(kind, seed=seed, vocab_size=width, **changes)
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        head[vocab:] = 2.0 * head[: width - vocab]
    return model


def masked_text(model: Any, prompt: list[int], vocab: int, count: int) -> tuple[list[int], int]:
    """Greedy ids below `vocab` from uncached passes, and the number of positions with a likelier
    higher id."""
    ids = list(prompt)
    higher = 0
    for _ in range(count):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
        higher += int(logits.argmax()) >= vocab
        ids.append(int(logits[:vocab].argmax()))
    return ids[len(prompt) :], higher


@pytest.mark.parametrize(
    "mix",
    all_pairs(
        kind=("llama", "qwen 2"),
        tied=(False, True),
        extra=((32, 0), (0, 32)),  # rows of target and draft without a piece of the tokenizer
    ),
    ids=str,
)
def test_ids_past_the_tokenizer_are_never_drafted_or_emitted(tmp_path: Path, mix: dict[str, Any]):
    kind = mix["kind"]
    tied = mix["tied"]
    extra = mix["extra"]
    tokenizer = small_tokenizer()
    vocab = len(tokenizer)
    folders = [
        saved(
            tmp_path / role,
            padded(kind, vocab + more, vocab=vocab, seed=1, tie_word_embeddings=tied),
            tokenizer,
        )
        for role, more in zip(("target", "draft"), extra, strict=True)
    ]
    pair = load_pair("+".join(map(str, folders)))
    assert pair.vocab == vocab
    prompt = pair.encode(PROMPT)
    wanted, _ = masked_text(pair.target, prompt, vocab, SHORT // 2)
    for model, more in zip((pair.target, pair.draft), extra, strict=True):
        if more:
            assert masked_text(model, prompt, vocab, SHORT // 2)[1] > 3, "padding must tempt"
    for drafter in DRAFTING:
        *events, end = race(pair, PROMPT, greedy(3, drafter, SHORT // 2))
        assert end.identical
        assert emitted_ids(r for r in events[1:] if r.lane == "speculative") == wanted
        warm = replace(greedy(3, drafter, SHORT // 2), temperature=1.5)
        for r in [*events[1:], *speculate(pair, PROMPT, warm)]:
            assert all(token.id < vocab for token in [*r.drafted, *r.emitted])


def test_a_draft_too_narrow_for_the_tokenizer_is_rejected(tmp_path: Path, sentences: Sentences):
    tokenizer = small_tokenizer()
    sizes = {"target": len(tokenizer), "draft": len(tokenizer) - 40}
    names = [
        str(saved(tmp_path / role, build("qwen 2", vocab_size=size), tokenizer))
        for role, size in sizes.items()
    ]
    with sentences.raises(PairError):
        load_pair("+".join(names))
