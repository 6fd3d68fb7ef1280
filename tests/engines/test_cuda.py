"""Tests that need a GPU: real captures, their replays and their memory.

`python -m pytest tests/engines/test_cuda.py -m cuda -s` runs these tests, and `make gpu` runs the
benchmarks too. Without a GPU they are skipped.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from model_families import FAMILIES, build
from reference_distribution import continuation_distribution, p_value
from toy_models import emitted_ids, llama, pair_of, relative

import specviz.sides.fast_gpu.engine
from specviz import Pair, Settings, baseline, race, speculate
from specviz.core.loop import start_lane
from specviz.sides.fast_gpu.cache import Program
from specviz.sides.fast_gpu.engine import _pool_of
from specviz.sides.fast_gpu.rounds import DeviceRounds, step_by_step

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

DEVICE = "cuda"
PROMPT = [3, 1, 4, 1, 5]
VOCAB = 40
GRAPHS = "static, CUDA graphs"
SETTINGS = [
    Settings(),
    Settings(temperature=1.0),
    Settings(temperature=0.7, top_k=7),
    Settings(temperature=1.5, top_p=0.8),
]


@pytest.fixture(autouse=True)
def no_idle_caches() -> Iterator[None]:
    yield
    specviz.sides.fast_gpu.engine._pools.clear()
    gc.collect()


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specviz.sides.fast_gpu.cache.SMALLEST", 16)


def on_device(model: Any, dtype: torch.dtype = torch.float32) -> Any:
    return model.to(DEVICE, dtype)


def small_pair(dtype: torch.dtype = torch.float32) -> Pair:
    target = llama(VOCAB, num_hidden_layers=2, hidden_size=32, initializer_range=0.2)
    draft = relative(target, noise=0.35)
    return pair_of(on_device(target, dtype), on_device(draft, dtype))


def named(s: Settings) -> str:
    return f"{s.temperature}-{s.top_k}-{s.top_p}"


def test_a_replay_does_what_the_function_does():
    x = torch.zeros(4, dtype=torch.long, device=DEVICE)
    program = Program(lambda t: (t * 2, t.cumsum(0)), [x])
    assert program.graphed
    for values in ([1, 2, 3, 4], [5, 6, 7, 8]):
        twice, summed = program(torch.tensor(values))
        assert twice.tolist() == [2 * v for v in values]
        assert summed.tolist() == torch.tensor(values).cumsum(0).tolist()


def test_a_function_that_reads_values_is_not_captured():
    ones = torch.ones(2, device=DEVICE)
    before = torch.cuda.current_stream()
    with pytest.warns(UserWarning, match="could not be captured"):
        program = Program(lambda t: (t + t.sum().item(),), [ones])
    assert not program.graphed and program(ones)[0].tolist() == [3.0, 3.0]
    assert torch.cuda.current_stream() == before
    after = Program(lambda t: (t + 1,), [ones])
    assert after.graphed, "the next capture is none the worse for it"


@pytest.mark.parametrize("settings", SETTINGS, ids=named)
def test_text_is_that_of_the_plain_form(
    settings: Settings, short_windows: None, monkeypatch: pytest.MonkeyPatch
):
    pair = small_pair()
    settings = replace(settings, max_new_tokens=300)
    header, *_, end = race(pair, PROMPT, settings)
    # The rest of the form names the kernels of the passes.
    assert header.target["form"].startswith(GRAPHS)
    assert header.draft["form"].startswith(GRAPHS)
    assert end.identical is not False
    lanes = (speculate, baseline)
    ours = [emitted_ids(lane(pair, PROMPT, settings)) for lane in lanes]
    assert ours == [emitted_ids(lane(pair, PROMPT, settings)) for lane in lanes], "a seed repeats"
    monkeypatch.setenv("SPECVIZ_FORM", "eager")
    assert ours == [emitted_ids(lane(pair, PROMPT, settings)) for lane in lanes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_round_sees_what_an_uncached_pass_sees(dtype: torch.dtype, short_windows: None):
    pair = small_pair(dtype)
    run = start_lane(
        pair, PROMPT, Settings(gamma=3, temperature=1.0, max_new_tokens=60), "speculative"
    )
    run.prefill()
    close = 1e-3 if dtype == torch.float32 else 0.1
    with torch.inference_mode():
        while run.ended is None:
            before = list(run.ids)
            gamma = run.gamma()
            draft = run.drafter.draft(run.ids, gamma) if gamma else None
            judged = run.path.judge(run.ids, draft)
            ids = torch.tensor([before + judged.ids], device=DEVICE)
            wanted = pair.target(input_ids=ids, use_cache=False).logits[0, len(before) - 1 :]
            torch.testing.assert_close(judged.logits, wanted.float(), atol=close, rtol=close)
            run.commit(judged)


def test_sampled_sequences_follow_the_target():
    models = [llama(4, seed=seed) for seed in (0, 1)]
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=6)
    prompt = [2, 0]
    law = continuation_distribution(models[0], prompt, 3, settings)
    pair = pair_of(*map(on_device, models))
    runs = (replace(settings, seed=seed) for seed in range(800))
    found = [tuple(emitted_ids(speculate(pair, prompt, run))[:3]) for run in runs]
    assert p_value(found, law) > 1e-4


@pytest.mark.parametrize("kind", FAMILIES)
def test_families_are_captured_or_fall_back(kind: str):
    target = build(kind)
    draft = relative(target, noise=0.2)
    pair = pair_of(on_device(target), on_device(draft))
    header, *_, end = race(pair, PROMPT, Settings(gamma=3, max_new_tokens=40))
    reason = _pool_of(pair.target, VOCAB).refusal
    print(f"{kind}: {header.target['form']} {reason or ''}")
    assert header.target["form"].startswith(GRAPHS if reason is None else "eager")
    assert end.identical


def test_a_round_waits_for_nothing_but_its_verdict():
    """CUDA itself reports each wait. Clocks wait too, so the test calls the round's parts without
    them."""
    run = start_lane(small_pair(), PROMPT, Settings(gamma=3, max_new_tokens=60), "speculative")
    run.prefill()
    with torch.inference_mode():
        run.commit(run.path.judge(run.ids, run.drafter.draft(run.ids, 3)))
        torch.cuda.set_sync_debug_mode("error")
        try:
            draft = run.drafter.draft(run.ids, 3)
            run.path.launch(run.ids, draft)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_whole_round_waits_for_nothing_and_writes_what_single_steps_write():
    pair = small_pair()
    settings = Settings(gamma=3, temperature=0.9, max_new_tokens=80)
    run = start_lane(pair, PROMPT, settings, "speculative")
    run.prefill()
    rounds = run.whole_rounds
    assert isinstance(rounds, DeviceRounds)
    first = run.round()
    assert first.draft_seconds > 0 < first.verify_seconds and first.overhead_seconds == 0
    with torch.inference_mode():
        torch.cuda.set_sync_debug_mode("error")
        try:
            rounds._enqueue(None, len(run.ids) + 8)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for form in (settings, replace(settings, temperature=0.0), replace(settings, gamma=1)):
        for lane in (speculate, baseline):
            whole = emitted_ids(lane(pair, PROMPT, form))
            with step_by_step():
                assert emitted_ids(lane(pair, PROMPT, form)) == whole


def test_runs_leave_no_memory_behind():
    pair = small_pair()
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=60)
    taken = []
    for seed in range(6):
        list(race(pair, PROMPT, replace(settings, seed=seed)))
        gc.collect()
        torch.cuda.synchronize()
        taken.append(torch.cuda.memory_allocated())
    assert taken[-1] == taken[1], taken


def test_lanes_in_threads_keep_apart():
    from concurrent.futures import ThreadPoolExecutor

    pair = small_pair()
    runs = [Settings(temperature=1.0, max_new_tokens=60, seed=seed) for seed in range(4)]
    wanted = [emitted_ids(speculate(pair, PROMPT, s)) for s in runs]
    specviz.sides.fast_gpu.engine._pools.clear()  # so that the captures run side by side too
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda s: emitted_ids(speculate(pair, PROMPT, s)), runs))
    assert found == wanted
