"""ZeroGPU with its real package: a stand-in for the device service on loopback, and no GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
import torch
from fake_zerogpu import Devices, device_service
from forked_process import ForkedProcess
from places import HELPERS
from sentences import Sentences
from toy_models import llama

from specviz import Settings, SpecvizError, load_pair, race
from specviz.base.environment import ASSETS
from specviz.core import engine_choice
from specviz.sides.fast_cpu import support
from specviz.worker.loading import Models
from specviz.worker.tasks import RaceTask, SampleTask, Stop
from specviz.worker.zerogpu import (
    ELSEWHERE,
    MAX_CALL_SECONDS,
    CostEstimate,
    Failure,
    call_seconds,
    lists_of_results,
    sentence_for,
)

HOST = str(HELPERS / "zerogpu_host.py")
IN_A_SESSION = "import os, runpy, sys; os.setsid(); runpy.run_path(sys.argv[1], None, '__main__')"
COST = CostEstimate(target=0.01, draft=0.005, start=6.0)
SETTINGS = Settings(gamma=4, temperature=0.7, max_new_tokens=100)
TASK = RaceTask("builtin", "Once", SETTINGS)

Ask: TypeAlias = Callable[..., dict[str, Any]]

needs_spaces = pytest.mark.skipif(
    importlib.util.find_spec("spaces") is None or sys.platform != "linux",
    reason="no package 'spaces' here: on Linux, pip install -r requirements-dev.txt",
)
needs_pair = pytest.mark.skipif(
    not (ASSETS / "pair" / "target").is_dir(), reason="no built-in pair here"
)


@pytest.fixture(scope="module")
def devices() -> Iterator[Devices]:
    with device_service() as service:
        yield service


@pytest.fixture(scope="module")
def ask(devices: Devices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Run a task in a process that believes that it is on ZeroGPU, and return the outcome."""
    folder = tmp_path_factory.mktemp("zerogpu")
    environment = {
        "SPACES_ZERO_GPU": "true",
        "SPACES_ZERO_DEVICE_API_URL": devices.url,
        "ZEROGPU_OFFLOAD_DIR": str(folder / "tensors"),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "OMP_NUM_THREADS": "1",
    }
    host = ForkedProcess([sys.executable, "-c", IN_A_SESSION, HOST], os.environ | environment)
    assert json.loads(host.stdout.readline())["seconds"] > 0

    def asked(kind: str, prompt: str = "Once", *, settings: Any = None, **more: Any) -> Any:
        settings = {"max_new_tokens": 6, "temperature": 0.7, "seed": 4, **(settings or {})}
        task = {"kind": kind, "prompt": prompt, "settings": settings, **more}
        host.stdin.write(json.dumps(task).encode() + b"\n")
        host.stdin.flush()
        return json.loads(host.stdout.readline())

    yield asked
    os.killpg(host.pid, signal.SIGKILL)  # the forked processes too
    host.wait()


@needs_spaces
@needs_pair
class TestLentGpu:
    def test_both_lanes_run_in_one_call(
        self, ask: Ask, devices: Devices, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = devices.count("/schedule")
        told = ask("race", settings={"max_new_tokens": 24})
        assert told["error"] is None
        assert told["came"][1] == "Header" and told["came"][-1] == "End"
        assert devices.count("/schedule") == before + 1
        assert devices.last("/release")["fail"] == "false"
        monkeypatch.setenv("SPACES_ZERO_GPU", "true")
        pair = load_pair("builtin", device="cpu", dtype="bfloat16")
        events = race(pair, "Once", Settings(max_new_tokens=24, temperature=0.7, seed=4))
        ours = [event for event in events if getattr(event, "lane", "") == "speculative"]
        assert told["ids"] == [token.id for event in ours for token in event.emitted]
        assert told["header"] == [["eager", "bfloat16"]]

    def test_a_gpu_is_asked_for_as_long_as_the_settings_need(
        self, ask: Ask, devices: Devices
    ) -> None:
        asked = []
        for settings in ({}, {"max_new_tokens": 512}, {"max_new_tokens": 512, "gamma": 16}):
            devices.answers.append("busy")
            ask("race", settings=settings)
            asked.append(int(devices.last("/schedule")["durationSeconds"]))
        assert 10 <= asked[0] < asked[1] < asked[2] <= MAX_CALL_SECONDS

    def test_an_experiment_runs_there_too(self, ask: Ask) -> None:
        told = ask("sample")
        assert told["error"] is None and told["came"] == [*["int"] * 3, "Compared"]

    def test_what_needs_no_gpu_asks_for_none(self, ask: Ask, devices: Devices) -> None:
        before = len(devices.asked)
        assert ask("load")["error"] is None
        told = ask("machine")
        assert "cpu=False" in told["said"], "the GPU that is lent counts, not this processor"
        assert ask("examine")["error"] is None
        assert ask("race", "")["error"].startswith("the prompt is empty")
        assert ask("race", pair="gpt2-xl-gpt2")["error"] == ELSEWHERE
        assert len(devices.asked) == before

    @pytest.mark.parametrize("answer", ["quota", "illegal", "pending", "busy", "timeout", "broken"])
    def test_a_refusal_is_one_sentence(
        self, ask: Ask, devices: Devices, answer: str, sentences: Sentences
    ) -> None:
        devices.answers.append(answer)
        told = ask("race")
        assert told["kind"] == "NoGpuError" and told["came"] == []
        sentences(told["error"])
        devices.answers.append("same")  # to fork a process takes longer than the run
        told = ask("race", settings={"max_new_tokens": 1})
        assert told["error"] is None, "the next one gets a GPU"

    def test_a_wait_in_the_queue_ends_with_a_run(self, ask: Ask, devices: Devices) -> None:
        devices.answers.append("queue")
        assert ask("race")["came"][-1] == "End"

    def test_something_is_heard_every_tenth_of_a_second(self, ask: Ask) -> None:
        ask("race")  # the process exists now
        told = ask("race", "take long", settings={"max_new_tokens": 4})
        assert len(told["beats"]) > len(told["came"])
        late = sorted(told["beats"])
        assert late[len(late) // 2] < 0.1  # the slowest only shows how busy the machine is

    def test_a_call_is_cancelled_between_two_yields(self, ask: Ask, devices: Devices) -> None:
        began = time.monotonic()
        told = ask("race", "take long", settings={"max_new_tokens": 200}, beats=8)
        assert time.monotonic() - began < 60  # 200 tokens would take longer than a minute
        assert told["error"] is None and "End" not in told["came"]
        assert devices.last("/release")["fail"] == "false"
        assert ask("race", most=3)["came"] == ["Status", "Header", "Round"]
        assert ask("race")["came"][-1] == "End"

    def test_a_process_with_a_broken_device_is_not_used_again(
        self, ask: Ask, devices: Devices
    ) -> None:
        def process() -> str:
            devices.answers.append("same")
            return ask("race", "tell the process")["said"]

        first = process()
        assert process() == first
        devices.answers.append("same")
        ask("race", "break the GPU")
        assert process() != first

    @pytest.mark.parametrize("what", ["lose the GPU", "break the GPU"])
    def test_the_next_visitor_notices_nothing(self, ask: Ask, what: str) -> None:
        told = ask("race", what)
        assert told["error"] and told["error"].endswith(".") and "CUDA" not in told["error"]
        assert told["came"].count("Round") <= 3
        assert (told["kind"] == "NoGpuError") == (what == "lose the GPU")
        assert ask("race")["came"][-1] == "End"


class TestSeconds:
    def test_more_of_anything_takes_longer(self) -> None:
        base = call_seconds(TASK, COST, 10)
        for other in (
            Settings(gamma=8, max_new_tokens=100),
            Settings(gamma=4, max_new_tokens=200),
            Settings(gamma=4, max_new_tokens=100, drafter="early-exit"),
        ):
            assert call_seconds(RaceTask("builtin", "", other), COST, 10) > base
        assert call_seconds(TASK, COST, 4000) > base
        lanes = {"fast": SETTINGS, "slow": SETTINGS}
        assert call_seconds(RaceTask("builtin", "", SETTINGS, lanes), COST, 10) > base
        none = Settings(gamma=4, max_new_tokens=100, drafter="none")
        assert call_seconds(RaceTask("builtin", "", none), COST, 10) < base

    def test_the_sum_is_that_of_the_formula(self) -> None:
        cost = CostEstimate(target=0.01, draft=0.0, start=6.0)
        # 6 s start, 4 s warm-up, 100 tokens in two lanes, three empty prefills
        assert call_seconds(TASK, cost, 0) == pytest.approx(12.03)

    def test_nobody_asks_for_more_than_a_day_has(self) -> None:
        endless = RaceTask("builtin", "", Settings(gamma=16, max_new_tokens=100_000))
        assert call_seconds(endless, COST, 10) == MAX_CALL_SECONDS
        sample = SampleTask("builtin", "", SETTINGS, 300, length=2, reach=64)
        assert call_seconds(sample, COST, 10) <= MAX_CALL_SECONDS

    def test_costs_are_estimated_from_the_sizes(self) -> None:
        def model(blocks: int, weights: int) -> Any:
            inner = SimpleNamespace(num_hidden_layers=blocks)
            return SimpleNamespace(
                config=SimpleNamespace(get_text_config=lambda: inner),
                parameters=lambda: [torch.empty(weights, dtype=torch.bfloat16, device="meta")],
            )

        pair = SimpleNamespace(target=model(32, 8 * 10**9), draft=model(16, 10**9), head=None)
        cost = CostEstimate.of(pair)
        assert cost.target > 2 * cost.draft
        assert cost.start > 10  # 18 GB must be moved


QUOTA = (
    "You have exceeded your free ZeroGPU quota (20s requested vs. 3s left). "
    "Try again in 1 day, 3:25:45. "
)
LIMIT = "Space app has reached its GPU limit. Try re-running outside of examples"


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("ZeroGPU quota exceeded", QUOTA),
        ("ZeroGPU quota exceeded", LIMIT),
        ("ZeroGPU quota exceeded", "No GPU was available after 60s. Try re-running"),
        ("ZeroGPU client error", "Expired ZeroGPU proxy token"),
        ("", "anything <b>else</b>"),
    ],
)
def test_sentences_hold_nothing_of_the_service_but_the_time(
    title: str, said: str, sentences: Sentences
) -> None:
    error = RuntimeError(said)
    error.title = title  # type: ignore[attr-defined]
    sentences(sentence_for(error))


class Slow:
    """A task with several slow results."""

    def __init__(self, count: int, seconds: float, error: Exception | None = None) -> None:
        self.count = count
        self.seconds = seconds
        self.error = error
        self.told: list[bool] = []

    def run(self, models: Models, stop: Stop) -> Iterator[int]:
        for number in range(self.count):
            time.sleep(self.seconds)
            yield number
            self.told.append(not stop.is_set())
            if stop.is_set():
                return
        if self.error:
            raise self.error


MODELS = Models(lambda name, _: None, race)


def lists(task: Any, seconds: float = 60.0) -> list[list[Any]]:
    return list(lists_of_results(task, MODELS, seconds))


def results(task: Any, seconds: float = 60.0) -> list[Any]:
    return [item for items in lists(task, seconds) for item in items]


class TestListsOfResults:
    def test_all_results_come_in_order(self) -> None:
        assert results(Slow(1000, 0.0)) == list(range(1000))

    def test_lists_come_when_nothing_else_does(self) -> None:
        class Waiting:
            told = threading.Event()

            def run(self, models: Models, stop: Stop) -> Iterator[bool]:
                yield self.told.wait(60)

        came = []
        for items in lists_of_results(Waiting(), MODELS, 60.0):  # type: ignore[arg-type]
            came.append(items)
            if came.count([]) == 3:
                Waiting.told.set()
        assert came.count([]) >= 3 and [True] in came

    def test_an_error_comes_last_as_its_sentence(self) -> None:
        refused = results(Slow(2, 0.0, SpecvizError("choose another.")))
        assert refused == [0, 1, Failure("choose another.")]
        broken = results(Slow(1, 0.0, RuntimeError("CUDA error: no")))
        assert broken[-1].fatal and "CUDA" not in broken[-1].sentence

    def test_a_task_is_told_when_its_time_is_over(self) -> None:
        task = Slow(1000, 0.02)
        came = results(task, 0.2)
        assert came and task.told[-1] is False and len(task.told) < 1000

    def test_closing_ends_the_task(self) -> None:
        task = Slow(10_000, 0.01)
        coming = lists_of_results(task, MODELS, 600.0)
        next(coming)
        coming.close()  # type: ignore[attr-defined]
        assert task.told[-1] is False and len(task.told) < 10_000


def test_engines_are_eager_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setattr(support, "compiled_engine", lambda *_: pytest.fail("it is not to be asked"))
    assert engine_choice.make_engine(llama(64), 64).name == "eager"
