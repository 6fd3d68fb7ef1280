"""The static form: programs of fixed shapes over caches that stay in place.

On a processor the functions that a GPU captures run over the same buffers, so everything but the
capture is tested here. tests/engines/test_cuda.py tests the capture on a GPU.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds
from model_families import FAMILIES, ONE_BY_ONE, RUNNING, VARIANTS, build
from reference_distribution import text_p_value
from sentences import Sentences
from toy_models import emitted_ids, generated, llama, mini, pair_of, relative
from transformers import LlamaForCausalLM

from specviz import Pair, Settings, baseline, race, speculate
from specviz.base.errors import SettingsError
from specviz.core.engine_choice import eager_only, make_engine
from specviz.core.layers import first_layers
from specviz.core.loop import LaneOptions, decode, start_lane
from specviz.core.model_facts import cache_argument
from specviz.core.policy import DraftCosts
from specviz.core.tensor_draws import probabilities
from specviz.inspect.random_models import scripted
from specviz.sides.fast_gpu import engine as engines
from specviz.sides.fast_gpu.cache import Program
from specviz.sides.fast_gpu.engine import (
    StaticEngine,
    startup_seconds,
    static_engine,
)
from specviz.sides.fast_gpu.path import GraphPath

PROMPT = [3, 1, 4, 1, 5]
VOCAB = 40
SETTINGS = [
    Settings(),
    Settings(temperature=1.0),
    Settings(temperature=0.7, top_k=7),
    Settings(temperature=1.5, top_p=0.8),
    Settings(temperature=1.0, top_k=9, top_p=0.9),
]


def static_reason(model: Any, vocab: int) -> str | None:
    return engines._pool_of(model, vocab).refusal


def named(s: Settings) -> str:
    return f"{s.temperature}-{s.top_k}-{s.top_p}"


# Otherwise a broken static form would fall back to another form, and the tests would pass.
pytestmark = [
    pytest.mark.filterwarnings("error:the static form"),
    pytest.mark.usefixtures("static_form"),
]


@pytest.fixture(autouse=True)
def no_cards() -> Iterator[None]:
    """Leave out cards: tests here read ids and outcomes. tests/decoding/test_paths.py compares
    cards of this form with passes without caches."""
    with bare_rounds():
        yield


def uncached(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def forms(pair: Pair) -> set[str]:
    return {make_engine(m, pair.vocab).name for m in (pair.target, pair.draft)}


# The text


@pytest.mark.parametrize("gamma", [1, 7])
def test_greedy_text_is_that_of_generate_across_windows(pair: Pair, gamma: int):
    assert forms(pair) == {"static"}
    settings = Settings(gamma=gamma, max_new_tokens=70)  # the fourth window, of 128 tokens
    wanted = generated(pair.target, PROMPT, 70)
    rounds = list(speculate(pair, PROMPT, settings))
    assert emitted_ids(rounds) == wanted
    assert {"accepted", "rejected"} <= {t.outcome for r in rounds for t in r.drafted}
    if gamma == 7:
        assert emitted_ids(baseline(pair, PROMPT, settings)) == wanted


@pytest.mark.parametrize("settings", SETTINGS[1:], ids=named)
def test_a_seed_gives_the_text_of_the_eager_only(
    pair: Pair, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    settings = replace(settings, max_new_tokens=32, seed=3)
    ours = [emitted_ids(lane(pair, PROMPT, settings)) for lane in (speculate, baseline)]
    monkeypatch.setenv("SPECVIZ_FORM", "fastest")
    assert "static" not in forms(pair)
    assert ours == [emitted_ids(lane(pair, PROMPT, settings)) for lane in (speculate, baseline)]


def test_a_seed_repeats_and_another_one_differs(pair: Pair):
    settings = replace(SETTINGS[-1], max_new_tokens=20, seed=3)
    text = emitted_ids(speculate(pair, PROMPT, settings))
    assert text == emitted_ids(speculate(pair, PROMPT, settings))
    assert text != emitted_ids(speculate(pair, PROMPT, replace(settings, seed=4)))


def test_a_sampled_text_follows_the_target():
    """A text of this length also rules out a lower temperature. The test above shows that with
    other settings the text equals that of the eager form."""
    settings = Settings(gamma=2, temperature=1.5, top_k=3, top_p=0.8)
    pair = pair_of(llama(4, seed=0), llama(4, seed=1))
    text = emitted_ids(speculate(pair, [2, 0], replace(settings, max_new_tokens=250)))
    assert len(text) == 250
    assert text_p_value(pair.target, [2, 0], text, settings) > 1e-4
    assert text_p_value(pair.target, [2, 0], text, replace(settings, temperature=1.0)) < 1e-4


@pytest.mark.parametrize("settings", [SETTINGS[0], SETTINGS[-1]], ids=named)
def test_a_target_that_drafts_for_itself_is_always_accepted(pair: Pair, settings: Settings):
    twins = pair_of(pair.target, pair.target)
    rounds = list(speculate(twins, PROMPT, replace(settings, gamma=3, max_new_tokens=40)))
    assert len(emitted_ids(rounds)) == 40
    assert {t.outcome for r in rounds for t in r.drafted} == {"accepted"}


def test_an_exit_drafts_in_one_program_and_leaves_the_cache_true():
    target = llama(VOCAB, num_hidden_layers=4, hidden_size=32, initializer_range=0.2)
    pair = pair_of(target)
    settings = Settings(gamma=3, max_new_tokens=40, drafter="early-exit")
    run = start_lane(pair, PROMPT, settings, "speculative")
    run.prefill()
    shallow = first_layers(target, run.drafter.layers)
    with torch.inference_mode():
        while len(run.ids) < 40:
            draft = run.drafter.draft(run.ids, 3)
            wanted = uncached(shallow, run.ids + draft.ids.tolist())[len(run.ids) - 1 : -1]
            torch.testing.assert_close(draft.logits, wanted, atol=1e-4, rtol=1e-4)
            assert run.target_engine.length == len(run.ids) - 1
            judged = run.path.judge(run.ids, draft)
            wanted = uncached(target, run.ids + judged.ids)[len(run.ids) - 1 :]
            torch.testing.assert_close(judged.logits, wanted, atol=1e-4, rtol=1e-4)
            run.commit(judged)
    assert any(key[0] == "draft" for key in run.target_engine._cache.programs)


def check_every_round(pair: Pair, settings: Settings) -> None:
    run = start_lane(pair, PROMPT, replace(settings, gamma=3, max_new_tokens=24), "speculative")
    assert run.target_engine.name == run.drafter.engine_name == "static"
    run.prefill()
    with torch.inference_mode():
        while run.ended is None:
            before = list(run.ids)
            gamma = run.gamma()
            draft = run.drafter.draft(run.ids, gamma) if gamma else None
            judged = run.path.judge(run.ids, draft)
            assert len(judged.ids) == gamma
            wanted = uncached(pair.target, before + judged.ids)[len(before) - 1 :]
            torch.testing.assert_close(judged.logits, wanted, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(judged.p, probabilities(wanted, settings))
            if draft is not None:
                wanted = uncached(pair.draft, before + judged.ids[:-1])[len(before) - 1 :]
                torch.testing.assert_close(draft.logits, wanted, atol=1e-4, rtol=1e-4)
            run.commit(judged)


@pytest.mark.parametrize("settings", SETTINGS, ids=named)
def test_every_round_sees_what_an_uncached_pass_sees(pair: Pair, settings: Settings):
    check_every_round(pair, settings)


def test_programs_that_are_made_within_a_run_do_no_harm(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    """The trial runs before a capture also write to the cache."""
    monkeypatch.setattr(GraphPath, "prepare", lambda *_: None)
    check_every_round(pair, SETTINGS[1])


def test_a_prompt_of_one_token_and_the_last_place_of_a_context():
    """The first draft step has only one committed token, and the widest rounds reach past the
    position table."""
    target = build("gpt 2", n_positions=24)
    pair = pair_of(target, relative(target, noise=0.2))
    assert forms(pair) == {"static"}
    for gamma in (3, 7):
        settings = Settings(gamma=gamma, max_new_tokens=99)
        ours, theirs = (emitted_ids(f(pair, [7], settings)) for f in (speculate, baseline))
        assert ours == theirs and len(ours) == 24
        assert ours[:23] == generated(target, [7], 23)


def test_a_draft_that_fell_behind_catches_up(pair: Pair):
    """This happens after rounds without drafts."""
    run = start_lane(pair, PROMPT, Settings(gamma=3, max_new_tokens=60), "speculative")
    run.prefill()
    with torch.inference_mode():
        for _ in range(5):
            run.commit(run.path.judge(run.ids, None))
        draft = run.drafter.draft(run.ids, 3)
        wanted = uncached(pair.draft, run.ids + draft.ids.tolist())[len(run.ids) - 1 : -1]
        torch.testing.assert_close(draft.logits, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("drafter", "policy"),
    [("model", "heuristic"), ("ngram", "fixed"), ("early-exit", "optimal")],
)
def test_other_drafters_and_policies_draft_for_a_static_target(
    drafter: str, policy: str, monkeypatch: pytest.MonkeyPatch
):
    target = llama(VOCAB, num_hidden_layers=4, hidden_size=32, initializer_range=0.2)
    pair = pair_of(target, relative(target, noise=0.35))
    monkeypatch.setattr(
        "specviz.core.cost.draft_costs", lambda *_: DraftCosts(0.1, 0.05)
    )  # drafts pay
    settings = Settings(gamma=6, max_new_tokens=30, drafter=drafter, gamma_policy=policy)
    rounds = list(speculate(pair, PROMPT, settings))
    assert emitted_ids(rounds) == generated(target, PROMPT, 30)
    assert any(r.drafted for r in rounds)
    sampled = replace(settings, temperature=1.0, top_p=0.9)
    ours = emitted_ids(speculate(pair, PROMPT, sampled))
    monkeypatch.setenv("SPECVIZ_FORM", "fastest")
    assert ours == emitted_ids(speculate(pair, PROMPT, sampled))


def test_both_lanes_race_in_the_static_form(pair: Pair):
    header, *_, end = race(pair, PROMPT, Settings(gamma=3, max_new_tokens=30))
    assert header.target["form"] == header.draft["form"] == "static"
    assert end.identical


# The engine


def test_rollback_growth_and_early_ends_leave_a_true_cache(pair: Pair):
    engine = static_engine(pair.target, VOCAB)
    assert engine is not None
    ids = [(7 * i + 2) % VOCAB for i in range(90)]
    engine.forward(torch.tensor(ids[:10]), keep=1)
    engine.forward(torch.tensor(ids[:3]), keep=1)
    engine.rollback(8)
    got = engine.forward(torch.tensor(ids[8:90]), keep=82)  # across several buffer sizes
    torch.testing.assert_close(got, uncached(pair.target, ids)[8:], atol=1e-4, rtol=1e-4)
    engine.rollback(50)
    got = engine.forward(torch.tensor(ids[50:53]), keep=3, layers=1)
    shallow = uncached(first_layers(pair.target, 1), ids[:53])
    torch.testing.assert_close(got, shallow[50:], atol=1e-4, rtol=1e-4)
    engine.rollback(50)
    got = engine.forward(torch.tensor(ids[50:53]), keep=3)
    torch.testing.assert_close(got, uncached(pair.target, ids[:53])[50:], atol=1e-4, rtol=1e-4)


def test_longer_buffers_need_new_programs(pair: Pair):
    """Programs of the old buffers would write to memory that was freed."""
    run = start_lane(pair, PROMPT, Settings(gamma=3, max_new_tokens=20), "speculative")
    run.prefill()
    assert run.target_engine._cache.programs
    run.target_engine.reserve(run.target_engine._cache.capacity + 1)
    assert not run.target_engine._cache.programs


STATIC = {
    "llama", "llama, scaled", "llama, biases", "llama, wide heads", "llama, llama 3 rope",
    "llama, yarn", "gemma", "qwen 2", "qwen 3", "phi 3", "olmo 2", "gpt neox", "gpt 2", "opt",
    "gpt j", "mixtral", "phi",
}  # fmt: skip
REASONS = {
    "llama, dynamic rope": "depend on the length",
    "mistral, sliding": "sliding window of 8 tokens",
    "gemma 2, sliding": "sliding window of 8 tokens",
    "gemma 3, sliding": "sliding window of 8 tokens",
    "gemma 3 with vision": "sliding window of 8 tokens",
    "phi 3, sliding": "sliding window of 8 tokens",
    "qwen 2, sliding": "sliding window of 8 tokens",
    "bloom": "accepts no position ids",
    "lfm 2, convolutions": "running state",
}


def check_text(target: Any, length: int) -> None:
    pair = pair_of(target, relative(target, noise=0.2))
    ours = emitted_ids(speculate(pair, PROMPT, Settings(gamma=3, max_new_tokens=length)))
    assert ours == generated(target, PROMPT, length)


@pytest.mark.parametrize("kind", {**FAMILIES, **VARIANTS})
def test_families_run_static_or_fall_back_with_a_reason(kind: str):
    target = build(kind)
    reason = static_reason(target, VOCAB)
    if kind in STATIC:
        assert reason is None and make_engine(target, VOCAB).name == "static"
        check_text(target, 16)  # it outgrows the first window
    else:
        # tests/pairs/test_families.py and test_architectures.py check its text in that form.
        assert REASONS[kind] in reason and make_engine(target, VOCAB).name != "static"


def test_a_family_that_falls_back_runs():
    check_text(build("mistral, sliding"), 16)


@pytest.mark.parametrize("kind", [*RUNNING, *ONE_BY_ONE])
def test_models_with_a_running_state_have_no_static_form(kind: str):
    assert static_reason(build(kind), VOCAB) is not None


def test_windows_as_long_as_the_context_never_slide():
    for kind in ("mistral, sliding", "gemma 3, sliding"):
        target = build(kind, sliding_window=512)
        assert static_reason(target, VOCAB) is None
        check_text(target, 16)


class Counting(LlamaForCausalLM):
    """A Llama whose logits depend on the length of the keys, masked or not."""

    @wraps(LlamaForCausalLM.forward)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        out = super().forward(*args, **kwargs)
        cache = kwargs.get(cache_argument(self))
        if cache is not None:
            out.logits = out.logits * (2 + cache.layers[0].keys.shape[2] % 7)
        return out


def test_a_model_that_fails_its_trial_falls_back_with_one_warning(sentences: Sentences):
    model = Counting(llama(VOCAB).config).eval()
    with sentences.warns(UserWarning):
        assert make_engine(model, VOCAB).name == "eager"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_engine(model, VOCAB).name == "eager"
    assert "different logits" in (static_reason(model, VOCAB) or "")


def test_hooks_and_other_attention_fall_back():
    hooked = llama(VOCAB)
    hooked.model.layers[0].register_forward_hook(lambda *_: None)
    assert "hooks" in (static_reason(hooked, VOCAB) or "")
    plain = llama(VOCAB)
    assert static_reason(plain, VOCAB) is None
    plain.model.layers[0].register_forward_pre_hook(lambda *_: None)
    assert "hooks" in (static_reason(plain, VOCAB) or ""), "also one that came later"
    eager = llama(VOCAB, attn_implementation="eager")
    pair = pair_of(eager, relative(eager, noise=0.3))
    assert static_reason(eager, VOCAB) is None
    ours = emitted_ids(speculate(pair, PROMPT, Settings(max_new_tokens=20)))
    assert ours == generated(eager, PROMPT, 20)


def test_the_form_is_asked_for_and_zerogpu_has_none(monkeypatch: pytest.MonkeyPatch):
    model = llama(VOCAB)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert make_engine(model, VOCAB).name != "static"
    monkeypatch.delenv("SPACES_ZERO_GPU")
    with eager_only():
        assert make_engine(model, VOCAB).name == "eager"
    monkeypatch.setenv("SPECVIZ_FORM", "eager")
    assert make_engine(model, VOCAB).name == "eager"
    monkeypatch.setenv("SPECVIZ_FORM", "statik")
    with pytest.raises(SettingsError, match="statik"):
        make_engine(model, VOCAB)
    monkeypatch.delenv("SPECVIZ_FORM")
    assert make_engine(model, VOCAB).name != "static"


# Requirements of a graph


def test_buffers_stay_where_they_are(pair: Pair):
    """A graph reads and writes at fixed addresses."""
    run = start_lane(pair, PROMPT, Settings(gamma=3, max_new_tokens=60), "speculative")
    run.prefill()
    slot = run.target_engine._cache
    seen: set[int] = set()
    while run.ended is None:
        run.round()
        layer = slot.layers[0]
        seen |= {layer.keys.data_ptr(), layer.values.data_ptr()}
    assert len(seen) == 2
    for program in slot.programs.values():
        before = [t.data_ptr() for t in (*program.inputs, *program.outputs)]
        program(*program.inputs)
        assert before == [t.data_ptr() for t in (*program.inputs, *program.outputs)]


def test_scripted_verdicts_run_inside_the_program(pair: Pair):
    settings = Settings(gamma=4, temperature=1.0, max_new_tokens=250, ignore_eos=True)
    _, *rounds = decode(
        pair, PROMPT, settings, "speculative", LaneOptions(scripted_rule=scripted(0.7))
    )
    found = [token.outcome for r in rounds for token in r.drafted]
    accepted = found.count("accepted")
    rejected = found.count("rejected")
    assert accepted / (accepted + rejected) == pytest.approx(0.7, abs=0.09)


# Between runs


def slots(model: Any) -> list[Any]:
    return engines._pools[model]._idle


def test_runs_use_caches_and_programs_again(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    made: list[Any] = []
    monkeypatch.setattr(engines, "Program", lambda *args: made.append(args) or Program(*args))
    settings = Settings(gamma=3, max_new_tokens=20)
    list(race(pair, PROMPT, settings))
    first = len(made)
    assert first > 4 and startup_seconds(pair.target) > 0
    list(race(pair, PROMPT, settings))
    assert len(made) == first, "a second run finds all that it needs"
    list(speculate(pair, PROMPT, replace(settings, temperature=0.5)))
    assert len(made) > first, "settings are part of a program"
    assert len(slots(pair.target)) <= engines.MAX_IDLE


def test_no_round_has_to_make_a_program(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    """Programs are made before any clock runs."""
    for gamma, policy in ((1, "fixed"), (7, "fixed"), (7, "optimal")):
        settings = Settings(gamma=gamma, max_new_tokens=40, gamma_policy=policy)
        run = start_lane(pair, PROMPT, settings, "speculative")
        run.prefill()
        with monkeypatch.context() as late:
            late.setattr(engines, "Program", None)
            while run.ended is None:
                run.round()


def test_an_abandoned_run_gives_its_cache_back(pair: Pair):
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=30)
    whole = emitted_ids(speculate(pair, PROMPT, settings))
    for count in (1, 3):
        begun = speculate(pair, PROMPT, settings)
        for _ in range(count):
            next(begun)
        assert len(slots(pair.target)) == 0, "two runs never share a cache"
        together = speculate(pair, PROMPT, settings)
        next(together)
        del begun, together
        assert len(slots(pair.target)) == 2
        assert emitted_ids(speculate(pair, PROMPT, settings)) == whole
        slots(pair.target).clear()


def test_a_cache_is_lent_without_what_another_run_left(pair: Pair):
    engine = static_engine(pair.target, VOCAB)
    assert engine is not None
    engine.forward(torch.tensor(PROMPT), keep=1)
    cache = engine.cache
    with torch.inference_mode():
        for layer in cache.layers:
            layer.keys.fill_(float("nan"))
            layer.values.fill_(float("nan"))
    del engine
    again = static_engine(pair.target, VOCAB)
    assert again is not None
    got = again.forward(torch.tensor(PROMPT), keep=5)
    assert again.cache is cache
    torch.testing.assert_close(got, uncached(pair.target, PROMPT), atol=1e-4, rtol=1e-4)


def test_everything_is_freed_with_the_model():
    model = llama(VOCAB)
    list(speculate(pair_of(model, model), PROMPT, Settings(max_new_tokens=20)))
    buffers = [weakref.ref(slot.layers[0].keys) for slot in slots(model)]
    gone = weakref.ref(model)
    assert buffers
    del model
    gc.collect()
    assert gone() is None and all(buffer() is None for buffer in buffers)


def test_replaced_weights_make_everything_anew():
    model = llama(VOCAB)
    pair = pair_of(model, model)
    settings = Settings(max_new_tokens=20)
    before = emitted_ids(speculate(pair, PROMPT, settings))
    with torch.no_grad():
        for weight in model.parameters():
            weight.data = torch.randn_like(weight) * 0.5
    after = emitted_ids(speculate(pair, PROMPT, settings))
    assert after == generated(model, PROMPT, 20) != before


def test_the_number_of_programs_is_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engines, "MAX_PROGRAMS", 6)
    run = start_lane(pair, PROMPT, Settings(gamma=7, max_new_tokens=60), "speculative")
    run.prefill()
    while run.ended is None:
        run.round()
    assert len(run.target_engine._cache.programs) == 6
    assert run.ids[5:] == generated(pair.target, PROMPT, 60)


def test_mini_models_run_as_they_are():
    assert static_reason(mini(VOCAB), VOCAB) == "it accepts no position ids"
    assert not isinstance(make_engine(mini(VOCAB), VOCAB), StaticEngine)
